-- Streams on PostgreSQL: who may send, batches by offsets and slots, items that were set aside.

-- name: streams
-- A stream is a job whose definition says so; its row here may still be missing.
SELECT j.project, j.jobid, j.definition,
       CASE WHEN j.paused_until IS NULL OR j.paused_until > from_now(%(now)s) THEN j.paused_by END, j.paused_until,
       s.token_hash, coalesce(s.state, 'NEW'), coalesce(s.reason, ''), coalesce(s.accepted, 0), s.oldest_at, s.seen_at,
       s.owner, s.sealed_to
FROM job j LEFT JOIN stream s ON s.project = j.project AND s.jobid = j.jobid
WHERE j.definition LIKE '%%"stream": {%%' AND (%(project)s::text IS NULL OR j.project = %(project)s) AND (%(jobid)s::text IS NULL OR j.jobid = %(jobid)s)
ORDER BY j.project, j.jobid

-- name: hold_stream
-- Whoever changes where a stream stands waits here for the other.
INSERT INTO stream (project, jobid) VALUES (%(project)s, %(jobid)s)
ON CONFLICT (project, jobid) DO UPDATE SET state = stream.state

-- name: set_token
INSERT INTO stream (project, jobid, token_hash, token_at) VALUES (%(project)s, %(jobid)s, %(token_hash)s, from_now(%(now)s))
ON CONFLICT (project, jobid) DO UPDATE SET token_hash = excluded.token_hash, token_at = excluded.token_at

-- name: revoke_token
UPDATE stream SET token_hash = NULL, token_at = NULL
WHERE project = %(project)s AND jobid = %(jobid)s AND token_hash IS NOT NULL

-- name: report
INSERT INTO stream (project, jobid, state, reason, accepted, oldest_at, seen_at, owner)
VALUES (%(project)s, %(jobid)s, %(state)s, %(reason)s, coalesce(%(accepted)s::bigint, 0), %(oldest_at)s::timestamptz, from_now(%(now)s), %(owner)s)
ON CONFLICT (project, jobid) DO UPDATE
SET state = excluded.state, reason = excluded.reason, accepted = coalesce(%(accepted)s::bigint, stream.accepted),
    oldest_at = excluded.oldest_at, seen_at = excluded.seen_at, owner = excluded.owner

-- Batches -----------------------------------------------------------------------------------------------------------
-- name: highest_complete
-- From the end of the index: few rows are passed over, however long the stream has run.
SELECT dataid FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s AND status = 'COMPLETE' ORDER BY dataid DESC LIMIT 1

-- name: open_batches
-- Those that are not COMPLETE; each kind is found in an index that holds few.
SELECT s.dataid, s.status, s.runid FROM job_status s
WHERE s.project = %(project)s AND s.jobid = %(jobid)s AND s.status = 'FAILED'
UNION ALL
SELECT s.dataid, s.status, s.runid FROM job_status s
WHERE s.project = %(project)s AND s.jobid = %(jobid)s AND s.status = 'RUNNING'
UNION ALL
SELECT s.dataid, s.status, s.runid FROM job_status s
WHERE s.project = %(project)s AND s.jobid = %(jobid)s
  AND (s.status = 'HOLD' OR (s.status IN ('PENDING', 'RESUBMIT') AND (s.waiting > 0 OR s.parked_until IS NOT NULL)))
UNION ALL
SELECT s.dataid, s.status, s.runid FROM job_status s
WHERE s.project = %(project)s AND s.jobid = %(jobid)s
  AND s.status IN ('PENDING', 'RESUBMIT') AND s.waiting <= 0 AND s.parked_until IS NULL
ORDER BY 1

-- name: overlapping
SELECT s.dataid, s.status, s.runid, s.owner
FROM stream_batch b JOIN job_status s ON s.project = b.project AND s.jobid = b.jobid AND s.dataid = b.dataid
WHERE b.project = %(project)s AND b.jobid = %(jobid)s AND b.end_offset > %(start)s AND b.start_offset < %(end)s
  AND b.dataid <> %(dataid)s
ORDER BY s.dataid

-- name: delete_batch_row
DELETE FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s AND runid IS NULL AND status <> 'COMPLETE'

-- name: delete_batch
DELETE FROM stream_batch WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s

-- name: expect_batch
INSERT INTO job_status (project, jobid, dataid, waiting, unmapped)
SELECT project, jobid, %(dataid)s, same_inputs, 0 FROM job WHERE project = %(project)s AND jobid = %(jobid)s
ON CONFLICT (project, jobid, dataid) DO NOTHING

-- name: put_batch
INSERT INTO stream_batch (project, jobid, dataid, start_offset, end_offset, at, slot)
VALUES (%(project)s, %(jobid)s, %(dataid)s, %(start)s, %(end)s, %(at)s::timestamptz, %(slot)s)
ON CONFLICT (project, jobid, dataid) DO UPDATE SET at = excluded.at, slot = excluded.slot

