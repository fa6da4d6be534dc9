-- The claim-to-publish loop on SQLite. Every verb runs inside BEGIN IMMEDIATE, so a check and the change that
-- follows it see the same state.

-- name: get_store
SELECT store_id, environment, (SELECT max(version) FROM migration) FROM store

-- name: act_as
-- Every transaction of ours gets a token of its own with its signature; most do not use it.
UPDATE store SET actor = :actor, last_token = last_token + 1

-- name: stop_acting
UPDATE store SET actor = 'direct SQL'

-- name: this_token
SELECT last_token FROM store

-- name: next_token
UPDATE store SET last_token = last_token + 1

-- name: find_job
SELECT j.project, j.jobid, j.kind, j.script, j.definition, j.partitions, j.expected_upto, j.lease_seconds,
       j.timeout_seconds, j.retries_max, j.backoff_seconds, j.concurrency, p.root, p.home
FROM job j JOIN project p ON p.project = j.project
WHERE j.jobid = :jobid AND (:project IS NULL OR j.project = :project)

-- name: links_of
SELECT l.itemtype, l.map, d.project, d.datasetid, d.hostname, d.database, d.schemaname, d.tablename, d.username,
       d.encryptedpass, d.location, d.format, d.partitions, d.definition
FROM job_dataset l JOIN dataset d ON d.project = l.dataset_project AND d.datasetid = l.datasetid
WHERE l.project = :project AND l.jobid = :jobid
ORDER BY l.itemtype, l.position

-- name: expect
INSERT INTO job_status (project, jobid, dataid, waiting)
SELECT project, jobid, :dataid, same_inputs FROM job WHERE project = :project AND jobid = :jobid
ON CONFLICT (project, jobid, dataid) DO NOTHING

-- name: set_expected_upto
UPDATE job SET expected_upto = :dataid WHERE project = :project AND jobid = :jobid

-- name: parked_due
SELECT 1 FROM job_status WHERE parked_until IS NOT NULL AND parked_until <= :now LIMIT 1

-- name: unpark
UPDATE job_status
SET parked_until = NULL, status = CASE status WHEN 'FAILED' THEN 'RESUBMIT' ELSE status END, modified = :now
WHERE parked_until IS NOT NULL AND parked_until <= :now

-- name: next_claimable
-- A job whose outputs are being read is passed over: the next dataid is not held up by it.
SELECT s.dataid, s.status, s.waiting, s.attempts, s.parked_until, s.owner, s.lease_until
FROM job_status s
WHERE s.project = :project AND s.jobid = :jobid
  AND s.status IN ('PENDING', 'RESUBMIT') AND s.waiting <= 0 AND s.parked_until IS NULL
  AND (SELECT shared_waiting FROM job WHERE project = :project AND jobid = :jobid) <= 0
  AND NOT EXISTS (
      SELECT 1 FROM job_dataset o CROSS JOIN datastatus r
      WHERE o.project = :project AND o.jobid = :jobid AND o.itemtype = 'OUT'
        AND r.project = o.dataset_project AND r.datasetid = o.datasetid AND r.dataid = s.dataid
        AND r.locktype = 'IN' AND r.status = 'RUNNING')
ORDER BY s.sortkey, s.dataid LIMIT :limit OFFSET :offset

-- name: get_candidate
SELECT dataid, status, waiting, attempts, parked_until, owner, lease_until
FROM job_status WHERE project = :project AND jobid = :jobid AND dataid = :dataid

