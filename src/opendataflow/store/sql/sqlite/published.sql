-- What is published of a dataset, and taking it back, on SQLite.

-- name: dataset_names
SELECT project, datasetid FROM dataset ORDER BY project, datasetid

-- name: producer_of
SELECT project, jobid FROM job_dataset
WHERE dataset_project = :project AND datasetid = :datasetid AND itemtype = 'OUT'

-- name: chunks
-- One statement, so that all chunks are seen as of one moment.
SELECT c.dataid, c.status, c.location, m.rows, m.bytes, r.runid, coalesce(m.created_at, c.modified), c.version,
       m.schema, c.problem, c.modified
FROM datastatus c
     LEFT JOIN data_manifest m ON m.project = c.project AND m.datasetid = c.datasetid AND m.dataid = c.dataid
                                  AND m.version = c.version
     LEFT JOIN run r ON r.runid = c.version
WHERE c.project = :project AND c.datasetid = :datasetid AND c.locktype = 'OUT' AND c.reader = ''
  AND (:status IS NULL OR c.status = :status)

-- name: chunk
SELECT c.dataid, c.status, c.location, m.rows, m.bytes, r.runid, coalesce(m.created_at, c.modified), c.version,
       m.schema, c.problem, c.modified
FROM datastatus c
     LEFT JOIN data_manifest m ON m.project = c.project AND m.datasetid = c.datasetid AND m.dataid = c.dataid
                                  AND m.version = c.version
     LEFT JOIN run r ON r.runid = c.version
WHERE c.project = :project AND c.datasetid = :datasetid AND c.dataid = :dataid AND c.locktype = 'OUT' AND c.reader = ''

-- name: last_ready
-- By the text of the dataid: a seek.
SELECT dataid FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND locktype = 'OUT' AND reader = '' AND status = 'READY'
ORDER BY dataid DESC LIMIT 1

-- name: ready_dataids
SELECT dataid FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND locktype = 'OUT' AND reader = '' AND status = 'READY'

-- Versions that nobody needs --------------------------------------------------------------------------------------
-- name: made_datasets
SELECT o.dataset_project, o.datasetid, j.kind FROM job_dataset o JOIN job j ON j.project = o.project AND j.jobid = o.jobid
WHERE o.dataset_project = :project AND o.itemtype = 'OUT' ORDER BY o.datasetid

-- name: logs_kept
-- Runs that go on, and those that a FAILED dataid stands on.
SELECT runid FROM job_status WHERE status = 'RUNNING'
UNION ALL
SELECT runid FROM job_status WHERE status = 'FAILED'

-- name: live_runs
SELECT runid FROM job_status INDEXED BY job_status_running WHERE project = :project AND jobid = :jobid AND status = 'RUNNING'

-- name: dataids_read
SELECT DISTINCT dataid FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND locktype = 'IN' AND status = 'RUNNING'

-- name: versions
SELECT dataid, version, created_at FROM data_manifest
WHERE project = :project AND datasetid = :datasetid ORDER BY dataid, version

-- name: run_end
SELECT project, jobid, dataid, status, ended_at FROM run WHERE runid = :runid

-- Taking back -----------------------------------------------------------------------------------------------------
-- name: hold_job_row
-- BEGIN IMMEDIATE keeps everybody else out already.
SELECT status, owner FROM job_status WHERE project = :project AND jobid = :jobid AND dataid = :dataid

-- name: hold_chunk
SELECT status, location FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND dataid = :dataid AND locktype = 'OUT' AND reader = ''

-- name: live_readers
SELECT jobid, reader FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND dataid = :dataid AND locktype = 'IN' AND status = 'RUNNING'

-- name: resubmit_producer
UPDATE job_status SET status = 'RESUBMIT', modified = :now
WHERE project = :project AND jobid = :jobid AND dataid = :dataid

-- name: take_back
-- The location goes too: from now on nothing points at the files.
UPDATE datastatus
SET status = CASE WHEN status IN ('READY', 'FAILED') THEN 'RESUBMIT' ELSE status END, location = NULL,
    fingerprint = NULL, validated_at = NULL, modified = :now
WHERE project = :project AND datasetid = :datasetid AND dataid = :dataid AND locktype = 'OUT' AND reader = ''
