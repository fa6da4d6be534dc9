-- What is published of a dataset, and taking it back, on PostgreSQL.

-- name: dataset_names
SELECT project, datasetid FROM dataset ORDER BY project, datasetid

-- name: producer_of
SELECT project, jobid FROM job_dataset
WHERE dataset_project = %(project)s AND datasetid = %(datasetid)s AND itemtype = 'OUT'

-- name: chunks
-- One statement, so that all chunks are seen as of one moment.
SELECT c.dataid, c.status, c.location, m.rows, m.bytes, r.runid, coalesce(m.created_at, c.modified), c.version,
       m.schema, c.problem, c.modified
FROM datastatus c
     LEFT JOIN data_manifest m ON m.project = c.project AND m.datasetid = c.datasetid AND m.dataid = c.dataid
                                  AND m.version = c.version
     LEFT JOIN run r ON r.runid = c.version
WHERE c.project = %(project)s AND c.datasetid = %(datasetid)s AND c.locktype = 'OUT' AND c.reader = ''
  AND (%(status)s::text IS NULL OR c.status = %(status)s)

-- name: chunk
SELECT c.dataid, c.status, c.location, m.rows, m.bytes, r.runid, coalesce(m.created_at, c.modified), c.version,
       m.schema, c.problem, c.modified
FROM datastatus c
     LEFT JOIN data_manifest m ON m.project = c.project AND m.datasetid = c.datasetid AND m.dataid = c.dataid
                                  AND m.version = c.version
     LEFT JOIN run r ON r.runid = c.version
WHERE c.project = %(project)s AND c.datasetid = %(datasetid)s AND c.dataid = %(dataid)s
  AND c.locktype = 'OUT' AND c.reader = ''

-- name: last_ready
-- By the text of the dataid: a seek.
SELECT dataid FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND reader = '' AND status = 'READY'
ORDER BY dataid DESC LIMIT 1

-- name: ready_dataids
SELECT dataid FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND reader = '' AND status = 'READY'

-- Versions that nobody needs --------------------------------------------------------------------------------------
-- name: made_datasets
SELECT o.dataset_project, o.datasetid, j.kind FROM job_dataset o JOIN job j ON j.project = o.project AND j.jobid = o.jobid
WHERE o.dataset_project = %(project)s AND o.itemtype = 'OUT' ORDER BY o.datasetid

-- name: logs_kept
-- Runs that go on, and those that a FAILED dataid stands on.
SELECT runid FROM job_status WHERE status = 'RUNNING'
UNION ALL
SELECT runid FROM job_status WHERE status = 'FAILED'

-- name: live_runs
SELECT runid FROM job_status WHERE project = %(project)s AND jobid = %(jobid)s AND status = 'RUNNING'

-- name: dataids_read
SELECT DISTINCT dataid FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'IN' AND status = 'RUNNING'

-- name: versions
SELECT dataid, version, created_at FROM data_manifest
WHERE project = %(project)s AND datasetid = %(datasetid)s ORDER BY dataid, version

-- name: run_end
SELECT project, jobid, dataid, status, ended_at FROM run WHERE runid = %(runid)s

-- Taking back -----------------------------------------------------------------------------------------------------
-- name: hold_job_row
-- In the order in which a claim takes them: first the job's row, then the chunk's.
SELECT status, owner FROM job_status WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s
FOR UPDATE

-- name: hold_chunk
SELECT status, location FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND dataid = %(dataid)s AND locktype = 'OUT' AND reader = ''
FOR UPDATE

-- name: live_readers
SELECT jobid, reader FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND dataid = %(dataid)s
  AND locktype = 'IN' AND status = 'RUNNING'

-- name: resubmit_producer
UPDATE job_status SET status = 'RESUBMIT', modified = from_now(%(now)s)
WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s

-- name: take_back
-- The location goes too: from now on nothing points at the files.
UPDATE datastatus
SET status = CASE WHEN status IN ('READY', 'FAILED') THEN 'RESUBMIT' ELSE status END, location = NULL,
    fingerprint = NULL, validated_at = NULL, modified = from_now(%(now)s)
WHERE project = %(project)s AND datasetid = %(datasetid)s AND dataid = %(dataid)s AND locktype = 'OUT' AND reader = ''
