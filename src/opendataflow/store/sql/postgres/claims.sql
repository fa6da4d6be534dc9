-- The claim-to-publish loop on PostgreSQL. Leases and times are the database's clock: a moment is given as seconds from
-- now. Claim and finish are functions (one round trip each); so are the facts that the five questions need.

-- name: get_store
SELECT store_id, environment, (SELECT max(version) FROM migration) FROM store

-- name: act_as
SELECT set_config('dataflow.actor', %(actor)s, true)

-- name: next_token
SELECT nextval('run_token')

-- name: find_job
SELECT j.project, j.jobid, j.kind, j.script, j.definition, j.partitions, j.expected_upto, j.lease_seconds,
       j.timeout_seconds, j.retries_max, j.backoff_seconds, j.concurrency, j.strict, j.catchup, p.project, p.root,
       p.home, p.root_below_home, p.home_below_store, p.is_marked,
       EXISTS (SELECT 1 FROM git_project g WHERE g.project = p.project),
       EXISTS (SELECT 1 FROM data_manifest m WHERE m.project = p.project)
FROM job j JOIN project p ON p.project = j.project
WHERE j.jobid = %(jobid)s AND (%(project)s::text IS NULL OR j.project = %(project)s)

-- name: places
SELECT project, root, home, root_below_home, home_below_store, is_marked,
       EXISTS (SELECT 1 FROM git_project g WHERE g.project = p.project)
FROM project p WHERE %(project)s::text IS NULL OR project = %(project)s ORDER BY project

-- name: has_published
SELECT EXISTS (SELECT 1 FROM data_manifest WHERE project = %(project)s)

-- name: links_of
SELECT l.itemtype, l.map, d.project, d.datasetid, d.hostname, d.database, d.schemaname, d.tablename, d.username,
       d.encryptedpass, d.location, d.format, d.partitions, d.definition, d.clock
FROM job_dataset l JOIN dataset d ON d.project = l.dataset_project AND d.datasetid = l.datasetid
WHERE l.project = %(project)s AND l.jobid = %(jobid)s
ORDER BY l.itemtype, l.position

-- name: expect
INSERT INTO job_status (project, jobid, dataid, waiting, unmapped)
SELECT project, jobid, %(dataid)s, same_inputs, (mapped_inputs > 0)::integer FROM job WHERE project = %(project)s AND jobid = %(jobid)s
ON CONFLICT (project, jobid, dataid) DO NOTHING

-- name: set_expected_upto
UPDATE job SET expected_upto = %(dataid)s WHERE project = %(project)s AND jobid = %(jobid)s

-- name: parked_due
SELECT 1 FROM job_status WHERE parked_until IS NOT NULL AND parked_until <= from_now(%(now)s) LIMIT 1

-- name: unpark
UPDATE job_status
SET parked_until = NULL, status = CASE status WHEN 'FAILED' THEN 'RESUBMIT' ELSE status END, modified = from_now(%(now)s)
WHERE parked_until IS NOT NULL AND parked_until <= from_now(%(now)s)

-- name: next_claimable
-- A job whose outputs are being read is passed over: the next dataid is not held up by it.
SELECT s.dataid, s.status, s.waiting, s.attempts, s.deaths, s.parked_until, s.owner, s.lease_until, f.facts
FROM (SELECT * FROM job_status s
      WHERE s.project = %(project)s AND s.jobid = %(jobid)s
        AND s.status IN ('PENDING', 'RESUBMIT') AND s.waiting <= 0 AND s.parked_until IS NULL
        AND (SELECT shared_waiting FROM job_gate
             WHERE project = %(project)s AND jobid = %(jobid)s AND room + %(ending)s > 0
               AND (paused_by IS NULL OR paused_until <= statement_timestamp())
               AND (all_paused_by IS NULL OR all_paused_until <= statement_timestamp())) <= 0
        AND NOT EXISTS (
            SELECT 1 FROM job_dataset o JOIN datastatus r
                ON r.project = o.dataset_project AND r.datasetid = o.datasetid AND r.dataid = s.dataid
                   AND r.locktype = 'IN' AND r.status = 'RUNNING'
            WHERE o.project = %(project)s AND o.jobid = %(jobid)s AND o.itemtype = 'OUT')
      ORDER BY s.sortkey, s.dataid LIMIT %(limit)s OFFSET %(offset)s) s
     CROSS JOIN LATERAL chunk_facts(s.project, s.jobid, s.dataid) f
ORDER BY s.sortkey, s.dataid

