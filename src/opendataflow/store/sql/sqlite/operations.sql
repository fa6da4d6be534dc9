-- What a person does to a running system, on SQLite.

-- name: projects
SELECT project FROM project ORDER BY project

-- name: row_of
SELECT status, again, owner FROM job_status WHERE project = :project AND jobid = :jobid AND dataid = :dataid

-- Runs ------------------------------------------------------------------------------------------------------------
-- name: list_runs
-- Numbers grow with time, so the newest are read from the end; how far down is the caller's choice.
SELECT runid, project, jobid, dataid, attempt, forced, status, owner, claimed_at, ended_at, exit_code, message, log_path
FROM run
WHERE runid < :before AND runid >= :lowest AND (:project IS NULL OR project = :project)
  AND (:jobid IS NULL OR jobid = :jobid) AND (:dataid IS NULL OR dataid = :dataid) AND (:status IS NULL OR status = :status)
  AND (:since IS NULL OR claimed_at >= :since)
ORDER BY runid DESC LIMIT :limit

-- name: run_page
SELECT min(runid), count(*) FROM (
    SELECT runid FROM run WHERE runid < :before AND runid >= :lowest ORDER BY runid DESC LIMIT :limit) p

-- name: runs_of_dataid
-- By the history, and by the row itself where the history was cleaned.
SELECT runid, project, jobid, dataid, attempt, forced, status, owner, claimed_at, ended_at, exit_code, message, log_path
FROM run
WHERE runid IN (SELECT h.runid FROM history h
                WHERE h.project = :project AND h.kind = 'job' AND h.name = :jobid AND h.dataid = :dataid
                UNION ALL
                SELECT s.runid FROM job_status s
                WHERE s.project = :project AND s.jobid = :jobid AND s.dataid = :dataid)
  AND runid < :before AND (:status IS NULL OR status = :status) AND (:since IS NULL OR claimed_at >= :since)
ORDER BY runid DESC LIMIT :limit

-- name: run_bounds
SELECT (SELECT min(runid) FROM run), (SELECT max(runid) FROM run)

-- name: run_from
SELECT runid, claimed_at < :moment FROM run WHERE runid >= :number ORDER BY runid LIMIT 1

-- name: history_bounds
SELECT (SELECT min(id) FROM history), (SELECT max(id) FROM history)

-- name: history_from
SELECT id, at < :moment FROM history WHERE id >= :number ORDER BY id LIMIT 1

-- name: watch_run
SELECT r.status, r.log_path, r.log_tail, r.exit_code, r.message, s.lease_until, s.lease_until < :now
FROM run r LEFT JOIN job_status s
    ON s.project = r.project AND s.jobid = r.jobid AND s.dataid = r.dataid AND s.runid = r.runid
WHERE r.runid = :runid

-- Resubmitting ----------------------------------------------------------------------------------------------------
-- name: failed_rows
-- With a window: those of which some run ended badly in it, also if a later one did too.
SELECT s.project, s.jobid, s.dataid FROM job_status s
WHERE s.status = 'FAILED' AND (:project IS NULL OR s.project = :project) AND (:jobid IS NULL OR s.jobid = :jobid)
  AND (:since IS NULL OR EXISTS (
      SELECT 1 FROM (SELECT s.runid
                     UNION ALL
                     SELECT h.runid FROM history h
                     WHERE h.dataid = s.dataid AND h.name = s.jobid AND h.kind = 'job' AND h.project = s.project) k
           CROSS JOIN run r
      WHERE r.runid = k.runid AND r.status IN ('FAILED', 'LOST', 'RESUBMIT')
        AND r.ended_at >= :since AND r.ended_at <= :until))
ORDER BY s.project, s.jobid, s.sortkey, s.dataid

-- name: ran_between
SELECT DISTINCT project, jobid, dataid FROM run
WHERE runid >= :lowest AND runid < :before AND (:project IS NULL OR project = :project)
  AND (:jobid IS NULL OR jobid = :jobid) AND claimed_at <= :until AND (ended_at IS NULL OR ended_at >= :since)
ORDER BY project, jobid, dataid

-- name: resubmit
UPDATE job_status SET status = 'RESUBMIT', modified = :now
WHERE project = :project AND jobid = :jobid AND dataid = :dataid

-- name: have_readers_follow
-- When its outputs are published: a quiet cascade, see migration 0004.
UPDATE datastatus SET readers_follow = 1
WHERE dataid = :dataid AND locktype = 'OUT' AND reader = '' AND (project, datasetid) IN
    (SELECT o.dataset_project, o.datasetid FROM job_dataset o
     WHERE o.project = :project AND o.jobid = :jobid AND o.itemtype = 'OUT'
       AND EXISTS (SELECT 1 FROM job_dataset i
                   WHERE i.dataset_project = o.dataset_project AND i.datasetid = o.datasetid AND i.itemtype = 'IN'))

