-- Chunks as a grid, now and at any moment of the past, on SQLite. Every statement looks at a window, never at all chunks,
-- but for `lengths`.

-- name: newest
SELECT coalesce((SELECT max(id) FROM history), 0)

-- name: oldest_change
SELECT min(at) FROM (SELECT at FROM history ORDER BY id LIMIT 1) h

-- name: lines
-- Every dataset, with its first and last dataid by text: two seeks each.
SELECT d.project, d.datasetid, d.partitions, d.clock,
       (SELECT c.dataid FROM datastatus c
        WHERE c.project = d.project AND c.datasetid = d.datasetid AND c.locktype = 'OUT' ORDER BY c.dataid LIMIT 1),
       (SELECT c.dataid FROM datastatus c
        WHERE c.project = d.project AND c.datasetid = d.datasetid AND c.locktype = 'OUT' ORDER BY c.dataid DESC LIMIT 1)
FROM dataset d WHERE :project IS NULL OR d.project = :project ORDER BY d.project, d.datasetid

-- name: counts
-- The tally of chunks and of what was done, and what changed since.
SELECT kind, project, name, status, sum(n) FROM (
    SELECT kind, project, name, status, n FROM tally WHERE kind <> ''
    UNION ALL
    SELECT kind, project, name, old_status AS status, -1 AS n FROM history
    WHERE id > (SELECT n FROM tally WHERE kind = '') AND old_status IS NOT NULL AND NOT (kind = 'job' AND old_status = 'PENDING')
    UNION ALL
    SELECT kind, project, name, new_status, 1 FROM history
    WHERE id > (SELECT n FROM tally WHERE kind = '') AND new_status IS NOT NULL AND NOT (kind = 'job' AND new_status = 'PENDING')) m
WHERE :project IS NULL OR project = :project
GROUP BY kind, project, name, status HAVING sum(n) > 0

-- name: counts_since
-- What chunks changed from a number of the history on: to be taken off the counts of now. Counted while it is read, since
-- that is all it costs.
WITH change AS (
    SELECT project, name, old_status, new_status, count(*) AS n FROM history
    WHERE id >= :since AND kind = 'chunk' GROUP BY project, name, old_status, new_status)
SELECT project, name, status, sum(n) FROM (
    SELECT project, name, old_status AS status, -n AS n FROM change WHERE old_status IS NOT NULL
    UNION ALL
    SELECT project, name, new_status, n FROM change WHERE new_status IS NOT NULL) m
GROUP BY project, name, status HAVING sum(n) <> 0

-- name: cells
-- The chunks of these datasets ([[project, datasetid], …]) at these dataids: a seek for each.
SELECT r.key, d.key, c.status
FROM json_each(:rows) r CROSS JOIN json_each(:dataids) d CROSS JOIN datastatus c
WHERE c.project = json_extract(r.value, '$[0]') AND c.datasetid = json_extract(r.value, '$[1]') AND c.dataid = d.value
  AND c.locktype = 'OUT' AND c.reader = ''

-- name: cells_at
-- What a chunk was before the first change from that number on; where nothing changed since, what it is. And the last
-- change before: where it is missing, or is not what the next one started from, history was cleaned away in between.
SELECT r.key, d.key, c.status, c.modified <= :moment, n.id IS NOT NULL, n.old_status, p.id IS NOT NULL, p.new_status
FROM json_each(:rows) r CROSS JOIN json_each(:dataids) d
     LEFT JOIN datastatus c ON c.project = json_extract(r.value, '$[0]') AND c.datasetid = json_extract(r.value, '$[1]')
                               AND c.dataid = d.value AND c.locktype = 'OUT' AND c.reader = ''
     LEFT JOIN history n ON n.id = (
         SELECT h.id FROM history h
         WHERE h.dataid = d.value AND h.name = json_extract(r.value, '$[1]') AND h.id >= :since
           AND h.project = json_extract(r.value, '$[0]') AND h.kind = 'chunk'
         ORDER BY h.id LIMIT 1)
     LEFT JOIN history p ON p.id = (
         SELECT h.id FROM history h
         WHERE h.dataid = d.value AND h.name = json_extract(r.value, '$[1]') AND h.id < :since
           AND h.project = json_extract(r.value, '$[0]') AND h.kind = 'chunk'
         ORDER BY h.id DESC LIMIT 1)
WHERE c.status IS NOT NULL OR n.id IS NOT NULL

-- name: listed
-- By the text of the dataid.
SELECT dataid, status FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND locktype = 'OUT' AND reader = '' AND dataid > :after
ORDER BY dataid LIMIT :limit OFFSET :skip

