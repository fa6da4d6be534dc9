-- Schedules on PostgreSQL.

-- name: all_schedules
SELECT project, jobid, clock, declared, set_by, set_at, reason FROM schedule
WHERE %(project)s::text IS NULL OR project = %(project)s ORDER BY project, jobid

-- name: clocked_jobs
SELECT project, jobid FROM job WHERE clocked = 1 AND (%(project)s::text IS NULL OR project = %(project)s)
ORDER BY project, jobid
