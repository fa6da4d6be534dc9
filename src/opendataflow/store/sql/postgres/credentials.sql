-- Credentials of a project's datasets on PostgreSQL.

-- name: credentials_of
SELECT datasetid, encryptedpass FROM dataset
WHERE project = %(project)s AND encryptedpass IS NOT NULL AND encryptedpass <> '' ORDER BY datasetid

-- name: set_credential
-- Only if it is still the one that was read.
UPDATE dataset SET encryptedpass = %(new)s, modified = from_now(%(now)s)
WHERE project = %(project)s AND datasetid = %(datasetid)s AND encryptedpass = %(old)s
