-- Workers, limits and pauses on SQLite.

-- name: register_worker
INSERT INTO worker (name, host, pid, pid_started, slots, jobs, started_at, seen_at)
VALUES (:name, :host, :pid, :pid_started, :slots, :jobs, :now, :now)
ON CONFLICT (name) DO UPDATE
SET host = excluded.host, pid = excluded.pid, pid_started = excluded.pid_started, slots = excluded.slots,
    jobs = excluded.jobs, started_at = excluded.started_at, seen_at = excluded.seen_at, running = 0, is_idle = 0

-- name: forget_gone
-- Those that nobody has seen for long, and never will.
DELETE FROM worker WHERE seen_at < :before

-- name: wake_gone
-- A worker that is gone need not be told of anything.
UPDATE worker SET is_idle = 0 WHERE is_idle = 1 AND seen_at < :before

-- name: beat_worker
UPDATE worker SET seen_at = :now, running = :running, is_idle = :is_idle WHERE name = :name

-- name: forget_worker
DELETE FROM worker WHERE name = :name

-- name: workers
SELECT name, host, pid, slots, running, is_idle, jobs, started_at, seen_at, seen_at < :before
FROM worker ORDER BY name

-- name: seconds_until_due
SELECT (julianday(min(due)) - julianday(:now)) * 86400.0 FROM (
    SELECT min(parked_until) AS due FROM job_status WHERE parked_until IS NOT NULL
    UNION ALL
    SELECT min(paused_until) FROM job WHERE paused_by IS NOT NULL AND paused_until > :now
    UNION ALL
    SELECT paused_until FROM store WHERE paused_by IS NOT NULL AND paused_until > :now)

-- name: give_reason
UPDATE store SET reason = :reason WHERE one = 1

-- name: scale_job
UPDATE job SET scaled_to = :max_runs WHERE project = :project AND jobid = :jobid

-- name: brake_job
UPDATE job SET braked_to = :max_runs
WHERE project = :project AND jobid = :jobid AND braked_to IS NOT :max_runs AND (:whatever OR braked_to IS :was)

-- name: scale_connection
INSERT INTO connection_limit (name, scaled_to) VALUES (:name, :max_runs)
ON CONFLICT (name) DO UPDATE SET scaled_to = excluded.scaled_to

-- name: forget_connection
DELETE FROM connection_limit WHERE name = :name AND max_runs IS NULL

-- name: claims_under_way
-- None: whoever claims has the whole file.
SELECT 1 WHERE 0

-- name: pause_job
UPDATE job SET paused_by = :paused_by, paused_at = :now, paused_until = :until
WHERE project = :project AND jobid = :jobid

-- name: resume_job
UPDATE job SET paused_by = NULL, paused_at = NULL, paused_until = NULL
WHERE project = :project AND jobid = :jobid AND paused_by IS NOT NULL

-- name: pause_all
UPDATE store SET paused_by = :paused_by, paused_at = :now, paused_until = :until WHERE one = 1

-- name: resume_all
UPDATE store SET paused_by = NULL, paused_at = NULL, paused_until = NULL WHERE one = 1 AND paused_by IS NOT NULL

-- name: job_limits
SELECT j.project, j.jobid, j.concurrency, j.scaled_to, j.braked_to, j.max_runs,
       (SELECT count(*) FROM job_status s INDEXED BY job_status_running
        WHERE s.project = j.project AND s.jobid = j.jobid AND s.status = 'RUNNING'),
       CASE WHEN j.paused_until IS NULL OR j.paused_until > :now THEN j.paused_by END, j.paused_until
FROM job j
WHERE (:project IS NULL OR j.project = :project) AND (:jobid IS NULL OR j.jobid = :jobid)
ORDER BY j.project, j.jobid

-- name: connection_limits
-- Every connection that a job uses, or that has a limit.
SELECT n.name, c.declared, c.scaled_to, c.max_runs,
       (SELECT count(*) FROM job_status s
        WHERE s.status = 'RUNNING' AND EXISTS (SELECT 1 FROM job_connection u
                                               WHERE u.project = s.project AND u.jobid = s.jobid AND u.name = n.name))
FROM (SELECT name FROM job_connection UNION SELECT name FROM connection_limit) n
     LEFT JOIN connection_limit c ON c.name = n.name
ORDER BY n.name

-- name: all_paused
SELECT paused_by, paused_until FROM store
WHERE paused_by IS NOT NULL AND (paused_until IS NULL OR paused_until > :now)

-- name: limit_changes
SELECT at, project, jobid, connection, what, was, becomes, reason, actor FROM limit_history
WHERE (:jobid IS NULL OR (project = :project AND jobid = :jobid))
  AND (:connection IS NULL OR connection = :connection)
ORDER BY id DESC LIMIT :limit
