-- Schedules on SQLite.

-- name: hold_project
-- The write lock of BEGIN IMMEDIATE already keeps other changes of schedules, and `apply`, out.
SELECT 1

-- name: schedules_of
SELECT jobid, clock, declared, set_by, set_at, reason FROM schedule
WHERE project = :project AND (:jobid IS NULL OR jobid = :jobid) ORDER BY jobid

-- name: all_schedules
SELECT project, jobid, clock, declared, set_by, set_at, reason FROM schedule
WHERE :project IS NULL OR project = :project ORDER BY project, jobid

-- name: put_schedule
INSERT INTO schedule (project, jobid, clock, declared, set_by, set_at, reason)
VALUES (:project, :jobid, :clock, :declared, :set_by, :now, :reason)
ON CONFLICT (project, jobid) DO UPDATE
SET clock = excluded.clock, declared = excluded.declared, set_by = excluded.set_by, set_at = excluded.set_at,
    reason = excluded.reason

-- name: put_declared
UPDATE schedule SET declared = :declared WHERE project = :project AND jobid = :jobid AND declared <> :declared

-- name: delete_schedule
DELETE FROM schedule WHERE project = :project AND jobid = :jobid

-- name: record_schedule
-- Beside the changes of the job's limits.
INSERT INTO limit_history (project, jobid, what, was, becomes, reason, actor)
SELECT :project, :jobid, 'schedule', :was, :becomes, :reason, actor FROM store

-- name: read_whole_by
-- Who reads an output of the job as one chunk.
SELECT DISTINCT r.jobid FROM job_dataset o
     JOIN job_dataset r ON r.dataset_project = o.dataset_project AND r.datasetid = o.datasetid AND r.itemtype = 'IN'
                           AND r.map = 'full'
WHERE o.project = :project AND o.jobid = :jobid AND o.itemtype = 'OUT' ORDER BY r.jobid

-- name: keep_slots
-- What the job has begun keeps its slot under the clock that it goes by from now on; before the job is linked to it.
INSERT INTO datastatus (project, datasetid, dataid, locktype, status, modified)
SELECT :project, :datasetid, s.dataid, 'OUT', 'READY', :now FROM job_status s
WHERE s.project = :project AND s.jobid = :jobid
ON CONFLICT (project, datasetid, dataid, locktype, reader) DO NOTHING

-- name: forget_untouched
-- What was never begun.
DELETE FROM job_status WHERE project = :project AND jobid = :jobid AND status = 'PENDING' AND runid IS NULL

-- name: latest_of_form
-- The latest slot whose name is as long as the names of the clock are: dates and minutes do not sort as one.
SELECT dataid FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND locktype = 'OUT' AND length(dataid) = :length
ORDER BY dataid DESC LIMIT 1
