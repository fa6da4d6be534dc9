-- What people ask of runs that are under way, and what child processes do for pages.

-- name: run_of_dataid
SELECT runid, owner, lease_until, lease_until < :now, again FROM job_status
WHERE project = :project AND jobid = :jobid AND dataid = :dataid AND status = 'RUNNING'

-- name: live_run
SELECT r.project, r.jobid, r.dataid, r.status,
       EXISTS (SELECT 1 FROM job_status s
               WHERE s.project = r.project AND s.jobid = r.jobid AND s.dataid = r.dataid AND s.runid = r.runid
                 AND s.status = 'RUNNING')
FROM run r WHERE r.runid = :runid

-- name: ask_abort
-- Only of a run that is live now: one that has ended stays as it ended.
INSERT INTO abort_request (runid, asked_by, asked_at)
SELECT s.runid, :asked_by, :now FROM job_status s
WHERE s.project = :project AND s.jobid = :jobid AND s.dataid = :dataid AND s.runid = :runid AND s.status = 'RUNNING'
ON CONFLICT (runid) DO UPDATE SET asked_by = abort_request.asked_by

-- name: forget_aborts
DELETE FROM abort_request WHERE NOT EXISTS (SELECT 1 FROM run r WHERE r.runid = abort_request.runid AND r.status = 'RUNNING')

-- name: aborts
SELECT runid, asked_by FROM abort_request

-- name: abort_of
SELECT asked_by, asked_at FROM abort_request WHERE runid = :runid

-- name: add_request
INSERT INTO request (kind, project, name, asked_by, asked_at) VALUES (:kind, :project, :name, :asked_by, :now)
RETURNING id

-- name: beat_request
UPDATE request SET beat_at = :now WHERE id = :id AND status = 'RUNNING'

-- name: end_request
UPDATE request SET status = :status, ended_at = :now, exit_code = :exit_code, output = :output
WHERE id = :id AND status = 'RUNNING'

-- name: request
-- One that was not heard of for long has failed, as far as anybody can tell; should it come to its end, that is told.
SELECT id, kind, project, name, CASE WHEN is_lost THEN 'FAILED' ELSE status END, asked_by, asked_at, ended_at,
       exit_code, CASE WHEN is_lost THEN 'the server that did it is gone; ask for it again' ELSE output END
FROM (SELECT r.*, r.status = 'RUNNING' AND coalesce(r.beat_at, r.asked_at) < :lost AS is_lost
      FROM request r WHERE r.id = :id) found

-- name: requests
SELECT id, kind, project, name,
       CASE WHEN status = 'RUNNING' AND coalesce(beat_at, asked_at) < :lost THEN 'FAILED' ELSE status END,
       asked_by, asked_at, ended_at, exit_code, ''
FROM request
WHERE (:project IS NULL OR project = :project) AND (:name IS NULL OR name = :name)
ORDER BY id DESC LIMIT :limit

-- name: listen_for_aborts
-- SQLite tells nobody: whoever runs something looks whether others wrote.
PRAGMA data_version

-- name: try_now
-- What was parked by a refusal, or waits for its next attempt, may be tried at once.
UPDATE job_status SET parked_until = NULL
WHERE project = :project AND jobid = :jobid AND dataid = :dataid AND status IN ('PENDING', 'RESUBMIT')
  AND parked_until IS NOT NULL
