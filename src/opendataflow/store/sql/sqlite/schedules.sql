-- Schedules on SQLite.

-- name: all_schedules
SELECT project, jobid, clock, declared, set_by, set_at, reason FROM schedule
WHERE :project IS NULL OR project = :project ORDER BY project, jobid

-- name: clocked_jobs
SELECT project, jobid FROM job WHERE clocked = 1 AND (:project IS NULL OR project = :project) ORDER BY project, jobid
