-- Schedules on PostgreSQL.

-- name: hold_project
-- Other changes of schedules, and `apply`, wait.
SELECT 1 FROM project WHERE project = %(project)s FOR UPDATE

-- name: schedules_of
SELECT jobid, clock, declared, set_by, set_at, reason FROM schedule
WHERE project = %(project)s AND (%(jobid)s::text IS NULL OR jobid = %(jobid)s) ORDER BY jobid

-- name: all_schedules
SELECT project, jobid, clock, declared, set_by, set_at, reason FROM schedule
WHERE %(project)s::text IS NULL OR project = %(project)s ORDER BY project, jobid

-- name: put_schedule
INSERT INTO schedule (project, jobid, clock, declared, set_by, set_at, reason)
VALUES (%(project)s, %(jobid)s, %(clock)s, %(declared)s, %(set_by)s, from_now(%(now)s), %(reason)s)
ON CONFLICT (project, jobid) DO UPDATE
SET clock = excluded.clock, declared = excluded.declared, set_by = excluded.set_by, set_at = excluded.set_at,
    reason = excluded.reason

-- name: put_declared
UPDATE schedule SET declared = %(declared)s WHERE project = %(project)s AND jobid = %(jobid)s AND declared <> %(declared)s

-- name: delete_schedule
DELETE FROM schedule WHERE project = %(project)s AND jobid = %(jobid)s

-- name: record_schedule
-- Beside the changes of the job's limits; every worker is told.
SELECT record_limit(%(project)s, %(jobid)s, '', 'schedule', %(was)s, %(becomes)s, %(reason)s)

-- name: read_whole_by
-- Who reads an output of the job as one chunk.
SELECT DISTINCT r.jobid FROM job_dataset o
     JOIN job_dataset r ON r.dataset_project = o.dataset_project AND r.datasetid = o.datasetid AND r.itemtype = 'IN'
                           AND r.map = 'full'
WHERE o.project = %(project)s AND o.jobid = %(jobid)s AND o.itemtype = 'OUT' ORDER BY r.jobid

-- name: keep_slots
-- What the job has begun keeps its slot under the clock that it goes by from now on; before the job is linked to it.
INSERT INTO datastatus (project, datasetid, dataid, locktype, status, modified)
SELECT %(project)s, %(datasetid)s, s.dataid, 'OUT', 'READY', from_now(%(now)s) FROM job_status s
WHERE s.project = %(project)s AND s.jobid = %(jobid)s
ON CONFLICT (project, datasetid, dataid, locktype, reader) DO NOTHING

-- name: forget_untouched
-- What was never begun.
DELETE FROM job_status WHERE project = %(project)s AND jobid = %(jobid)s AND status = 'PENDING' AND runid IS NULL

-- name: latest_of_form
-- The latest slot whose name is as long as the names of the clock are: dates and minutes do not sort as one.
SELECT dataid FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND length(dataid) = %(length)s
ORDER BY dataid DESC LIMIT 1