-- name: get_candidate
SELECT s.dataid, s.status, s.waiting, s.attempts, s.deaths, s.parked_until, s.owner, s.lease_until, f.facts
FROM job_status s CROSS JOIN LATERAL chunk_facts(s.project, s.jobid, s.dataid) f
WHERE s.project = %(project)s AND s.jobid = %(jobid)s AND s.dataid = %(dataid)s

-- name: lowest_blocked
-- The first of three seeks: what waits, is parked or held; what would be claimable but for a shared input, a reader or a
-- limit; and what runs.
SELECT s.dataid, s.status, s.waiting, s.attempts, s.deaths, s.parked_until, s.owner, s.lease_until, f.facts
FROM (SELECT * FROM (
          (SELECT * FROM job_status
           WHERE project = %(project)s AND jobid = %(jobid)s
             AND (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
           ORDER BY sortkey, dataid LIMIT 1)
          UNION ALL
          (SELECT * FROM job_status
           WHERE project = %(project)s AND jobid = %(jobid)s
             AND status IN ('PENDING', 'RESUBMIT') AND waiting <= 0 AND parked_until IS NULL
           ORDER BY sortkey, dataid LIMIT 1)
          UNION ALL
          (SELECT * FROM job_status
           WHERE project = %(project)s AND jobid = %(jobid)s AND status = 'RUNNING' AND %(count_running)s
           ORDER BY sortkey, dataid LIMIT 1)) x
      ORDER BY sortkey, dataid LIMIT 1) s
     CROSS JOIN LATERAL chunk_facts(s.project, s.jobid, s.dataid) f

-- name: lowest_failed
SELECT s.dataid, s.status, s.waiting, s.attempts, s.deaths, s.parked_until, s.owner, s.lease_until, f.facts
FROM (SELECT * FROM job_status
      WHERE project = %(project)s AND jobid = %(jobid)s AND status = 'FAILED'
      ORDER BY sortkey, dataid LIMIT 1) s
     CROSS JOIN LATERAL chunk_facts(s.project, s.jobid, s.dataid) f

-- name: claimable_of_all
-- The same for many jobs, of each no more than its limits leave room for.
SELECT w.project, w.jobid, CASE g.strict WHEN 1 THEN lowest_open(w.project, w.jobid) END,
       s.dataid, s.status, s.waiting, s.attempts, s.deaths, s.parked_until, s.owner, s.lease_until, f.facts
FROM jsonb_to_recordset(%(jobs)s) AS w (project text, jobid text, ending integer)
     JOIN LATERAL (SELECT strict, room FROM job_gate
                   WHERE project = w.project AND jobid = w.jobid AND shared_waiting <= 0
                     AND (paused_by IS NULL OR paused_until <= statement_timestamp())
                     AND (all_paused_by IS NULL OR all_paused_until <= statement_timestamp())) g ON true
     CROSS JOIN LATERAL (
         SELECT * FROM job_status s
         WHERE s.project = w.project AND s.jobid = w.jobid
           AND s.status IN ('PENDING', 'RESUBMIT') AND s.waiting <= 0 AND s.parked_until IS NULL
           AND NOT EXISTS (
               SELECT 1 FROM job_dataset o JOIN datastatus r
                   ON r.project = o.dataset_project AND r.datasetid = o.datasetid AND r.dataid = s.dataid
                      AND r.locktype = 'IN' AND r.status = 'RUNNING'
               WHERE o.project = w.project AND o.jobid = w.jobid AND o.itemtype = 'OUT')
         ORDER BY s.sortkey, s.dataid LIMIT greatest(least(%(limit)s::integer, g.room + w.ending), 0)) s
     CROSS JOIN LATERAL chunk_facts(s.project, s.jobid, s.dataid) f
ORDER BY w.project, w.jobid, s.sortkey, s.dataid

-- name: gates_of
-- What stands between a job and its next run, whichever dataid: pauses, and limits with what counts for them.
SELECT 'pause', j.jobid, j.paused_by, j.paused_until, 0, 0 FROM job j
WHERE j.project = %(project)s AND j.jobid = %(jobid)s AND j.paused_by IS NOT NULL
  AND (j.paused_until IS NULL OR j.paused_until > from_now(%(now)s))
UNION ALL
SELECT 'pause', '', t.paused_by, t.paused_until, 0, 0 FROM store t
WHERE t.paused_by IS NOT NULL AND (t.paused_until IS NULL OR t.paused_until > from_now(%(now)s))
UNION ALL
SELECT 'job', j.jobid,
       (SELECT h.what || 'd by ' || h.actor || CASE h.reason WHEN '' THEN '' ELSE ': ' || h.reason END
        FROM limit_history h
        WHERE h.project = j.project AND h.jobid = j.jobid AND h.connection = ''
          AND h.what = CASE j.max_runs WHEN coalesce(j.scaled_to, j.concurrency) THEN
                                CASE WHEN j.scaled_to IS NOT NULL THEN 'scale' END ELSE 'brake' END
        ORDER BY h.id DESC LIMIT 1),
       NULL, j.max_runs,
       (SELECT count(*) FROM job_status s
        WHERE s.project = j.project AND s.jobid = j.jobid AND s.status = 'RUNNING')
FROM job j WHERE j.project = %(project)s AND j.jobid = %(jobid)s AND j.max_runs IS NOT NULL
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
              WHERE u.project = %(project)s AND u.jobid = %(jobid)s AND u.name = c.name OFFSET 0)

