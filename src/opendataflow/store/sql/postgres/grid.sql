-- Chunks as a grid, now and at any moment of the past, on PostgreSQL. Every statement looks at a window, never at all chunks,
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
FROM dataset d WHERE %(project)s::text IS NULL OR d.project = %(project)s ORDER BY d.project, d.datasetid

-- name: counts
-- The tally of chunks and of what was done, and what changed since.
SELECT kind, project, name, status, sum(n)::bigint FROM (
    SELECT kind, project, name, status, n FROM tally WHERE kind <> ''
    UNION ALL
    SELECT kind, project, name, old_status AS status, -1 AS n FROM history
    WHERE id > (SELECT n FROM tally WHERE kind = '') AND old_status IS NOT NULL AND NOT (kind = 'job' AND old_status = 'PENDING')
    UNION ALL
    SELECT kind, project, name, new_status, 1 FROM history
    WHERE id > (SELECT n FROM tally WHERE kind = '') AND new_status IS NOT NULL AND NOT (kind = 'job' AND new_status = 'PENDING')) m
WHERE %(project)s::text IS NULL OR project = %(project)s
GROUP BY kind, project, name, status HAVING sum(n) > 0

-- name: counts_since
-- What chunks changed from a number of the history on: to be taken off the counts of now. Counted while it is read, since
-- that is all it costs.
WITH change AS (
    SELECT project, name, old_status, new_status, count(*) AS n FROM history
    WHERE id >= %(since)s AND kind = 'chunk' GROUP BY project, name, old_status, new_status)
SELECT project, name, status, sum(n)::bigint FROM (
    SELECT project, name, old_status AS status, -n AS n FROM change WHERE old_status IS NOT NULL
    UNION ALL
    SELECT project, name, new_status, n FROM change WHERE new_status IS NOT NULL) m
GROUP BY project, name, status HAVING sum(n) <> 0

-- name: cells
-- The chunks of these datasets ([[project, datasetid], …]) at these dataids: a seek for each. LATERAL and LIMIT: by the
-- primary key, also where nobody has analyzed the table. UNNEST: the planner takes it for few rows, and compiles nothing.
SELECT (r.n - 1)::integer, (d.n - 1)::integer, c.status
FROM unnest(ARRAY(SELECT json_array_elements(%(rows)s::json))) WITH ORDINALITY r (value, n)
     CROSS JOIN unnest(ARRAY(SELECT json_array_elements_text(%(dataids)s::json))) WITH ORDINALITY d (value, n)
     CROSS JOIN LATERAL (SELECT s.status FROM datastatus s
                         WHERE s.project = r.value->>0 AND s.datasetid = r.value->>1 AND s.dataid = d.value
                           AND s.locktype = 'OUT' AND s.reader = '' LIMIT 1) c

-- name: cells_at
-- What a chunk was before the first change from that number on; where nothing changed since, what it is. And the last
-- change before: where it is missing, or is not what the next one started from, history was cleaned away in between.
SELECT (r.n - 1)::integer, (d.n - 1)::integer, c.status, c.modified <= %(moment)s::timestamptz, n.id IS NOT NULL, n.old_status,
       p.id IS NOT NULL, p.new_status
FROM unnest(ARRAY(SELECT json_array_elements(%(rows)s::json))) WITH ORDINALITY r (value, n)
     CROSS JOIN unnest(ARRAY(SELECT json_array_elements_text(%(dataids)s::json))) WITH ORDINALITY d (value, n)
     LEFT JOIN LATERAL (SELECT s.status, s.modified FROM datastatus s
                        WHERE s.project = r.value->>0 AND s.datasetid = r.value->>1 AND s.dataid = d.value
                          AND s.locktype = 'OUT' AND s.reader = '' LIMIT 1) c ON true
     LEFT JOIN LATERAL (SELECT h.id, h.old_status FROM history h
                        WHERE h.dataid = d.value AND h.name = r.value->>1 AND h.id >= %(since)s
                          AND h.project = r.value->>0 AND h.kind = 'chunk'
                        ORDER BY h.dataid, h.name, h.id LIMIT 1) n ON true
     LEFT JOIN LATERAL (SELECT h.id, h.new_status FROM history h
                        WHERE h.dataid = d.value AND h.name = r.value->>1 AND h.id < %(since)s
                          AND h.project = r.value->>0 AND h.kind = 'chunk'
                        ORDER BY h.dataid DESC, h.name DESC, h.id DESC LIMIT 1) p ON true
WHERE c.status IS NOT NULL OR n.id IS NOT NULL

