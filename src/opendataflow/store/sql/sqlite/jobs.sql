-- What the pages of jobs and workers show, on SQLite: each question a few seeks, however many chunks there are.

-- name: job_clocks
-- By which clock each job goes.
SELECT l.project, l.jobid, d.clock
FROM job_dataset l JOIN dataset d ON d.project = l.dataset_project AND d.datasetid = l.datasetid
WHERE l.itemtype = 'IN' AND d.clock IS NOT NULL

-- name: latest_runs
-- The last run of each job that is among the newest runs.
SELECT r.project, r.jobid, r.runid, r.dataid, r.status, r.claimed_at, r.ended_at
FROM run r JOIN (SELECT project, jobid, max(runid) AS runid
                 FROM (SELECT project, jobid, runid FROM run ORDER BY runid DESC LIMIT :look) n
                 GROUP BY project, jobid) m ON m.runid = r.runid

-- name: run_of_latest_dataids
-- Of a job whose last run is further back: that of its latest dataids.
SELECT project, jobid, runid, dataid, status, claimed_at, ended_at FROM run
WHERE runid = (SELECT max(runid) FROM (SELECT runid FROM job_status WHERE project = :project AND jobid = :jobid
                                       ORDER BY dataid DESC LIMIT :look) n)

-- name: runs_of_job
-- Among the newest of all runs, and of its latest dataids.
SELECT runid, dataid, attempt, status, owner, claimed_at, ended_at, exit_code, message FROM run
WHERE project = :project AND jobid = :jobid
  AND (runid >= (SELECT min(runid) FROM (SELECT runid FROM run ORDER BY runid DESC LIMIT :look) n))
UNION
SELECT runid, dataid, attempt, status, owner, claimed_at, ended_at, exit_code, message FROM run
WHERE runid IN (SELECT runid FROM (SELECT runid FROM job_status WHERE project = :project AND jobid = :jobid
                                   ORDER BY dataid DESC LIMIT :limit) n WHERE runid IS NOT NULL)
ORDER BY runid DESC LIMIT :limit

-- Dataids of a job: the latest first ------------------------------------------------------------------------------
-- name: dataids_all
SELECT dataid, status, waiting, attempts, runid, parked_until, modified FROM job_status
WHERE project = :project AND jobid = :jobid ORDER BY dataid DESC LIMIT :limit OFFSET :offset

-- name: dataids_complete
SELECT dataid, status, waiting, attempts, runid, parked_until, modified FROM job_status
WHERE project = :project AND jobid = :jobid AND status = 'COMPLETE' ORDER BY dataid DESC LIMIT :limit OFFSET :offset

-- name: dataids_failed
SELECT dataid, status, waiting, attempts, runid, parked_until, modified FROM job_status
WHERE project = :project AND jobid = :jobid AND status = 'FAILED'
ORDER BY sortkey DESC, dataid DESC LIMIT :limit OFFSET :offset

-- name: dataids_running
SELECT dataid, status, waiting, attempts, runid, parked_until, modified FROM job_status
WHERE project = :project AND jobid = :jobid AND status = 'RUNNING' ORDER BY dataid DESC LIMIT :limit OFFSET :offset

-- name: dataids_open
-- PENDING, RESUBMIT or HOLD: what can be claimed, and what cannot, each by its index.
SELECT dataid, status, waiting, attempts, runid, parked_until, modified FROM (
    SELECT * FROM (SELECT dataid, status, waiting, attempts, runid, parked_until, modified, sortkey FROM job_status
                   WHERE project = :project AND jobid = :jobid AND status IN ('PENDING', 'RESUBMIT') AND waiting <= 0
                     AND parked_until IS NULL AND status = :status
                   ORDER BY sortkey DESC, dataid DESC LIMIT :most) a
    UNION ALL
    SELECT * FROM (SELECT dataid, status, waiting, attempts, runid, parked_until, modified, sortkey FROM job_status
                   WHERE project = :project AND jobid = :jobid
                     AND (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
                     AND status = :status
                   ORDER BY sortkey DESC, dataid DESC LIMIT :most) b) found
ORDER BY sortkey DESC, dataid DESC LIMIT :limit OFFSET :offset

-- Workers -----------------------------------------------------------------------------------------------------------
-- name: running_now
-- What runs where.
SELECT r.owner, r.host, r.runid, s.project, s.jobid, s.dataid, r.attempt, r.claimed_at, s.lease_until, s.lease_until < :now
FROM job_status s JOIN run r ON r.runid = s.runid
WHERE s.status = 'RUNNING' AND (:project IS NULL OR s.project = :project)
ORDER BY r.runid LIMIT :limit OFFSET :offset

-- Streams -------------------------------------------------------------------------------------------------------------
-- name: batches_of
SELECT b.dataid, b.start_offset, b.end_offset, b.at, b.slot, s.status, s.runid, s.modified
FROM stream_batch b LEFT JOIN job_status s ON s.project = b.project AND s.jobid = b.jobid AND s.dataid = b.dataid
WHERE b.project = :project AND b.jobid = :jobid
ORDER BY b.end_offset DESC LIMIT :limit OFFSET :offset