-- name: lowest_blocked
-- The first of three seeks: what waits, is parked or held; what would be claimable but for a shared input, a reader or a
-- limit; and what runs.
SELECT dataid, status, waiting, attempts, parked_until, owner, lease_until
FROM (SELECT * FROM (
          SELECT * FROM job_status
          WHERE project = :project AND jobid = :jobid
            AND (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
          ORDER BY sortkey, dataid LIMIT 1)
      UNION ALL
      SELECT * FROM (
          SELECT * FROM job_status
          WHERE project = :project AND jobid = :jobid
            AND status IN ('PENDING', 'RESUBMIT') AND waiting <= 0 AND parked_until IS NULL
          ORDER BY sortkey, dataid LIMIT 1)
      UNION ALL
      SELECT * FROM (
          SELECT * FROM job_status
          WHERE project = :project AND jobid = :jobid AND status = 'RUNNING' AND :count_running
          ORDER BY sortkey, dataid LIMIT 1))
ORDER BY sortkey, dataid LIMIT 1

-- name: lowest_failed
SELECT dataid, status, waiting, attempts, parked_until, owner, lease_until
FROM job_status
WHERE project = :project AND jobid = :jobid AND status = 'FAILED'
ORDER BY sortkey, dataid LIMIT 1

-- name: facts_of
-- The chunks of a dataid: what the five questions need of its inputs and outputs.
SELECT l.itemtype, l.dataset_project, l.datasetid, CASE l.map WHEN 'full' THEN 'full' ELSE :dataid END, c.status,
       c.version, c.location, c.fingerprint, c.validated_at,
       coalesce(nullif(c.jobid, ''),
                (SELECT p.jobid FROM job_dataset p
                 WHERE p.dataset_project = l.dataset_project AND p.datasetid = l.datasetid AND p.itemtype = 'OUT'),
                ''),
       c.modified,
       CASE l.itemtype WHEN 'OUT' THEN
           (SELECT group_concat(r.jobid || ' (run ' || r.reader || ')', ', ') FROM datastatus r
            WHERE r.project = l.dataset_project AND r.datasetid = l.datasetid AND r.dataid = :dataid
              AND r.locktype = 'IN' AND r.status = 'RUNNING') END
FROM job_dataset l LEFT JOIN datastatus c
    ON c.project = l.dataset_project AND c.datasetid = l.datasetid
       AND c.dataid = CASE l.map WHEN 'full' THEN 'full' ELSE :dataid END AND c.locktype = 'OUT' AND c.reader = ''
WHERE l.project = :project AND l.jobid = :jobid
ORDER BY l.position

-- name: running_of
SELECT count(*) FROM job_status WHERE project = :project AND jobid = :jobid AND status = 'RUNNING'

-- name: is_input_unchanged
SELECT 1 FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND dataid = :dataid AND locktype = 'OUT' AND reader = ''
  AND status = 'READY' AND version IS :version

-- name: is_output_read
SELECT 1 FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND dataid = :dataid AND locktype = 'IN' AND status = 'RUNNING'
LIMIT 1

-- name: take
UPDATE job_status
SET status = 'RUNNING', runid = :runid, owner = :owner, host = :host, lease_until = :lease_until,
    attempts = attempts + 1, again = 0, parked_until = NULL, modified = :now
WHERE project = :project AND jobid = :jobid AND dataid = :dataid
  AND status IN ('PENDING', 'RESUBMIT') AND waiting <= 0

-- name: attempts_of
SELECT attempts, deaths FROM job_status WHERE project = :project AND jobid = :jobid AND dataid = :dataid

-- name: insert_run
INSERT INTO run (runid, project, jobid, dataid, attempt, owner, host, pid, pid_started, guard_pid, guard_started,
                 claimed_at, answers, inputs)
VALUES (:runid, :project, :jobid, :dataid, :attempt, :owner, :host, :pid, :pid_started, :guard_pid, :guard_started,
        :now, :answers, :inputs)

-- name: lock_output
INSERT INTO datastatus (project, datasetid, dataid, locktype, jobid, status, modified)
VALUES (:project, :datasetid, :dataid, 'OUT', :jobid, 'RUNNING', :now)
ON CONFLICT (project, datasetid, dataid, locktype, reader)
DO UPDATE SET status = 'RUNNING', jobid = excluded.jobid, modified = excluded.modified

-- name: lock_input
INSERT INTO datastatus (project, datasetid, dataid, locktype, reader, jobid, status, modified)
VALUES (:project, :datasetid, :dataid, 'IN', :reader, :jobid, 'RUNNING', :now)

-- name: renew
UPDATE job_status SET lease_until = :lease_until
WHERE project = :project AND jobid = :jobid AND dataid = :dataid AND runid = :runid AND status = 'RUNNING'

-- name: save_tail
UPDATE run SET log_tail = :log_tail, log_path = :log_path WHERE runid = :runid

-- name: refuse
UPDATE job_status SET refusal = :refusal, refusals = refusals + 1, parked_until = :parked_until, modified = :now
WHERE project = :project AND jobid = :jobid AND dataid = :dataid AND status IN ('PENDING', 'RESUBMIT')

-- name: refusals_of
SELECT refusals, refusal FROM job_status WHERE project = :project AND jobid = :jobid AND dataid = :dataid

-- name: end_job
-- The token is in the WHERE: a run that outlived its lease must change nothing. (RETURNING would cost a table of its own.)
UPDATE job_status
SET status = :status, attempts = :attempts, deaths = :deaths, parked_until = :parked_until, again = 0, refusals = 0,
    owner = NULL, host = NULL, lease_until = NULL, modified = :now
WHERE project = :project AND jobid = :jobid AND dataid = :dataid AND runid = :runid AND status = 'RUNNING'
  AND again = :again

-- name: publish_chunk
UPDATE datastatus
SET status = :status, version = :runid, location = :location, fingerprint = :fingerprint,
    validated_at = :validated_at, modified = :now
WHERE project = :project AND datasetid = :datasetid AND dataid = :dataid AND locktype = 'OUT' AND reader = ''

-- name: insert_manifest
INSERT INTO data_manifest (project, datasetid, dataid, version, location, files, bytes, rows, schema, fingerprint,
                           validated_at, created_at)
VALUES (:project, :datasetid, :dataid, :version, :location, :files, :bytes, :rows, :schema, :fingerprint,
        :validated_at, :now)

-- name: fail_outputs
UPDATE datastatus SET status = 'FAILED', modified = :now
WHERE dataid = :dataid AND locktype = 'OUT' AND reader = '' AND status = 'RUNNING' AND (project, datasetid) IN
    (SELECT dataset_project, datasetid FROM job_dataset
     WHERE project = :project AND jobid = :jobid AND itemtype = 'OUT')

-- name: release_input
DELETE FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND dataid = :dataid AND locktype = 'IN' AND reader = :reader

-- name: end_run
UPDATE run
SET status = :status, ended_at = :now, exit_code = :exit_code, message = :message,
    log_path = coalesce(:log_path, log_path), log_tail = CASE :log_tail WHEN '' THEN log_tail ELSE :log_tail END
WHERE runid = :runid

-- name: run_status
SELECT status, message FROM run WHERE runid = :runid

-- name: inputs_read
SELECT inputs FROM run WHERE runid = :runid

-- name: suspects
-- Live claims whose lease has run out, and those of this host, which can be looked at.
SELECT s.runid, s.project, s.jobid, s.dataid, s.owner, s.host, s.lease_until < :now, r.pid, r.pid_started,
       r.guard_pid, r.guard_started
FROM job_status s JOIN run r ON r.runid = s.runid
WHERE s.status = 'RUNNING' AND (s.lease_until < :now OR s.host = :host)

-- name: lose
UPDATE job_status
SET status = 'RESUBMIT', again = 0, attempts = max(attempts - 1, 0), owner = NULL, host = NULL, lease_until = NULL,
    modified = :now
WHERE project = :project AND jobid = :jobid AND dataid = :dataid AND runid = :runid AND status = 'RUNNING'
  AND (lease_until < :now OR host = :host)

-- name: recount
-- Only where a counter is seen to be wrong, or a job's inputs changed: chunks that are READY now, counted.
UPDATE job_status
SET waiting = (SELECT count(*) FROM job_dataset l
               WHERE l.project = job_status.project AND l.jobid = job_status.jobid AND l.itemtype = 'IN'
                 AND l.map = 'same'
                 AND NOT EXISTS (SELECT 1 FROM datastatus c
                                 WHERE c.project = l.dataset_project AND c.datasetid = l.datasetid
                                   AND c.dataid = job_status.dataid AND c.locktype = 'OUT' AND c.reader = ''
                                   AND c.status = 'READY'))
WHERE project = :project AND jobid = :jobid AND (:dataid IS NULL OR dataid = :dataid)

-- name: recount_shared
UPDATE job
SET same_inputs = (SELECT count(*) FROM job_dataset l
                   WHERE l.project = job.project AND l.jobid = job.jobid AND l.itemtype = 'IN' AND l.map = 'same'),
    shared_waiting = (SELECT count(*) FROM job_dataset l
                      WHERE l.project = job.project AND l.jobid = job.jobid AND l.itemtype = 'IN' AND l.map = 'full'
                        AND NOT EXISTS (SELECT 1 FROM datastatus c
                                        WHERE c.project = l.dataset_project AND c.datasetid = l.datasetid
                                          AND c.dataid = 'full' AND c.locktype = 'OUT' AND c.reader = ''
                                          AND c.status = 'READY'))
WHERE project = :project AND jobid = :jobid

-- name: adopt_ready
-- Rows for dataids that arrived before the job was registered.
INSERT INTO job_status (project, jobid, dataid, waiting)
SELECT DISTINCT j.project, j.jobid, c.dataid, j.same_inputs
FROM job j JOIN job_dataset l ON l.project = j.project AND l.jobid = j.jobid AND l.itemtype = 'IN' AND l.map = 'same'
     JOIN datastatus c ON c.project = l.dataset_project AND c.datasetid = l.datasetid AND c.locktype = 'OUT'
                          AND c.status = 'READY'
WHERE j.project = :project AND j.jobid = :jobid
ON CONFLICT (project, jobid, dataid) DO NOTHING

-- name: freeze_chunks
-- The write lock of BEGIN IMMEDIATE already keeps every chunk where it is.
SELECT 1
