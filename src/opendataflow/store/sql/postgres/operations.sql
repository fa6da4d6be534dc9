-- What a person does to a running system, on PostgreSQL.

-- name: projects
SELECT project FROM project ORDER BY project

-- name: row_of
SELECT status, again, owner FROM job_status WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s

-- Runs ------------------------------------------------------------------------------------------------------------
-- name: list_runs
-- Numbers grow with time, so the newest are read from the end; how far down is the caller's choice.
SELECT runid, project, jobid, dataid, attempt, forced, status, owner, claimed_at, ended_at, exit_code, message, log_path
FROM run
WHERE runid < %(before)s AND runid >= %(lowest)s AND (%(project)s::text IS NULL OR project = %(project)s)
  AND (%(jobid)s::text IS NULL OR jobid = %(jobid)s)
  AND (%(dataid)s::text IS NULL OR dataid = %(dataid)s) AND (%(status)s::text IS NULL OR status = %(status)s)
  AND (%(since)s::timestamptz IS NULL OR claimed_at >= %(since)s::timestamptz)
ORDER BY runid DESC LIMIT %(limit)s

-- name: run_page
SELECT min(runid), count(*) FROM (
    SELECT runid FROM run WHERE runid < %(before)s AND runid >= %(lowest)s ORDER BY runid DESC LIMIT %(limit)s) p

-- name: runs_of_dataid
-- By the history, and by the row itself where the history was cleaned.
SELECT runid, project, jobid, dataid, attempt, forced, status, owner, claimed_at, ended_at, exit_code, message, log_path
FROM run
WHERE runid IN (SELECT h.runid FROM history h
                WHERE h.project = %(project)s AND h.kind = 'job' AND h.name = %(jobid)s AND h.dataid = %(dataid)s
                UNION ALL
                SELECT s.runid FROM job_status s
                WHERE s.project = %(project)s AND s.jobid = %(jobid)s AND s.dataid = %(dataid)s)
  AND runid < %(before)s AND (%(status)s::text IS NULL OR status = %(status)s) AND (%(since)s::timestamptz IS NULL OR claimed_at >= %(since)s::timestamptz)
ORDER BY runid DESC LIMIT %(limit)s

-- name: run_bounds
SELECT (SELECT min(runid) FROM run), (SELECT max(runid) FROM run)

-- name: run_from
SELECT runid, claimed_at < %(moment)s::timestamptz FROM run WHERE runid >= %(number)s ORDER BY runid LIMIT 1

-- name: history_bounds
SELECT (SELECT min(id) FROM history), (SELECT max(id) FROM history)

-- name: history_from
SELECT id, at < %(moment)s::timestamptz FROM history WHERE id >= %(number)s ORDER BY id LIMIT 1

-- name: watch_run
SELECT r.status, r.log_path, r.log_tail, r.exit_code, r.message, s.lease_until, s.lease_until < from_now(%(now)s)
FROM run r LEFT JOIN job_status s
    ON s.project = r.project AND s.jobid = r.jobid AND s.dataid = r.dataid AND s.runid = r.runid
WHERE r.runid = %(runid)s

-- Resubmitting ----------------------------------------------------------------------------------------------------
-- name: failed_rows
-- With a window: those of which some run ended badly in it, also if a later one did too.
SELECT s.project, s.jobid, s.dataid FROM job_status s
WHERE s.status = 'FAILED' AND (%(project)s::text IS NULL OR s.project = %(project)s) AND (%(jobid)s::text IS NULL OR s.jobid = %(jobid)s)
  AND (%(since)s::timestamptz IS NULL OR EXISTS (
      SELECT 1 FROM (SELECT s.runid
                     UNION ALL
                     SELECT h.runid FROM history h
                     WHERE h.dataid = s.dataid AND h.name = s.jobid AND h.kind = 'job' AND h.project = s.project) k
           JOIN run r ON r.runid = k.runid
      WHERE r.status IN ('FAILED', 'LOST', 'RESUBMIT')
        AND r.ended_at >= %(since)s::timestamptz AND r.ended_at <= %(until)s::timestamptz))
