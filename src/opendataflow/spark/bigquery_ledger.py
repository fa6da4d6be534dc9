"""The ledger's statements in BigQuery's SQL. What they say is in opendataflow.spark.sql_ledger.

BigQuery has no locks and enforces no keys. Two transactions that change rows which are there cannot both commit, but
two that only add rows can. So each one changes the guard, the one row without a table, that the ledger is made with.
"""

CREATE = """
CREATE TABLE IF NOT EXISTS {ledger} (
  tablename STRING NOT NULL,
  dataset STRING NOT NULL,
  dataid STRING NOT NULL,
  run INT64 NOT NULL,
  token INT64 NOT NULL,
  `rows` INT64 NOT NULL,
  inputs_digest STRING NOT NULL,
  columns STRING NOT NULL,
  findings STRING NOT NULL,
  published_at TIMESTAMP NOT NULL
) AS
SELECT '' AS tablename, '' AS dataset, '' AS dataid, 0 AS run, 0 AS token, 0 AS `rows`, '' AS inputs_digest,
  '{{}}' AS columns, '[]' AS findings, CURRENT_TIMESTAMP() AS published_at
"""
FIND = """
SELECT run, token, `rows`, inputs_digest, columns, findings FROM {ledger}
WHERE tablename = {tablename} AND dataset = {dataset} AND dataid = {dataid}
"""
GUARD = """
UPDATE {ledger} SET published_at = CURRENT_TIMESTAMP() WHERE tablename = '' AND dataset = '' AND dataid = ''
"""
NOBODY = """
NOT EXISTS (SELECT 1 FROM {ledger} WHERE tablename = {tablename} AND dataset = {dataset} AND dataid = {dataid})
"""
STILL = """
EXISTS (SELECT 1 FROM {ledger} WHERE tablename = {tablename} AND dataset = {dataset} AND dataid = {dataid}
  AND run = {found_run} AND token = {found_token})
"""
# The token is in the condition: a run that outlived its lease must change nothing, also when nobody looked before.
PUT = """
MERGE {ledger} AS l
USING (SELECT {tablename} AS tablename, {dataset} AS dataset, {dataid} AS dataid) AS said
ON l.tablename = said.tablename AND l.dataset = said.dataset AND l.dataid = said.dataid
WHEN MATCHED AND l.token < {token} THEN UPDATE SET
  run = {run}, token = {token}, `rows` = {rows}, inputs_digest = {digest}, columns = {columns}, findings = {findings},
  published_at = {now}
WHEN NOT MATCHED THEN INSERT
  (tablename, dataset, dataid, run, token, `rows`, inputs_digest, columns, findings, published_at)
  VALUES ({tablename}, {dataset}, {dataid}, {run}, {token}, {rows}, {digest}, {columns}, {findings}, {now})
"""
ADOPT = """
UPDATE {ledger} SET token = {token}
WHERE tablename = {tablename} AND dataset = {dataset} AND dataid = {dataid} AND token < {token}
"""
