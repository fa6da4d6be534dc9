-- Files that arrive from outside: what is known of a dataset's chunks, on SQLite.

-- name: known_chunks
SELECT dataid, status, location, fingerprint, problem FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND locktype = 'OUT' AND reader = ''

-- name: earlier_rows
-- By dataid, backwards from this one: a seek, however many chunks there are.
SELECT m.rows FROM datastatus c
JOIN data_manifest m ON m.project = c.project AND m.datasetid = c.datasetid AND m.dataid = c.dataid
                        AND m.version = c.version
WHERE c.project = :project AND c.datasetid = :datasetid AND c.dataid < :dataid AND c.locktype = 'OUT'
  AND c.reader = '' AND c.status = 'READY' AND m.rows IS NOT NULL
ORDER BY c.dataid DESC LIMIT :last

-- name: record_rejection
-- A chunk that is READY or being made is not touched: what was rejected is not what it consists of.
INSERT INTO datastatus (project, datasetid, dataid, locktype, status, problem, modified)
VALUES (:project, :datasetid, :dataid, 'OUT', 'PENDING', :problem, :now)
ON CONFLICT (project, datasetid, dataid, locktype, reader) DO UPDATE
SET problem = excluded.problem, modified = excluded.modified
WHERE datastatus.status NOT IN ('READY', 'RUNNING') AND datastatus.problem IS NOT excluded.problem

-- name: record_change
-- What is READY stays READY: only that its file is another one by now is kept, or (NULL) that it is the same again.
UPDATE datastatus SET problem = :problem
WHERE project = :project AND datasetid = :datasetid AND dataid = :dataid AND locktype = 'OUT' AND reader = ''
  AND status = 'READY' AND problem IS NOT :problem

-- name: forget_rejection
UPDATE datastatus SET problem = NULL
WHERE project = :project AND datasetid = :datasetid AND dataid = :dataid AND locktype = 'OUT' AND reader = ''
  AND status <> 'READY'

-- name: problems
SELECT project, datasetid, dataid, status, problem FROM datastatus
WHERE problem IS NOT NULL AND (:project IS NULL OR project = :project) AND (:datasetid IS NULL OR datasetid = :datasetid)
ORDER BY project, datasetid, dataid

-- name: open_chunk
INSERT INTO datastatus (project, datasetid, dataid, locktype, status, modified)
VALUES (:project, :datasetid, :dataid, 'OUT', 'READY', :now)
ON CONFLICT (project, datasetid, dataid, locktype, reader) DO NOTHING