-- name: claim
SELECT * FROM claim_run(%s, %s)

-- name: finish
SELECT * FROM finish_run(%s)

-- name: finish_and_claim
SELECT * FROM finish_and_claim(%s, %s, %s)

-- name: finish_and_claim_many
SELECT * FROM finish_and_claim_many(%s, %s)

-- name: insert_manifest
INSERT INTO data_manifest (project, datasetid, dataid, version, location, files, bytes, rows, schema, fingerprint,
                           validated_at, created_at)
VALUES (%(project)s, %(datasetid)s, %(dataid)s, %(version)s, %(location)s, %(files)s, %(bytes)s, %(rows)s, %(schema)s,
        %(fingerprint)s, from_now(%(validated_at)s), from_now(%(now)s))

-- name: renew
UPDATE job_status SET lease_until = from_now(%(lease_until)s)
WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s AND runid = %(runid)s AND status = 'RUNNING'

-- name: save_tail
UPDATE run SET log_tail = %(log_tail)s, log_path = %(log_path)s WHERE runid = %(runid)s

-- name: refuse
UPDATE job_status
SET refusal = %(refusal)s::json, refusals = refusals + 1, parked_until = from_now(%(parked_until)s),
    modified = from_now(%(now)s)
WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s AND status IN ('PENDING', 'RESUBMIT')

-- name: refusals_of
SELECT refusals, refusal::text FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s

-- name: release_input
DELETE FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND dataid = %(dataid)s AND locktype = 'IN'
  AND reader = %(reader)s

-- name: inputs_read
SELECT inputs FROM run WHERE runid = %(runid)s

-- name: end_run
UPDATE run
SET status = %(status)s, ended_at = from_now(%(now)s), exit_code = %(exit_code)s::integer, message = %(message)s,
    log_path = coalesce(%(log_path)s, log_path),
    log_tail = CASE %(log_tail)s::text WHEN '' THEN log_tail ELSE %(log_tail)s END
WHERE runid = %(runid)s

-- name: suspects
-- Live claims whose lease has run out, and those of this host, which can be looked at.
SELECT s.runid, s.project, s.jobid, s.dataid, s.owner, s.host, s.lease_until < from_now(%(now)s), r.pid, r.pid_started,
       r.guard_pid, r.guard_started
FROM job_status s JOIN run r ON r.runid = s.runid
WHERE s.status = 'RUNNING' AND (s.lease_until < from_now(%(now)s) OR s.host = %(host)s)

-- name: lose
UPDATE job_status
SET status = 'RESUBMIT', again = 0, attempts = greatest(attempts - 1, 0), owner = NULL, host = NULL, lease_until = NULL,
    modified = from_now(%(now)s)
WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s AND runid = %(runid)s AND status = 'RUNNING'
  AND (lease_until < from_now(%(now)s) OR host = %(host)s)

-- name: recount
-- Only where a counter is seen to be wrong, or a job's inputs changed: chunks that are READY now, counted.
UPDATE job_status s SET waiting = w.waiting
FROM counted_waiting w
WHERE s.project = %(project)s AND s.jobid = %(jobid)s AND (%(dataid)s::text IS NULL OR s.dataid = %(dataid)s)
  AND w.project = s.project AND w.jobid = s.jobid AND w.dataid = s.dataid

-- name: recount_shared
UPDATE job j SET (same_inputs, mapped_inputs, shared_waiting, clocked) =
    (SELECT c.same_inputs, c.mapped_inputs, c.shared_waiting, c.clocked FROM link_counts c
     WHERE c.project = j.project AND c.jobid = j.jobid)
WHERE j.project = %(project)s AND j.jobid = %(jobid)s

