-- The claim-to-publish loop on SQLite. Every verb runs inside BEGIN IMMEDIATE, so a check and the change that
-- follows it see the same state.

-- name: get_store
SELECT store_id, environment, (SELECT max(version) FROM migration) FROM store

-- name: act_as
-- Every transaction of ours gets a token of its own with its signature; most do not use it. (There is but one row; where
-- SQLite knows that, it needs no journal for the statement.)
UPDATE store SET actor = :actor, last_token = last_token + 1 WHERE one = 1

-- name: stop_acting
UPDATE store SET actor = 'direct SQL' WHERE one = 1

-- name: this_token
SELECT last_token FROM store

-- name: next_token
UPDATE store SET last_token = last_token + 1 WHERE one = 1

-- name: find_job
SELECT j.project, j.jobid, j.kind, j.script, j.definition, j.partitions, j.expected_upto, j.lease_seconds,
       j.timeout_seconds, j.retries_max, j.backoff_seconds, j.concurrency, j.strict, j.catchup, p.project, p.root,
       p.home, p.root_below_home, p.home_below_store, p.is_marked,
       EXISTS (SELECT 1 FROM git_project g WHERE g.project = p.project),
       EXISTS (SELECT 1 FROM data_manifest m WHERE m.project = p.project)
FROM job j JOIN project p ON p.project = j.project
WHERE j.jobid = :jobid AND (:project IS NULL OR j.project = :project)

-- name: places
SELECT project, root, home, root_below_home, home_below_store, is_marked,
       EXISTS (SELECT 1 FROM git_project g WHERE g.project = p.project)
FROM project p WHERE :project IS NULL OR project = :project ORDER BY project

-- name: has_published
SELECT EXISTS (SELECT 1 FROM data_manifest WHERE project = :project)

-- name: links_of
SELECT l.itemtype, l.map, d.project, d.datasetid, d.hostname, d.database, d.schemaname, d.tablename, d.username,
       d.encryptedpass, d.location, d.format, d.partitions, d.definition, d.clock
FROM job_dataset l JOIN dataset d ON d.project = l.dataset_project AND d.datasetid = l.datasetid
WHERE l.project = :project AND l.jobid = :jobid
ORDER BY l.itemtype, l.position

-- name: expect
INSERT INTO job_status (project, jobid, dataid, waiting, unmapped)
SELECT project, jobid, :dataid, same_inputs, mapped_inputs > 0 FROM job WHERE project = :project AND jobid = :jobid
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
SELECT s.dataid, s.status, s.waiting, s.attempts, s.deaths, s.parked_until, s.owner, s.lease_until
FROM job_status s INDEXED BY job_status_claimable
WHERE s.project = :project AND s.jobid = :jobid
  AND s.status IN ('PENDING', 'RESUBMIT') AND s.waiting <= 0 AND s.parked_until IS NULL
  AND (SELECT shared_waiting FROM job_gate
       WHERE project = :project AND jobid = :jobid AND room + :ending > 0
         AND (paused_by IS NULL OR paused_until <= :now) AND (all_paused_by IS NULL OR all_paused_until <= :now)) <= 0
  AND NOT EXISTS (
      SELECT 1 FROM job_dataset o CROSS JOIN datastatus r
      WHERE o.project = :project AND o.jobid = :jobid AND o.itemtype = 'OUT'
        AND r.project = o.dataset_project AND r.datasetid = o.datasetid AND r.dataid = s.dataid
        AND r.locktype = 'IN' AND r.status = 'RUNNING')
ORDER BY s.sortkey, s.dataid LIMIT :limit OFFSET :offset

-- name: get_candidate
SELECT dataid, status, waiting, attempts, deaths, parked_until, owner, lease_until
FROM job_status WHERE project = :project AND jobid = :jobid AND dataid = :dataid

