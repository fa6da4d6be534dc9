-- What people ask of runs that are under way, and what child processes do for pages.

-- name: run_of_dataid
SELECT runid, owner, lease_until, lease_until < from_now(%(now)s), again FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s AND status = 'RUNNING'

-- name: live_run
SELECT r.project, r.jobid, r.dataid, r.status,
       EXISTS (SELECT 1 FROM job_status s
               WHERE s.project = r.project AND s.jobid = r.jobid AND s.dataid = r.dataid AND s.runid = r.runid
                 AND s.status = 'RUNNING')
FROM run r WHERE r.runid = %(runid)s

-- name: ask_abort
-- Only of a run that is live now: one that has ended stays as it ended.
INSERT INTO abort_request (runid, asked_by, asked_at)
SELECT s.runid, %(asked_by)s, from_now(%(now)s) FROM job_status s
WHERE s.project = %(project)s AND s.jobid = %(jobid)s AND s.dataid = %(dataid)s AND s.runid = %(runid)s AND s.status = 'RUNNING'
ON CONFLICT (runid) DO UPDATE SET asked_by = abort_request.asked_by

-- name: forget_aborts
DELETE FROM abort_request WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.runid = abort_request.runid AND r.status = 'RUNNING')

-- name: aborts
SELECT runid, asked_by FROM abort_request

-- name: abort_of
SELECT asked_by, asked_at FROM abort_request WHERE runid = %(runid)s

-- name: add_request
INSERT INTO request (kind, project, name, asked_by, asked_at) VALUES (%(kind)s, %(project)s, %(name)s, %(asked_by)s, from_now(%(now)s))
RETURNING id

-- name: beat_request
UPDATE request SET beat_at = from_now(%(now)s) WHERE id = %(id)s AND status = 'RUNNING'

-- name: end_request
UPDATE request SET status = %(status)s, ended_at = from_now(%(now)s), exit_code = %(exit_code)s, output = %(output)s
WHERE id = %(id)s AND status = 'RUNNING'

-- name: request
-- One that was not heard of for long has failed, as far as anybody can tell; should it come to its end, that is told.
SELECT id, kind, project, name, CASE WHEN is_lost THEN 'FAILED' ELSE status END, asked_by, asked_at, ended_at,
       exit_code, CASE WHEN is_lost THEN 'the server that did it is gone; ask for it again' ELSE output END
FROM (SELECT r.*, r.status = 'RUNNING' AND coalesce(r.beat_at, r.asked_at) < from_now(%(lost)s) AS is_lost
      FROM request r WHERE r.id = %(id)s) found

-- name: requests
SELECT id, kind, project, name,
       CASE WHEN status = 'RUNNING' AND coalesce(beat_at, asked_at) < from_now(%(lost)s) THEN 'FAILED' ELSE status END,
       asked_by, asked_at, ended_at, exit_code, ''
FROM request
WHERE (%(project)s::text IS NULL OR project = %(project)s) AND (%(name)s::text IS NULL OR name = %(name)s)
ORDER BY id DESC LIMIT %(limit)s

-- name: listen_for_aborts
LISTEN dataflow_abort

-- name: try_now
-- What was parked by a refusal, or waits for its next attempt, may be tried at once.
UPDATE job_status SET parked_until = NULL
WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s AND status IN ('PENDING', 'RESUBMIT')
  AND parked_until IS NOT NULL