-- name: outage_runs
-- Where a dataid stands now is what a run made of it that was under way in the window. CROSS JOIN: in this order.
SELECT s.project, s.jobid, s.dataid, r.status
FROM run r CROSS JOIN job_status s ON s.project = r.project AND s.jobid = r.jobid AND s.dataid = r.dataid AND s.runid = r.runid
WHERE r.runid >= :lowest AND r.runid < :before AND r.project = :project
  AND (:jobid IS NULL OR r.jobid = :jobid)
  AND r.claimed_at <= :until AND (r.ended_at IS NULL OR r.ended_at >= :since)
ORDER BY s.project, s.jobid, s.sortkey, s.dataid

-- name: outage_blocked
-- Refused in the window or since, and still waiting for its next try.
SELECT project, jobid, dataid FROM job_status INDEXED BY job_status_parked
WHERE parked_until IS NOT NULL AND status IN ('PENDING', 'RESUBMIT') AND modified >= :since
  AND project = :project AND (:jobid IS NULL OR jobid = :jobid)
ORDER BY project, jobid, sortkey, dataid

-- name: outage_published
-- Chunks that turned READY in the window and are so still, in that version; a clock's slots do not count.
SELECT DISTINCT h.project, h.name, h.dataid, p.project, p.jobid
FROM history h
     CROSS JOIN dataset d ON d.project = h.project AND d.datasetid = h.name
     CROSS JOIN datastatus c ON c.project = h.project AND c.datasetid = h.name AND c.dataid = h.dataid
                          AND c.locktype = 'OUT' AND c.reader = ''
     LEFT JOIN job_dataset p ON p.dataset_project = h.project AND p.datasetid = h.name AND p.itemtype = 'OUT'
WHERE h.id >= :lowest AND h.id < :before AND h.at >= :since AND h.at <= :until
  AND h.project = :project AND h.kind = 'chunk' AND h.new_status = 'READY' AND h.old_status IS NOT 'READY'
  AND d.clock IS NULL AND c.status = 'READY' AND c.version IS h.runid
ORDER BY h.project, h.name, h.dataid

-- name: readers_of_chunk
SELECT project, jobid, dataid, status, runid, content_read FROM chunk_reader
WHERE dataset_project = :project AND datasetid = :datasetid AND chunk_dataid = :dataid
ORDER BY project, jobid, dataid

-- name: made_of
-- What the run read that made the published version.
SELECT r.inputs FROM datastatus c JOIN run r ON r.runid = c.version
WHERE c.project = :project AND c.datasetid = :datasetid AND c.dataid = :dataid
  AND c.locktype = 'OUT' AND c.reader = ''

-- name: chunk_stands
SELECT c.status, c.version, m.rows
FROM datastatus c LEFT JOIN data_manifest m ON m.project = c.project AND m.datasetid = c.datasetid AND m.dataid = c.dataid
                                               AND m.version = c.version
WHERE c.project = :project AND c.datasetid = :datasetid AND c.dataid = :dataid
  AND c.locktype = 'OUT' AND c.reader = ''

-- name: job_stands
SELECT status, runid FROM job_status
WHERE project = :project AND jobid = :jobid AND dataid = :dataid

-- name: readers_of_job
SELECT l.project, l.jobid, l.map, l.dataset_project, l.datasetid
FROM job_dataset o JOIN job_dataset l ON l.dataset_project = o.dataset_project AND l.datasetid = o.datasetid
WHERE o.project = :project AND o.jobid = :jobid AND o.itemtype = 'OUT' AND l.itemtype = 'IN'
ORDER BY l.project, l.jobid, l.dataset_project, l.datasetid

-- name: begun_rows
SELECT dataid FROM job_status
WHERE project = :project AND jobid = :jobid AND status IN ('RUNNING', 'COMPLETE', 'FAILED', 'RESUBMIT', 'HOLD')
ORDER BY sortkey, dataid

-- name: mapped_readers
SELECT job_dataid FROM job_input
WHERE dataset_project = :dataset_project AND datasetid = :datasetid AND dataid = :dataid
  AND project = :project AND jobid = :jobid
ORDER BY job_dataid

-- Holding ---------------------------------------------------------------------------------------------------------
-- name: set_status
UPDATE job_status SET status = :status, parked_until = NULL, modified = :now
WHERE project = :project AND jobid = :jobid AND dataid = :dataid AND status = :before

-- name: pause_job
-- A pause with an end becomes one without.
UPDATE job SET paused_by = :paused_by, paused_at = :now, paused_until = NULL
WHERE project = :project AND jobid = :jobid AND (paused_by IS NULL OR paused_until IS NOT NULL)

-- name: unpause_job
UPDATE job SET paused_by = NULL, paused_at = NULL, paused_until = NULL
WHERE project = :project AND jobid = :jobid AND paused_by IS NOT NULL