-- name: batches_since
SELECT b.dataid, b.slot
FROM stream_batch b JOIN job_status s ON s.project = b.project AND s.jobid = b.jobid AND s.dataid = b.dataid
WHERE b.project = %(project)s AND b.jobid = %(jobid)s AND b.end_offset > %(offset)s
ORDER BY b.end_offset

-- name: newest_batches
SELECT b.end_offset - b.start_offset, s.modified
FROM stream_batch b JOIN job_status s ON s.project = b.project AND s.jobid = b.jobid AND s.dataid = b.dataid
WHERE b.project = %(project)s AND b.jobid = %(jobid)s AND s.status = 'COMPLETE' AND s.modified >= from_now(%(since)s)
ORDER BY b.end_offset DESC LIMIT %(limit)s

-- Parts of topics ---------------------------------------------------------------------------------------------------
-- name: put_topic_part
INSERT INTO stream_topic_part (project, jobid, dataid, partition_no, start_offset, end_offset)
VALUES (%(project)s, %(jobid)s, %(dataid)s, %(partition)s, %(start)s, %(end)s)
ON CONFLICT (project, jobid, dataid, partition_no) DO NOTHING

-- name: delete_topic_parts
DELETE FROM stream_topic_part WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s

-- name: drop_topic_parts
DELETE FROM stream_topic_part WHERE project = %(project)s AND jobid = %(jobid)s

-- name: topic_parts
SELECT partition_no, start_offset, end_offset FROM stream_topic_part
WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s ORDER BY partition_no

-- name: topic_parts_before
-- Of the batch that ends there: every batch has a row for every partition.
SELECT t.partition_no, t.start_offset, t.end_offset
FROM stream_batch b JOIN stream_topic_part t ON t.project = b.project AND t.jobid = b.jobid AND t.dataid = b.dataid
WHERE b.project = %(project)s AND b.jobid = %(jobid)s AND b.end_offset = %(end)s ORDER BY t.partition_no

-- name: batch_of_item
SELECT dataid FROM stream_batch
WHERE project = %(project)s AND jobid = %(jobid)s AND end_offset > %(offset)s ORDER BY end_offset LIMIT 1

-- name: first_offset_since
SELECT min(start_offset) FROM stream_batch
WHERE project = %(project)s AND jobid = %(jobid)s AND at >= %(since)s::timestamptz

-- Seals -------------------------------------------------------------------------------------------------------------
-- name: batches_of_slot
SELECT dataid FROM stream_batch WHERE project = %(project)s AND jobid = %(jobid)s AND slot = %(slot)s ORDER BY dataid

-- name: due_slots
SELECT b.slot
FROM stream_batch b JOIN job_status s ON s.project = b.project AND s.jobid = b.jobid AND s.dataid = b.dataid
WHERE b.project = %(project)s AND b.jobid = %(jobid)s AND b.slot < %(upto)s
  AND b.slot >= coalesce((SELECT sealed_to FROM stream WHERE project = %(project)s AND jobid = %(jobid)s), '')
  AND NOT EXISTS (SELECT 1 FROM job_status d WHERE d.project = b.project AND d.jobid = %(seal)s AND d.dataid = b.slot)
GROUP BY b.slot HAVING count(*) = count(CASE WHEN s.status = 'COMPLETE' THEN 1 END)
ORDER BY b.slot

-- name: set_sealed_to
UPDATE stream SET sealed_to = %(slot)s
WHERE project = %(project)s AND jobid = %(jobid)s AND (sealed_to IS NULL OR sealed_to < %(slot)s)

-- name: rows_of_slot
SELECT sum(m.rows)
FROM stream_batch b
     JOIN datastatus c ON c.project = b.project AND c.datasetid = %(live)s AND c.dataid = b.dataid AND c.locktype = 'OUT'
                          AND c.reader = '' AND c.status = 'READY'
     JOIN data_manifest m ON m.project = c.project AND m.datasetid = c.datasetid AND m.dataid = c.dataid
                             AND m.version = c.version
WHERE b.project = %(project)s AND b.jobid = %(jobid)s AND b.slot = %(slot)s

-- name: known_rows
SELECT dataid FROM job_status WHERE project = %(project)s AND jobid = %(jobid)s AND dataid >= %(slot)s ORDER BY dataid

-- name: sealed_batches
-- COMPLETE, of slots that are sealed and over for so long, but for the newest slot, and for what is being read.
SELECT b.dataid
FROM stream_batch b JOIN job_status s ON s.project = b.project AND s.jobid = b.jobid AND s.dataid = b.dataid
     JOIN job_status d ON d.project = b.project AND d.jobid = %(seal)s AND d.dataid = b.slot