-- name: adopt_ready
-- Rows for dataids that arrived before the job was registered.
INSERT INTO job_status (project, jobid, dataid, waiting, unmapped)
SELECT DISTINCT j.project, j.jobid, c.dataid, j.same_inputs, (j.mapped_inputs > 0)::integer
FROM job j JOIN job_dataset l ON l.project = j.project AND l.jobid = j.jobid AND l.itemtype = 'IN' AND l.map = 'same'
     JOIN datastatus c ON c.project = l.dataset_project AND c.datasetid = l.datasetid AND c.locktype = 'OUT'
                          AND c.status = 'READY'
     JOIN dataset d ON d.project = c.project AND d.datasetid = c.datasetid
WHERE j.project = %(project)s AND j.jobid = %(jobid)s
  -- Of a clock only the current slot: a new job does not start with the past.
  AND (j.clocked = 0 AND d.clock IS NULL OR d.clock IS NOT NULL AND c.dataid = (SELECT max(k.dataid) FROM datastatus k
                                      WHERE k.project = c.project AND k.datasetid = c.datasetid AND k.locktype = 'OUT'))
ON CONFLICT (project, jobid, dataid) DO NOTHING

-- name: lowest_open
SELECT lowest_open(%(project)s, %(jobid)s)

-- name: unmapped
SELECT dataid FROM job_status WHERE project = %(project)s AND jobid = %(jobid)s AND unmapped = 1
ORDER BY sortkey LIMIT %(limit)s

-- name: unmap
-- Its inputs are other ones now: what it reads is found again before it runs.
UPDATE job_status
SET unmapped = (SELECT (mapped_inputs > 0)::integer FROM job WHERE project = %(project)s AND jobid = %(jobid)s)
WHERE project = %(project)s AND jobid = %(jobid)s

-- name: forget_inputs
DELETE FROM job_input
WHERE project = %(project)s AND jobid = %(jobid)s AND (%(dataid)s::text IS NULL OR job_dataid = %(dataid)s)

-- name: add_input
INSERT INTO job_input (dataset_project, datasetid, dataid, project, jobid, job_dataid, position)
VALUES (%(dataset_project)s, %(datasetid)s, %(dataid)s, %(project)s, %(jobid)s, %(job_dataid)s, %(position)s)

-- name: mapped
UPDATE job_status SET unmapped = 0 WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s

-- name: known_dataids
SELECT dataid FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND reader = ''

-- name: highest_open
SELECT dataid FROM (
    SELECT * FROM (
        SELECT dataid, sortkey FROM job_status
        WHERE project = %(project)s AND jobid = %(jobid)s
          AND (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
        ORDER BY sortkey DESC, dataid DESC LIMIT 1) a
    UNION ALL
    SELECT * FROM (
        SELECT dataid, sortkey FROM job_status
        WHERE project = %(project)s AND jobid = %(jobid)s
          AND status IN ('PENDING', 'RESUBMIT') AND waiting <= 0 AND parked_until IS NULL
        ORDER BY sortkey DESC, dataid DESC LIMIT 1) b) x
ORDER BY sortkey DESC, dataid DESC LIMIT 1

-- name: count_inputs
SELECT count(*) FROM job_input WHERE project = %(project)s AND jobid = %(jobid)s AND job_dataid = %(dataid)s

-- name: latest_slot
SELECT max(dataid) FROM datastatus WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT'

-- name: open_slot
-- However many runners see the slot begin, it is opened once; and not by one that knows only the clock before this one.
INSERT INTO datastatus (project, datasetid, dataid, locktype, status, modified)
SELECT project, datasetid, %(dataid)s, 'OUT', 'READY', from_now(%(now)s) FROM dataset
WHERE project = %(project)s AND datasetid = %(datasetid)s AND clock = %(clock)s
ON CONFLICT (project, datasetid, dataid, locktype, reader) DO NOTHING

-- name: readers_of_clock
SELECT project, jobid FROM job_dataset
WHERE dataset_project = %(project)s AND datasetid = %(datasetid)s AND itemtype = 'IN' AND map = 'same'

-- name: skip_missed
-- catchup: latest. What was never begun is left out; what ran, failed or is held stays.
DELETE FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s AND status = 'PENDING' AND runid IS NULL AND dataid < %(dataid)s
  AND status IN ('PENDING', 'RESUBMIT')

-- name: freeze_history
LOCK TABLE history IN SHARE ROW EXCLUSIVE MODE

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
    WHERE status = 'RUNNING' AND lease_until < from_now(%(now)s) GROUP BY project, jobid) m
WHERE %(project)s::text IS NULL OR project = %(project)s
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
-- Counting is exact only while no chunk moves; SQLite's write lock does this by itself.
LOCK TABLE datastatus IN SHARE ROW EXCLUSIVE MODE