-- name: pause_of
SELECT paused_by, paused_at FROM job WHERE project = :project AND jobid = :jobid

-- name: count_held
SELECT count(*) FROM job_status INDEXED BY job_status_blocked WHERE project = :project AND jobid = :jobid AND status = 'HOLD'

-- name: live_readers
SELECT r.datasetid, r.jobid, r.reader FROM job_dataset o CROSS JOIN datastatus r
WHERE o.project = :project AND o.jobid = :jobid AND o.itemtype = 'OUT'
  AND r.project = o.dataset_project AND r.datasetid = o.datasetid AND r.dataid = :dataid
  AND r.locktype = 'IN' AND r.status = 'RUNNING'

-- Removing records ------------------------------------------------------------------------------------------------
-- name: run_record
SELECT runid, project, jobid, dataid, status, owner, log_path FROM run WHERE runid = :runid

-- name: delete_run
DELETE FROM run WHERE runid = :runid AND status <> 'RUNNING'

-- name: delete_manifests
-- Only what no chunk points at: the current version keeps its manifest.
DELETE FROM data_manifest
WHERE (project, datasetid) IN (SELECT project, datasetid FROM dataset) AND dataid = :dataid AND version = :runid
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
SELECT max(runid) FROM (SELECT runid FROM run WHERE runid > :after AND runid <= :upto ORDER BY runid LIMIT :limit) b

-- name: history_batch
SELECT max(id) FROM (SELECT id FROM history WHERE id > :after AND id <= :upto ORDER BY id LIMIT :limit) b

-- name: count_old_runs
SELECT count(*) FROM run
WHERE runid > :after AND runid <= :upto AND project = :project AND (:jobid IS NULL OR jobid = :jobid)
  AND status <> 'RUNNING' AND (:before IS NULL OR ended_at < :before)
  AND NOT EXISTS (SELECT 1 FROM job_status s
                  WHERE s.project = run.project AND s.jobid = run.jobid AND s.dataid = run.dataid
                    AND s.status = 'FAILED' AND s.runid = run.runid)

-- name: delete_old_runs
-- The run that a FAILED dataid stands on stays: it says why.
DELETE FROM run
WHERE runid > :after AND runid <= :upto AND project = :project AND (:jobid IS NULL OR jobid = :jobid)
  AND status <> 'RUNNING' AND (:before IS NULL OR ended_at < :before)
  AND NOT EXISTS (SELECT 1 FROM job_status s
                  WHERE s.project = run.project AND s.jobid = run.jobid AND s.dataid = run.dataid
                    AND s.status = 'FAILED' AND s.runid = run.runid)

-- name: count_old_history
SELECT count(*) FROM history
WHERE id > :after AND id <= :upto AND project = :project AND (:before IS NULL OR at < :before)
  AND (:jobid IS NULL OR (kind = 'job' AND name = :jobid)
       OR (kind = 'chunk' AND name IN (SELECT o.datasetid FROM job_dataset o
                                       WHERE o.project = :project AND o.jobid = :jobid AND o.itemtype = 'OUT')))
  AND NOT EXISTS (SELECT 1 FROM run r
                  WHERE r.runid = history.runid
                    AND (r.status = 'RUNNING' OR r.ended_at >= :before
                         OR EXISTS (SELECT 1 FROM job_status s
                                    WHERE s.project = r.project AND s.jobid = r.jobid AND s.dataid = r.dataid
                                      AND s.status = 'FAILED' AND s.runid = r.runid)))

-- name: delete_old_history
-- What belongs to a run that stays, stays with it: the way from a dataid to its runs is the history.
DELETE FROM history
WHERE id > :after AND id <= :upto AND project = :project AND (:before IS NULL OR at < :before)
  AND (:jobid IS NULL OR (kind = 'job' AND name = :jobid)
       OR (kind = 'chunk' AND name IN (SELECT o.datasetid FROM job_dataset o
                                       WHERE o.project = :project AND o.jobid = :jobid AND o.itemtype = 'OUT')))
  AND NOT EXISTS (SELECT 1 FROM run r
                  WHERE r.runid = history.runid
                    AND (r.status = 'RUNNING' OR r.ended_at >= :before
                         OR EXISTS (SELECT 1 FROM job_status s
                                    WHERE s.project = r.project AND s.jobid = r.jobid AND s.dataid = r.dataid
                                      AND s.status = 'FAILED' AND s.runid = r.runid)))

-- Health ----------------------------------------------------------------------------------------------------------
-- name: clock_seconds
SELECT (julianday('now') - 2440587.5) * 86400.0

-- name: expired_leases
SELECT jobid, dataid, owner, lease_until FROM job_status
WHERE status = 'RUNNING' AND lease_until < :now AND (:project IS NULL OR project = :project)
ORDER BY lease_until LIMIT :limit