WHERE b.project = %(project)s AND b.jobid = %(jobid)s AND b.slot < %(before)s
  AND b.slot < (SELECT h.slot FROM stream_batch h
                WHERE h.project = %(project)s AND h.jobid = %(jobid)s AND h.dataid = %(highest)s)
  AND s.status = 'COMPLETE' AND d.status = 'COMPLETE'
  AND NOT EXISTS (SELECT 1 FROM datastatus r WHERE r.project = b.project AND r.datasetid = %(live)s
                                               AND r.dataid = b.dataid AND r.locktype = 'IN')
ORDER BY b.dataid LIMIT %(limit)s

-- name: forget_batch
-- One row of each slot stays: should somebody have the slot sealed again, it waits for what is gone, and is not made empty.
DELETE FROM stream_batch
WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s
  AND EXISTS (SELECT 1 FROM stream_batch o
              WHERE o.project = %(project)s AND o.jobid = %(jobid)s AND o.slot = stream_batch.slot
                AND o.dataid <> stream_batch.dataid)

-- name: forget_row
DELETE FROM job_status WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s AND status = 'COMPLETE'

-- name: forget_chunk
DELETE FROM datastatus
WHERE project = %(project)s AND datasetid = %(live)s AND dataid = %(dataid)s AND locktype = 'OUT' AND status = 'READY'

-- Versions of a whole dataset --------------------------------------------------------------------------------------
-- name: complete_until
SELECT b.dataid
FROM stream_batch b JOIN job_status s ON s.project = b.project AND s.jobid = b.jobid AND s.dataid = b.dataid
WHERE b.project = %(project)s AND b.jobid = %(jobid)s AND b.end_offset = %(end)s AND s.status = 'COMPLETE'

-- name: running_batches
SELECT dataid FROM job_status WHERE project = %(project)s AND jobid = %(jobid)s AND status = 'RUNNING'

-- name: drop_rows
DELETE FROM job_status WHERE project = %(project)s AND jobid = %(jobid)s AND status <> 'RUNNING'

-- name: drop_chunks
DELETE FROM datastatus WHERE project = %(project)s AND datasetid = %(live)s AND locktype = 'OUT'

-- name: drop_batches
DELETE FROM stream_batch WHERE project = %(project)s AND jobid = %(jobid)s

-- name: superseded_batches
SELECT s.dataid FROM job_status s
WHERE s.project = %(project)s AND s.jobid = %(jobid)s AND s.status = 'COMPLETE'
  AND NOT EXISTS (SELECT 1 FROM datastatus r WHERE r.project = s.project AND r.datasetid = %(live)s
                                               AND r.dataid = s.dataid AND r.locktype = 'IN')
ORDER BY s.dataid DESC LIMIT %(limit)s OFFSET %(keep)s

-- name: put_version
INSERT INTO stream_version (project, jobid, runid, end_offset, batch_runid)
VALUES (%(project)s, %(jobid)s, %(runid)s, %(end)s, %(batch_runid)s)

-- name: drop_versions
DELETE FROM stream_version
WHERE project = %(project)s AND jobid = %(jobid)s
  AND runid < (SELECT min(runid) FROM (SELECT runid FROM stream_version
                                       WHERE project = %(project)s AND jobid = %(jobid)s
                                       ORDER BY runid DESC LIMIT %(keep)s) kept)

-- name: version_of
SELECT end_offset, batch_runid FROM stream_version
WHERE project = %(project)s AND jobid = %(jobid)s AND runid = %(runid)s

-- Items that were set aside -----------------------------------------------------------------------------------------
-- name: clear_aside
DELETE FROM stream_failed
WHERE project = %(project)s AND jobid = %(jobid)s AND item_offset >= %(start)s AND item_offset < %(end)s AND replayed_at IS NULL

-- name: put_aside
INSERT INTO stream_failed (project, jobid, item_offset, at, runid, error, item)
VALUES (%(project)s, %(jobid)s, %(offset)s, %(at)s::timestamptz, %(runid)s, %(error)s, %(item)s)
ON CONFLICT (project, jobid, item_offset) DO NOTHING

-- name: failed_items
SELECT item_offset, at, runid, error, item, replayed_at, replayed_as FROM stream_failed
WHERE project = %(project)s AND jobid = %(jobid)s AND item_offset >= %(first)s AND (replayed_at IS NULL OR %(replayed)s = 1)
ORDER BY item_offset LIMIT %(limit)s

-- name: failed_item
SELECT item_offset, at, runid, error, item, replayed_at, replayed_as FROM stream_failed
WHERE project = %(project)s AND jobid = %(jobid)s AND item_offset = %(offset)s

-- name: count_failed
SELECT count(CASE WHEN replayed_at IS NULL THEN 1 END), count(replayed_at) FROM stream_failed
WHERE project = %(project)s AND jobid = %(jobid)s AND item_offset < %(committed)s

-- name: mark_replayed
UPDATE stream_failed SET replayed_at = from_now(%(now)s), replayed_as = %(replayed_as)s
WHERE project = %(project)s AND jobid = %(jobid)s AND item_offset = %(offset)s AND replayed_at IS NULL
