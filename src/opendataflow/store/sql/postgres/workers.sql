-- Workers, limits and pauses on PostgreSQL.

-- name: listen
LISTEN dataflow

-- name: renew_many
-- Many leases and the tails of their logs in one round trip; what is returned is still held.
WITH kept AS (
    UPDATE job_status s SET lease_until = from_now(b.lease)
    FROM jsonb_to_recordset(%(beats)s) AS b (project text, jobid text, dataid text, runid bigint, lease double precision)
    WHERE s.project = b.project AND s.jobid = b.jobid AND s.dataid = b.dataid AND s.runid = b.runid
      AND s.status = 'RUNNING'
    RETURNING s.runid),
tails AS (
    UPDATE run r SET log_tail = b.log_tail, log_path = b.log_path
    FROM kept JOIN jsonb_to_recordset(%(beats)s) AS b (runid bigint, log_path text, log_tail text) ON b.runid = kept.runid
    WHERE r.runid = b.runid AND b.log_tail IS NOT NULL)
SELECT runid FROM kept

-- name: register_worker
INSERT INTO worker (name, host, pid, pid_started, slots, jobs, started_at, seen_at)
VALUES (%(name)s, %(host)s, %(pid)s, %(pid_started)s, %(slots)s, %(jobs)s, from_now(%(now)s), from_now(%(now)s))
ON CONFLICT (name) DO UPDATE
SET host = excluded.host, pid = excluded.pid, pid_started = excluded.pid_started, slots = excluded.slots,
    jobs = excluded.jobs, started_at = excluded.started_at, seen_at = excluded.seen_at, running = 0, is_idle = 0

-- name: forget_gone
-- Those that nobody has seen for long, and never will.
DELETE FROM worker WHERE seen_at < from_now(%(before)s)

-- name: wake_gone
-- A worker that is gone need not be told of anything.
UPDATE worker SET is_idle = 0 WHERE is_idle = 1 AND seen_at < from_now(%(before)s)

-- name: beat_worker
UPDATE worker SET seen_at = from_now(%(now)s), running = %(running)s, is_idle = %(is_idle)s WHERE name = %(name)s

-- name: forget_worker
DELETE FROM worker WHERE name = %(name)s

-- name: workers
SELECT name, host, pid, slots, running, is_idle, jobs, started_at, seen_at, (seen_at < from_now(%(before)s))::integer
FROM worker ORDER BY name

-- name: seconds_until_due
SELECT extract(epoch FROM least(
    (SELECT min(parked_until) FROM job_status WHERE parked_until IS NOT NULL),
    (SELECT min(paused_until) FROM job WHERE paused_by IS NOT NULL AND paused_until > from_now(%(now)s)),
    (SELECT paused_until FROM store WHERE paused_by IS NOT NULL AND paused_until > from_now(%(now)s)))
    - from_now(%(now)s))::double precision

-- name: give_reason
SELECT set_config('dataflow.reason', %(reason)s, true)

-- name: scale_job
UPDATE job SET scaled_to = %(max_runs)s WHERE project = %(project)s AND jobid = %(jobid)s

-- name: brake_job
UPDATE job SET braked_to = %(max_runs)s
WHERE project = %(project)s AND jobid = %(jobid)s AND braked_to IS DISTINCT FROM %(max_runs)s
  AND (%(whatever)s OR braked_to IS NOT DISTINCT FROM %(was)s)

-- name: scale_connection
INSERT INTO connection_limit (name, scaled_to) VALUES (%(name)s, %(max_runs)s)
ON CONFLICT (name) DO UPDATE SET scaled_to = excluded.scaled_to

-- name: forget_connection
DELETE FROM connection_limit WHERE name = %(name)s AND max_runs IS NULL

-- name: claims_under_way
-- Transactions that may have read the limits before they were changed.
SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = 'job_status'::regclass AND mode IN ('RowShareLock', 'RowExclusiveLock') AND granted
  AND pid <> pg_backend_pid()

-- name: pause_job
UPDATE job SET paused_by = %(paused_by)s, paused_at = from_now(%(now)s), paused_until = from_now(%(until)s)
WHERE project = %(project)s AND jobid = %(jobid)s

-- name: resume_job
UPDATE job SET paused_by = NULL, paused_at = NULL, paused_until = NULL
WHERE project = %(project)s AND jobid = %(jobid)s AND paused_by IS NOT NULL

-- name: pause_all
UPDATE store SET paused_by = %(paused_by)s, paused_at = from_now(%(now)s), paused_until = from_now(%(until)s) WHERE one = 1

-- name: resume_all
UPDATE store SET paused_by = NULL, paused_at = NULL, paused_until = NULL WHERE one = 1 AND paused_by IS NOT NULL

-- name: job_limits
SELECT j.project, j.jobid, j.concurrency, j.scaled_to, j.braked_to, j.max_runs,
       (SELECT count(*) FROM job_status s
        WHERE s.project = j.project AND s.jobid = j.jobid AND s.status = 'RUNNING'),
       CASE WHEN j.paused_until IS NULL OR j.paused_until > from_now(%(now)s) THEN j.paused_by END, j.paused_until
FROM job j
WHERE (%(project)s::text IS NULL OR j.project = %(project)s) AND (%(jobid)s::text IS NULL OR j.jobid = %(jobid)s)
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
WHERE paused_by IS NOT NULL AND (paused_until IS NULL OR paused_until > from_now(%(now)s))

-- name: limit_changes
SELECT at, project, jobid, connection, what, was, becomes, reason, actor FROM limit_history
WHERE (%(jobid)s::text IS NULL OR (project = %(project)s AND jobid = %(jobid)s))
  AND (%(connection)s::text IS NULL OR connection = %(connection)s)
ORDER BY id DESC LIMIT %(limit)s