-- name: listed_before
-- How many there are before this one: only where dataids cannot be counted otherwise.
SELECT count(*) FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND locktype = 'OUT' AND reader = '' AND dataid < :dataid

-- name: lengths
-- Dataids by their length: of numbers without leading zeros, the lowest and the highest. Looks at every chunk.
SELECT length(dataid), min(dataid), max(dataid), count(*) FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND locktype = 'OUT' GROUP BY length(dataid) ORDER BY 1

-- name: changes
-- What chunks became, the oldest change first.
SELECT id, project, name, dataid, new_status FROM history
WHERE id > :since AND kind = 'chunk' AND (:project IS NULL OR project = :project)
  AND (:datasetid IS NULL OR name = :datasetid)
ORDER BY id LIMIT :limit

-- name: recent_changes
-- The newest changes of a dataset's chunks among the newest of all.
SELECT id, at, dataid, old_status, new_status, runid, actor FROM (SELECT * FROM history ORDER BY id DESC LIMIT :look) h
WHERE kind = 'chunk' AND project = :project AND name = :datasetid ORDER BY id DESC LIMIT :limit

-- Chunks of one dataset -------------------------------------------------------------------------------------------
-- name: chunk_page
-- The next chunks by text, looking at no more than so many.
SELECT c.dataid, c.status, c.version, c.location, c.problem, c.validated_at, c.modified, m.files, m.bytes, m.rows
FROM (SELECT * FROM datastatus
      WHERE project = :project AND datasetid = :datasetid AND locktype = 'OUT' AND reader = '' AND dataid > :after
      ORDER BY dataid LIMIT :look) c
     LEFT JOIN data_manifest m ON m.project = c.project AND m.datasetid = c.datasetid AND m.dataid = c.dataid
                                  AND m.version = c.version
WHERE :status IS NULL OR c.status = :status ORDER BY c.dataid LIMIT :limit

-- name: chunk_page_end
-- Where such a look ends, and whether there is more.
SELECT max(dataid), count(*) FROM (
    SELECT dataid FROM datastatus
    WHERE project = :project AND datasetid = :datasetid AND locktype = 'OUT' AND reader = '' AND dataid > :after
    ORDER BY dataid LIMIT :look) l

-- name: chunks_by_producer
-- Chunks in a status, by what their producer has open: seeks, however much is done.
SELECT c.dataid, c.status, c.version, c.location, c.problem, c.validated_at, c.modified, m.files, m.bytes, m.rows
FROM (SELECT dataid FROM (SELECT dataid FROM job_status INDEXED BY job_status_failed
                          WHERE project = :job_project AND jobid = :jobid AND status = 'FAILED' LIMIT :limit) f
      UNION ALL
      SELECT dataid FROM (SELECT dataid FROM job_status INDEXED BY job_status_running
                          WHERE project = :job_project AND jobid = :jobid AND status = 'RUNNING' LIMIT :limit) r
      UNION ALL
      SELECT dataid FROM (SELECT dataid FROM job_status INDEXED BY job_status_blocked
                          WHERE project = :job_project AND jobid = :jobid
                            AND (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
                          LIMIT :limit) b
      UNION ALL
      SELECT dataid FROM (SELECT dataid FROM job_status INDEXED BY job_status_claimable
                          WHERE project = :job_project AND jobid = :jobid
                            AND status IN ('PENDING', 'RESUBMIT') AND waiting <= 0 AND parked_until IS NULL
                          LIMIT :limit) w) o
     CROSS JOIN datastatus c ON c.project = :project AND c.datasetid = :datasetid AND c.dataid = o.dataid
                                AND c.locktype = 'OUT' AND c.reader = ''
     LEFT JOIN data_manifest m ON m.project = c.project AND m.datasetid = c.datasetid AND m.dataid = c.dataid
                                  AND m.version = c.version
WHERE c.status = :status LIMIT :limit

-- name: manifests
SELECT version, location, files, bytes, rows, schema, fingerprint, validated_at, created_at FROM data_manifest
WHERE project = :project AND datasetid = :datasetid AND dataid = :dataid ORDER BY version DESC LIMIT :limit

-- name: readers
-- Who reads a chunk by their inputs' maps, and what their last run recorded that it read.
SELECT v.project, v.jobid, v.dataid, v.status, v.runid, k.inputs
FROM chunk_reader v LEFT JOIN run k ON k.runid = v.runid
WHERE v.dataset_project = :project AND v.datasetid = :datasetid AND v.chunk_dataid = :dataid LIMIT :limit