ORDER BY s.project, s.jobid, s.sortkey, s.dataid

-- name: ran_between
SELECT DISTINCT project, jobid, dataid FROM run
WHERE runid >= %(lowest)s AND runid < %(before)s AND (%(project)s::text IS NULL OR project = %(project)s)
  AND (%(jobid)s::text IS NULL OR jobid = %(jobid)s) AND claimed_at <= %(until)s::timestamptz AND (ended_at IS NULL OR ended_at >= %(since)s::timestamptz)
ORDER BY project, jobid, dataid

-- name: resubmit
UPDATE job_status SET status = 'RESUBMIT', modified = from_now(%(now)s)
WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s

-- name: have_readers_follow
-- When its outputs are published: a quiet cascade, see migration 0004.
UPDATE datastatus SET readers_follow = 1
WHERE dataid = %(dataid)s AND locktype = 'OUT' AND reader = '' AND (project, datasetid) IN
    (SELECT o.dataset_project, o.datasetid FROM job_dataset o
     WHERE o.project = %(project)s AND o.jobid = %(jobid)s AND o.itemtype = 'OUT'
       AND EXISTS (SELECT 1 FROM job_dataset i
                   WHERE i.dataset_project = o.dataset_project AND i.datasetid = o.datasetid AND i.itemtype = 'IN'))

-- name: outage_runs
-- Where a dataid stands now is what a run made of it that was under way in the window.
SELECT s.project, s.jobid, s.dataid, r.status
FROM run r JOIN job_status s ON s.project = r.project AND s.jobid = r.jobid AND s.dataid = r.dataid AND s.runid = r.runid
WHERE r.runid >= %(lowest)s AND r.runid < %(before)s AND r.project = %(project)s
  AND (%(jobid)s::text IS NULL OR r.jobid = %(jobid)s)
  AND r.claimed_at <= %(until)s::timestamptz AND (r.ended_at IS NULL OR r.ended_at >= %(since)s::timestamptz)
ORDER BY s.project, s.jobid, s.sortkey, s.dataid

-- name: outage_blocked
-- Refused in the window or since, and still waiting for its next try.
SELECT project, jobid, dataid FROM job_status
WHERE parked_until IS NOT NULL AND status IN ('PENDING', 'RESUBMIT') AND modified >= %(since)s::timestamptz
  AND project = %(project)s AND (%(jobid)s::text IS NULL OR jobid = %(jobid)s)
ORDER BY project, jobid, sortkey, dataid

-- name: outage_published
-- Chunks that turned READY in the window and are so still, in that version; a clock's slots do not count.
SELECT DISTINCT h.project, h.name, h.dataid, p.project, p.jobid
FROM history h
     JOIN dataset d ON d.project = h.project AND d.datasetid = h.name
     JOIN datastatus c ON c.project = h.project AND c.datasetid = h.name AND c.dataid = h.dataid
                          AND c.locktype = 'OUT' AND c.reader = ''
     LEFT JOIN job_dataset p ON p.dataset_project = h.project AND p.datasetid = h.name AND p.itemtype = 'OUT'
WHERE h.id >= %(lowest)s AND h.id < %(before)s AND h.at >= %(since)s::timestamptz AND h.at <= %(until)s::timestamptz
  AND h.project = %(project)s AND h.kind = 'chunk' AND h.new_status = 'READY' AND h.old_status IS DISTINCT FROM 'READY'
  AND d.clock IS NULL AND c.status = 'READY' AND c.version IS NOT DISTINCT FROM h.runid
ORDER BY h.project, h.name, h.dataid

-- name: readers_of_chunk
SELECT project, jobid, dataid, status, runid, content_read FROM chunk_reader
WHERE dataset_project = %(project)s AND datasetid = %(datasetid)s AND chunk_dataid = %(dataid)s
ORDER BY project, jobid, dataid

-- name: made_of
-- What the run read that made the published version.
SELECT r.inputs FROM datastatus c JOIN run r ON r.runid = c.version
WHERE c.project = %(project)s AND c.datasetid = %(datasetid)s AND c.dataid = %(dataid)s
  AND c.locktype = 'OUT' AND c.reader = ''

