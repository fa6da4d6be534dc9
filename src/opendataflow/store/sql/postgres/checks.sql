-- What the checks of chunks found, on PostgreSQL.

-- name: may_record
-- A run that was given up must not replace what was found of a later one's output.
SELECT 1 FROM run WHERE runid = %(runid)s AND status <> 'LOST'
  AND NOT EXISTS (SELECT 1 FROM data_check WHERE project = %(project)s AND datasetid = %(datasetid)s
                  AND dataid = %(dataid)s AND runid > %(runid)s)

-- name: forget_findings
DELETE FROM data_check WHERE project = %(project)s AND datasetid = %(datasetid)s AND dataid = %(dataid)s

-- name: record_finding
INSERT INTO data_check (project, datasetid, dataid, position, name, result, detail, runid, checked_at)
VALUES (%(project)s, %(datasetid)s, %(dataid)s, %(position)s, %(name)s, %(result)s, %(detail)s, %(runid)s, from_now(%(now)s))

-- name: findings_of
SELECT position, name, result, detail, runid, checked_at FROM data_check
WHERE project = %(project)s AND datasetid = %(datasetid)s AND dataid = %(dataid)s ORDER BY position

-- name: latest_trouble
-- The latest chunks that have some, with all of it: one dataset, or all of them.
SELECT c.datasetid, c.dataid, c.position, c.name, c.result, c.detail, c.runid, c.checked_at FROM data_check c
JOIN (SELECT project, datasetid, dataid, max(checked_at) AS seen_at FROM data_check
      WHERE project = %(project)s AND (%(datasetid)s::text IS NULL OR datasetid = %(datasetid)s)
        AND result IN ('failed', 'warned', 'quarantined')
      GROUP BY project, datasetid, dataid ORDER BY seen_at DESC, datasetid, dataid DESC LIMIT %(limit)s) AS latest
  ON latest.project = c.project AND latest.datasetid = c.datasetid AND latest.dataid = c.dataid
WHERE c.result IN ('failed', 'warned', 'quarantined')
ORDER BY latest.seen_at DESC, c.datasetid, c.dataid DESC, c.position

-- name: dataids_of
-- The chunks that anybody knows something of, for the nearest name.
SELECT dataid FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND reader = ''
UNION SELECT dataid FROM data_check WHERE project = %(project)s AND datasetid = %(datasetid)s
ORDER BY 1 LIMIT 10000

-- name: is_chunk
SELECT 1 FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND dataid = %(dataid)s AND locktype = 'OUT' AND reader = ''
