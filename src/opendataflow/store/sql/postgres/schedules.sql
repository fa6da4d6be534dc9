-- Schedules on PostgreSQL.

-- name: all_schedules
SELECT project, jobid, clock, declared, set_by, set_at, reason FROM schedule
WHERE %(project)s::text IS NULL OR project = %(project)s ORDER BY project, jobid

-- name: latest_of_form
-- The latest slot whose name is as long as the names of the clock are: dates and minutes do not sort as one.
SELECT dataid FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND length(dataid) = %(length)s
ORDER BY dataid DESC LIMIT 1