-- name: chunk_stands
SELECT c.status, c.version, m.rows
FROM datastatus c LEFT JOIN data_manifest m ON m.project = c.project AND m.datasetid = c.datasetid AND m.dataid = c.dataid
                                               AND m.version = c.version
WHERE c.project = %(project)s AND c.datasetid = %(datasetid)s AND c.dataid = %(dataid)s
  AND c.locktype = 'OUT' AND c.reader = ''

-- name: job_stands
SELECT status, runid FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s

-- name: readers_of_job
SELECT l.project, l.jobid, l.map, l.dataset_project, l.datasetid
FROM job_dataset o JOIN job_dataset l ON l.dataset_project = o.dataset_project AND l.datasetid = o.datasetid
WHERE o.project = %(project)s AND o.jobid = %(jobid)s AND o.itemtype = 'OUT' AND l.itemtype = 'IN'
ORDER BY l.project, l.jobid, l.dataset_project, l.datasetid

-- name: begun_rows
SELECT dataid FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s AND status IN ('RUNNING', 'COMPLETE', 'FAILED', 'RESUBMIT', 'HOLD')
ORDER BY sortkey, dataid

-- name: mapped_readers
SELECT job_dataid FROM job_input
WHERE dataset_project = %(dataset_project)s AND datasetid = %(datasetid)s AND dataid = %(dataid)s
  AND project = %(project)s AND jobid = %(jobid)s
ORDER BY job_dataid

-- Holding ---------------------------------------------------------------------------------------------------------
-- name: set_status
UPDATE job_status SET status = %(status)s, parked_until = NULL, modified = from_now(%(now)s)
WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s AND status = %(before)s

-- name: pause_job
-- A pause with an end becomes one without.
UPDATE job SET paused_by = %(paused_by)s, paused_at = from_now(%(now)s), paused_until = NULL
WHERE project = %(project)s AND jobid = %(jobid)s AND (paused_by IS NULL OR paused_until IS NOT NULL)

-- name: unpause_job
UPDATE job SET paused_by = NULL, paused_at = NULL, paused_until = NULL
WHERE project = %(project)s AND jobid = %(jobid)s AND paused_by IS NOT NULL

-- name: pause_of
SELECT paused_by, paused_at FROM job WHERE project = %(project)s AND jobid = %(jobid)s

-- name: count_held
SELECT count(*) FROM job_status WHERE project = %(project)s AND jobid = %(jobid)s AND status = 'HOLD'

-- name: live_readers
SELECT r.datasetid, r.jobid, r.reader FROM job_dataset o CROSS JOIN datastatus r
WHERE o.project = %(project)s AND o.jobid = %(jobid)s AND o.itemtype = 'OUT'
  AND r.project = o.dataset_project AND r.datasetid = o.datasetid AND r.dataid = %(dataid)s
  AND r.locktype = 'IN' AND r.status = 'RUNNING'

-- Removing records ------------------------------------------------------------------------------------------------
-- name: run_record
SELECT runid, project, jobid, dataid, status, owner, log_path FROM run WHERE runid = %(runid)s

-- name: delete_run
DELETE FROM run WHERE runid = %(runid)s AND status <> 'RUNNING'

-- name: delete_manifests
-- Only what no chunk points at: the current version keeps its manifest.
DELETE FROM data_manifest
WHERE (project, datasetid) IN (SELECT project, datasetid FROM dataset) AND dataid = %(dataid)s AND version = %(runid)s
  AND NOT EXISTS (SELECT 1 FROM datastatus c
                  WHERE c.project = data_manifest.project AND c.datasetid = data_manifest.datasetid
                    AND c.dataid = data_manifest.dataid AND c.locktype = 'OUT' AND c.version = data_manifest.version)

-- name: newest_run
SELECT coalesce(max(runid), 0) FROM run

-- name: newest_history
SELECT coalesce(max(id), 0) FROM history

-- name: folded_history
SELECT n FROM tally WHERE kind = ''