-- name: listed
-- By the text of the dataid.
SELECT dataid, status FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND reader = '' AND dataid > %(after)s
ORDER BY dataid LIMIT %(limit)s OFFSET %(skip)s

-- name: listed_before
-- How many there are before this one: only where dataids cannot be counted otherwise.
SELECT count(*) FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND reader = '' AND dataid < %(dataid)s

-- name: lengths
-- Dataids by their length: of numbers without leading zeros, the lowest and the highest. Looks at every chunk.
SELECT length(dataid), min(dataid), max(dataid), count(*) FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' GROUP BY length(dataid) ORDER BY 1

-- name: changes
-- What chunks became, the oldest change first.
SELECT id, project, name, dataid, new_status FROM history
WHERE id > %(since)s AND kind = 'chunk' AND (%(project)s::text IS NULL OR project = %(project)s)
  AND (%(datasetid)s::text IS NULL OR name = %(datasetid)s)
ORDER BY id LIMIT %(limit)s

-- name: recent_changes
-- The newest changes of a dataset's chunks among the newest of all.
SELECT id, at, dataid, old_status, new_status, runid, actor FROM (SELECT * FROM history ORDER BY id DESC LIMIT %(look)s) h
WHERE kind = 'chunk' AND project = %(project)s AND name = %(datasetid)s ORDER BY id DESC LIMIT %(limit)s

-- Chunks of one dataset -------------------------------------------------------------------------------------------
-- name: chunk_page
-- The next chunks by text, looking at no more than so many.
SELECT c.dataid, c.status, c.version, c.location, c.problem, c.validated_at, c.modified, m.files, m.bytes, m.rows
FROM (SELECT * FROM datastatus
      WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND reader = '' AND dataid > %(after)s
      ORDER BY dataid LIMIT %(look)s) c
     LEFT JOIN data_manifest m ON m.project = c.project AND m.datasetid = c.datasetid AND m.dataid = c.dataid
                                  AND m.version = c.version
WHERE %(status)s::text IS NULL OR c.status = %(status)s ORDER BY c.dataid LIMIT %(limit)s

-- name: chunk_page_end
-- Where such a look ends, and whether there is more.
SELECT max(dataid), count(*) FROM (
    SELECT dataid FROM datastatus
    WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND reader = '' AND dataid > %(after)s
    ORDER BY dataid LIMIT %(look)s) l

-- name: chunks_by_producer
-- Chunks in a status, by what their producer has open: seeks, however much is done.
SELECT c.dataid, c.status, c.version, c.location, c.problem, c.validated_at, c.modified, m.files, m.bytes, m.rows
FROM (SELECT dataid FROM (SELECT dataid FROM job_status
                          WHERE project = %(job_project)s AND jobid = %(jobid)s AND status = 'FAILED' LIMIT %(limit)s) f
      UNION ALL
      SELECT dataid FROM (SELECT dataid FROM job_status
                          WHERE project = %(job_project)s AND jobid = %(jobid)s AND status = 'RUNNING' LIMIT %(limit)s) r
      UNION ALL
      SELECT dataid FROM (SELECT dataid FROM job_status
                          WHERE project = %(job_project)s AND jobid = %(jobid)s
                            AND (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
                          LIMIT %(limit)s) b
      UNION ALL
      SELECT dataid FROM (SELECT dataid FROM job_status
                          WHERE project = %(job_project)s AND jobid = %(jobid)s
                            AND status IN ('PENDING', 'RESUBMIT') AND waiting <= 0 AND parked_until IS NULL
                          LIMIT %(limit)s) w) o
     JOIN datastatus c ON c.project = %(project)s AND c.datasetid = %(datasetid)s AND c.dataid = o.dataid
                                AND c.locktype = 'OUT' AND c.reader = ''
     LEFT JOIN data_manifest m ON m.project = c.project AND m.datasetid = c.datasetid AND m.dataid = c.dataid
                                  AND m.version = c.version
WHERE c.status = %(status)s LIMIT %(limit)s

-- name: manifests
SELECT version, location, files, bytes, rows, schema, fingerprint, validated_at, created_at FROM data_manifest
WHERE project = %(project)s AND datasetid = %(datasetid)s AND dataid = %(dataid)s ORDER BY version DESC LIMIT %(limit)s

-- name: readers
-- Who reads a chunk by their inputs' maps, and what their last run recorded that it read.
SELECT v.project, v.jobid, v.dataid, v.status, v.runid, k.inputs
FROM chunk_reader v LEFT JOIN run k ON k.runid = v.runid
WHERE v.dataset_project = %(project)s AND v.datasetid = %(datasetid)s AND v.chunk_dataid = %(dataid)s LIMIT %(limit)s