-- name: lowest_blocked
-- The first of three seeks: what waits, is parked or held; what would be claimable but for a shared input, a reader or a
-- limit; and what runs.
SELECT dataid, status, waiting, attempts, deaths, parked_until, owner, lease_until
FROM (SELECT * FROM (
          SELECT * FROM job_status INDEXED BY job_status_blocked
          WHERE project = :project AND jobid = :jobid
            AND (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
          ORDER BY sortkey, dataid LIMIT 1)
      UNION ALL
      SELECT * FROM (
          SELECT * FROM job_status INDEXED BY job_status_claimable
          WHERE project = :project AND jobid = :jobid
            AND status IN ('PENDING', 'RESUBMIT') AND waiting <= 0 AND parked_until IS NULL
          ORDER BY sortkey, dataid LIMIT 1)
      UNION ALL
      SELECT * FROM (
          SELECT * FROM job_status INDEXED BY job_status_running
          WHERE project = :project AND jobid = :jobid AND status = 'RUNNING' AND :count_running
          ORDER BY sortkey, dataid LIMIT 1))
ORDER BY sortkey, dataid LIMIT 1

-- name: lowest_failed
SELECT dataid, status, waiting, attempts, deaths, parked_until, owner, lease_until
FROM job_status INDEXED BY job_status_failed
WHERE project = :project AND jobid = :jobid AND status = 'FAILED'
ORDER BY sortkey, dataid LIMIT 1

-- name: facts_of
-- The chunks of a dataid: what the five questions need of its inputs and outputs.
SELECT l.itemtype, l.dataset_project, l.datasetid, CASE l.map WHEN 'full' THEN 'full' ELSE :dataid END, c.status,
       c.version, c.location, c.fingerprint, c.validated_at, c.problem,
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
WHERE l.project = :project AND l.jobid = :jobid AND l.map IN ('same', 'full')
ORDER BY l.position

-- name: mapped_facts_of
-- The same for inputs by offset, window, rollup or all; PostgreSQL has both in one.
SELECT 'IN', e.dataset_project, e.datasetid, e.dataid, c.status, c.version, c.location, c.fingerprint, c.validated_at,
       c.problem,
       coalesce(nullif(c.jobid, ''),
                (SELECT p.jobid FROM job_dataset p
                 WHERE p.dataset_project = e.dataset_project AND p.datasetid = e.datasetid AND p.itemtype = 'OUT'),
                ''),
       c.modified, NULL
FROM job_input e LEFT JOIN datastatus c
    ON c.project = e.dataset_project AND c.datasetid = e.datasetid AND c.dataid = e.dataid AND c.locktype = 'OUT'
       AND c.reader = ''
WHERE e.project = :project AND e.jobid = :jobid AND e.job_dataid = :dataid
ORDER BY e.position

-- name: room_of
SELECT room FROM job_gate WHERE project = :project AND jobid = :jobid

-- name: gates_of
-- What stands between a job and its next run, whichever dataid: pauses, and limits with what counts for them.
SELECT 'pause', j.jobid, j.paused_by, j.paused_until, 0, 0 FROM job j
WHERE j.project = :project AND j.jobid = :jobid AND j.paused_by IS NOT NULL
  AND (j.paused_until IS NULL OR j.paused_until > :now)
UNION ALL
SELECT 'pause', '', t.paused_by, t.paused_until, 0, 0 FROM store t
WHERE t.paused_by IS NOT NULL AND (t.paused_until IS NULL OR t.paused_until > :now)
UNION ALL
SELECT 'job', j.jobid,
       (SELECT h.what || 'd by ' || h.actor || CASE h.reason WHEN '' THEN '' ELSE ': ' || h.reason END
        FROM limit_history h
        WHERE h.project = j.project AND h.jobid = j.jobid AND h.connection = ''
          AND h.what = CASE j.max_runs WHEN coalesce(j.scaled_to, j.concurrency) THEN
                                CASE WHEN j.scaled_to IS NOT NULL THEN 'scale' END ELSE 'brake' END
        ORDER BY h.id DESC LIMIT 1),
       NULL, j.max_runs,
       (SELECT count(*) FROM job_status s INDEXED BY job_status_running
        WHERE s.project = j.project AND s.jobid = j.jobid AND s.status = 'RUNNING')
FROM job j WHERE j.project = :project AND j.jobid = :jobid AND j.max_runs IS NOT NULL
UNION ALL
SELECT 'connection', c.name,
       (SELECT h.what || 'd by ' || h.actor || CASE h.reason WHEN '' THEN '' ELSE ': ' || h.reason END
        FROM limit_history h
        WHERE h.project = '' AND h.jobid = '' AND h.connection = c.name AND h.what = 'scale' AND c.scaled_to IS NOT NULL
        ORDER BY h.id DESC LIMIT 1),
       NULL, c.max_runs,
       (SELECT count(*) FROM job_status s
        WHERE s.status = 'RUNNING' AND EXISTS (SELECT 1 FROM job_connection u
                                               WHERE u.project = s.project AND u.jobid = s.jobid AND u.name = c.name))
FROM connection_limit c
WHERE c.max_runs IS NOT NULL
  AND EXISTS (SELECT 1 FROM job_connection u
              WHERE u.project = :project AND u.jobid = :jobid AND u.name = c.name)

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
  AND status IN ('PENDING', 'RESUBMIT') AND (waiting <= 0 OR :forced) AND attempts = :attempts AND deaths = :deaths
  AND (:forced OR EXISTS (SELECT 1 FROM job_gate
                          WHERE project = :project AND jobid = :jobid AND room > 0
                            AND (paused_by IS NULL OR paused_until <= :now)
                            AND (all_paused_by IS NULL OR all_paused_until <= :now)))

-- name: insert_run
INSERT INTO run (runid, project, jobid, dataid, attempt, forced, owner, host, pid, pid_started, guard_pid, guard_started,
                 claimed_at, answers, inputs)
VALUES (:runid, :project, :jobid, :dataid, :attempt, :forced, :owner, :host, :pid, :pid_started, :guard_pid, :guard_started,
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
    validated_at = :validated_at, problem = NULL, modified = :now
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
    log_path = coalesce(:log_path, log_path), log_tail = CASE :log_tail WHEN '' THEN log_tail ELSE :log_tail END,
    code = :code, checks = :checks
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
SET waiting = (SELECT w.waiting FROM counted_waiting w
               WHERE w.project = job_status.project AND w.jobid = job_status.jobid AND w.dataid = job_status.dataid)
WHERE project = :project AND jobid = :jobid AND (:dataid IS NULL OR dataid = :dataid)

-- name: recount_shared
UPDATE job SET (same_inputs, mapped_inputs, shared_waiting, clocked) =
    (SELECT c.same_inputs, c.mapped_inputs, c.shared_waiting, c.clocked FROM link_counts c
     WHERE c.project = job.project AND c.jobid = job.jobid)
WHERE project = :project AND jobid = :jobid

-- name: adopt_ready
-- Rows for dataids that arrived before the job was registered.
INSERT INTO job_status (project, jobid, dataid, waiting, unmapped)
SELECT DISTINCT j.project, j.jobid, c.dataid, j.same_inputs, j.mapped_inputs > 0
FROM job j JOIN job_dataset l ON l.project = j.project AND l.jobid = j.jobid AND l.itemtype = 'IN' AND l.map = 'same'
     JOIN datastatus c ON c.project = l.dataset_project AND c.datasetid = l.datasetid AND c.locktype = 'OUT'
                          AND c.status = 'READY'
     JOIN dataset d ON d.project = c.project AND d.datasetid = c.datasetid
WHERE j.project = :project AND j.jobid = :jobid
  -- Of a clock only the current slot: a new job does not start with the past.
  AND (j.clocked = 0 AND d.clock IS NULL OR d.clock IS NOT NULL AND c.dataid = (SELECT max(k.dataid) FROM datastatus k
                                      WHERE k.project = c.project AND k.datasetid = c.datasetid AND k.locktype = 'OUT'))
ON CONFLICT (project, jobid, dataid) DO NOTHING

-- name: lowest_open
-- The lowest dataid of a job that is not COMPLETE: four seeks, however many are.
SELECT dataid FROM (
    SELECT * FROM (
        SELECT dataid, sortkey FROM job_status INDEXED BY job_status_blocked
        WHERE project = :project AND jobid = :jobid
          AND (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
        ORDER BY sortkey, dataid LIMIT 1)
    UNION ALL
    SELECT * FROM (
        SELECT dataid, sortkey FROM job_status INDEXED BY job_status_claimable
        WHERE project = :project AND jobid = :jobid
          AND status IN ('PENDING', 'RESUBMIT') AND waiting <= 0 AND parked_until IS NULL
        ORDER BY sortkey, dataid LIMIT 1)
    UNION ALL
    SELECT * FROM (
        SELECT dataid, sortkey FROM job_status INDEXED BY job_status_failed
        WHERE project = :project AND jobid = :jobid AND status = 'FAILED' ORDER BY sortkey, dataid LIMIT 1)
    UNION ALL
    SELECT * FROM (
        SELECT dataid, sortkey FROM job_status INDEXED BY job_status_running
        WHERE project = :project AND jobid = :jobid AND status = 'RUNNING' ORDER BY sortkey, dataid LIMIT 1))
ORDER BY sortkey, dataid LIMIT 1

-- name: unmapped
SELECT dataid FROM job_status INDEXED BY job_status_unmapped WHERE project = :project AND jobid = :jobid AND unmapped = 1 ORDER BY sortkey LIMIT :limit

-- name: unmap
-- Its inputs are other ones now: what it reads is found again before it runs.
UPDATE job_status
SET unmapped = (SELECT mapped_inputs > 0 FROM job WHERE project = :project AND jobid = :jobid)
WHERE project = :project AND jobid = :jobid

-- name: forget_inputs
DELETE FROM job_input
WHERE project = :project AND jobid = :jobid AND (:dataid IS NULL OR job_dataid = :dataid)

-- name: add_input
INSERT INTO job_input (dataset_project, datasetid, dataid, project, jobid, job_dataid, position)
VALUES (:dataset_project, :datasetid, :dataid, :project, :jobid, :job_dataid, :position)

-- name: mapped
UPDATE job_status SET unmapped = 0 WHERE project = :project AND jobid = :jobid AND dataid = :dataid

-- name: known_dataids
SELECT dataid FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND locktype = 'OUT' AND reader = ''

-- name: highest_open
SELECT dataid FROM (
    SELECT * FROM (
        SELECT dataid, sortkey FROM job_status INDEXED BY job_status_blocked
        WHERE project = :project AND jobid = :jobid
          AND (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
        ORDER BY sortkey DESC, dataid DESC LIMIT 1) a
    UNION ALL
    SELECT * FROM (
        SELECT dataid, sortkey FROM job_status INDEXED BY job_status_claimable
        WHERE project = :project AND jobid = :jobid
          AND status IN ('PENDING', 'RESUBMIT') AND waiting <= 0 AND parked_until IS NULL
        ORDER BY sortkey DESC, dataid DESC LIMIT 1) b) x
ORDER BY sortkey DESC, dataid DESC LIMIT 1

-- name: count_inputs
SELECT count(*) FROM job_input WHERE project = :project AND jobid = :jobid AND job_dataid = :dataid

-- name: latest_slot
SELECT max(dataid) FROM datastatus WHERE project = :project AND datasetid = :datasetid AND locktype = 'OUT'

-- name: open_slot
-- However many runners see the slot begin, it is opened once; and not by one that knows only the clock before this one.
INSERT INTO datastatus (project, datasetid, dataid, locktype, status, modified)
SELECT project, datasetid, :dataid, 'OUT', 'READY', :now FROM dataset
WHERE project = :project AND datasetid = :datasetid AND clock = :clock
ON CONFLICT (project, datasetid, dataid, locktype, reader) DO NOTHING

-- name: readers_of_clock
SELECT project, jobid FROM job_dataset
WHERE dataset_project = :project AND datasetid = :datasetid AND itemtype = 'IN' AND map = 'same'

-- name: skip_missed
-- catchup: latest. What was never begun is left out; what ran, failed or is held stays.
DELETE FROM job_status
WHERE project = :project AND jobid = :jobid AND status = 'PENDING' AND runid IS NULL AND dataid < :dataid
  AND status IN ('PENDING', 'RESUBMIT')

-- name: freeze_history
SELECT 1

-- name: tally_behind
-- How many changes are not in the tally yet.
SELECT coalesce((SELECT max(id) FROM history), 0) - (SELECT n FROM tally WHERE kind = '')

-- name: fold_tally
INSERT INTO tally (kind, project, name, status, n)
SELECT kind, project, name, status, sum(n) FROM (
    SELECT kind, project, name, old_status AS status, -1 AS n FROM history
    WHERE id > (SELECT n FROM tally WHERE kind = '') AND old_status IS NOT NULL AND NOT (kind = 'job' AND old_status = 'PENDING')
    UNION ALL
    SELECT kind, project, name, new_status, 1 FROM history
    WHERE id > (SELECT n FROM tally WHERE kind = '') AND new_status IS NOT NULL AND NOT (kind = 'job' AND new_status = 'PENDING')) m
WHERE true GROUP BY kind, project, name, status HAVING sum(n) <> 0
ON CONFLICT (kind, project, name, status) DO UPDATE SET n = tally.n + excluded.n

-- name: tally_upto
UPDATE tally SET n = coalesce((SELECT max(id) FROM history), 0) WHERE kind = ''

-- name: tally_counts
-- The tally, and what changed since. PENDING dataids are not in the history: they are counted where they wait.
SELECT kind, project, name, status, sum(n) FROM (
    SELECT kind, project, name, status, n FROM tally WHERE kind <> ''
    UNION ALL
    SELECT kind, project, name, old_status AS status, -1 AS n FROM history
    WHERE id > (SELECT n FROM tally WHERE kind = '') AND old_status IS NOT NULL AND NOT (kind = 'job' AND old_status = 'PENDING')
    UNION ALL
    SELECT kind, project, name, new_status, 1 FROM history
    WHERE id > (SELECT n FROM tally WHERE kind = '') AND new_status IS NOT NULL AND NOT (kind = 'job' AND new_status = 'PENDING')
    UNION ALL
    SELECT 'job', project, jobid, 'PENDING', count(*) FROM job_status
    WHERE status IN ('PENDING', 'RESUBMIT') AND waiting <= 0 AND parked_until IS NULL AND status = 'PENDING'
    GROUP BY project, jobid
    UNION ALL
    SELECT 'job', project, jobid, 'PENDING', count(*) FROM job_status
    WHERE (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
      AND status = 'PENDING'
    GROUP BY project, jobid
    UNION ALL
    SELECT 'job', project, jobid, 'EXPIRED', count(*) FROM job_status
    WHERE status = 'RUNNING' AND lease_until < :now GROUP BY project, jobid) m
WHERE :project IS NULL OR project = :project
GROUP BY kind, project, name, status HAVING sum(n) > 0

-- name: empty_tally
DELETE FROM tally WHERE kind <> ''

-- name: count_all
-- The slow way, once after a repair.
INSERT INTO tally (kind, project, name, status, n)
SELECT 'job', project, jobid, status, count(*) FROM job_status WHERE status <> 'PENDING' GROUP BY project, jobid, status
UNION ALL
SELECT 'chunk', project, datasetid, status, count(*) FROM datastatus WHERE locktype = 'OUT'
GROUP BY project, datasetid, status

-- name: freeze_chunks
-- The write lock of BEGIN IMMEDIATE already keeps every chunk where it is.
SELECT 1