-- name: run_batch
SELECT max(runid) FROM (SELECT runid FROM run WHERE runid > %(after)s AND runid <= %(upto)s ORDER BY runid LIMIT %(limit)s) b

-- name: history_batch
SELECT max(id) FROM (SELECT id FROM history WHERE id > %(after)s AND id <= %(upto)s ORDER BY id LIMIT %(limit)s) b

-- name: count_old_runs
SELECT count(*) FROM run
WHERE runid > %(after)s AND runid <= %(upto)s AND project = %(project)s AND (%(jobid)s::text IS NULL OR jobid = %(jobid)s)
  AND status <> 'RUNNING' AND (%(before)s::timestamptz IS NULL OR ended_at < %(before)s::timestamptz)
  AND NOT EXISTS (SELECT 1 FROM job_status s
                  WHERE s.project = run.project AND s.jobid = run.jobid AND s.dataid = run.dataid
                    AND s.status = 'FAILED' AND s.runid = run.runid)

-- name: delete_old_runs
-- The run that a FAILED dataid stands on stays: it says why.
DELETE FROM run
WHERE runid > %(after)s AND runid <= %(upto)s AND project = %(project)s AND (%(jobid)s::text IS NULL OR jobid = %(jobid)s)
  AND status <> 'RUNNING' AND (%(before)s::timestamptz IS NULL OR ended_at < %(before)s::timestamptz)
  AND NOT EXISTS (SELECT 1 FROM job_status s
                  WHERE s.project = run.project AND s.jobid = run.jobid AND s.dataid = run.dataid
                    AND s.status = 'FAILED' AND s.runid = run.runid)

-- name: count_old_history
SELECT count(*) FROM history
WHERE id > %(after)s AND id <= %(upto)s AND project = %(project)s AND (%(before)s::timestamptz IS NULL OR at < %(before)s::timestamptz)
  AND (%(jobid)s::text IS NULL OR (kind = 'job' AND name = %(jobid)s)
       OR (kind = 'chunk' AND name IN (SELECT o.datasetid FROM job_dataset o
                                       WHERE o.project = %(project)s AND o.jobid = %(jobid)s AND o.itemtype = 'OUT')))
  AND NOT EXISTS (SELECT 1 FROM run r
                  WHERE r.runid = history.runid
                    AND (r.status = 'RUNNING' OR r.ended_at >= %(before)s::timestamptz
                         OR EXISTS (SELECT 1 FROM job_status s
                                    WHERE s.project = r.project AND s.jobid = r.jobid AND s.dataid = r.dataid
                                      AND s.status = 'FAILED' AND s.runid = r.runid)))

-- name: delete_old_history
-- What belongs to a run that stays, stays with it: the way from a dataid to its runs is the history.
DELETE FROM history
WHERE id > %(after)s AND id <= %(upto)s AND project = %(project)s AND (%(before)s::timestamptz IS NULL OR at < %(before)s::timestamptz)
  AND (%(jobid)s::text IS NULL OR (kind = 'job' AND name = %(jobid)s)
       OR (kind = 'chunk' AND name IN (SELECT o.datasetid FROM job_dataset o
                                       WHERE o.project = %(project)s AND o.jobid = %(jobid)s AND o.itemtype = 'OUT')))
  AND NOT EXISTS (SELECT 1 FROM run r
                  WHERE r.runid = history.runid
                    AND (r.status = 'RUNNING' OR r.ended_at >= %(before)s::timestamptz
                         OR EXISTS (SELECT 1 FROM job_status s
                                    WHERE s.project = r.project AND s.jobid = r.jobid AND s.dataid = r.dataid
                                      AND s.status = 'FAILED' AND s.runid = r.runid)))

-- Health ----------------------------------------------------------------------------------------------------------
-- name: clock_seconds
SELECT extract(epoch FROM clock_timestamp())::double precision

-- name: expired_leases
SELECT jobid, dataid, owner, lease_until FROM job_status
WHERE status = 'RUNNING' AND lease_until < from_now(%(now)s) AND (%(project)s::text IS NULL OR project = %(project)s)
ORDER BY lease_until LIMIT %(limit)s
