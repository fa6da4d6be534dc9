-- What dataids were made from and which are stale, on SQLite. Events are worked in by one process at a time.

-- name: only_one
-- BEGIN IMMEDIATE has seen to it.
SELECT 1

-- name: is_behind
SELECT EXISTS (SELECT 1 FROM stale_event WHERE id > 0)
       OR coalesce((SELECT max(id) FROM history), 0) > (SELECT CAST(dataid AS INTEGER) FROM stale_event WHERE id = 0)

-- name: take_events
-- What the history has of them; so many rows of it.
INSERT INTO stale_event (kind, project, name, dataid)
SELECT 'chunk', project, name, dataid FROM history
WHERE id > (SELECT CAST(dataid AS INTEGER) FROM stale_event WHERE id = 0)
  AND id <= (SELECT CAST(dataid AS INTEGER) + :limit FROM stale_event WHERE id = 0)
  AND kind = 'chunk' AND new_status = 'READY'
ORDER BY id

-- name: events_taken
UPDATE stale_event
SET dataid = min(CAST(dataid AS INTEGER) + :limit, coalesce((SELECT max(id) FROM history), 0))
WHERE id = 0

-- name: events
SELECT id, kind, project, name, dataid, after_dataid FROM stale_event WHERE id > 0 ORDER BY id LIMIT :limit

-- name: add_event
INSERT INTO stale_event (kind, project, name, dataid) VALUES (:kind, :project, :name, :dataid)

-- name: add_readers
-- Those who read what a dataid makes are to be compared.
INSERT INTO stale_event (kind, project, name, dataid)
SELECT 'readers', o.dataset_project, o.datasetid, :dataid FROM job_dataset o
WHERE o.project = :project AND o.jobid = :jobid AND o.itemtype = 'OUT'
  AND EXISTS (SELECT 1 FROM job_dataset i
              WHERE i.dataset_project = o.dataset_project AND i.datasetid = o.datasetid AND i.itemtype = 'IN')

-- name: move_on
UPDATE stale_event SET after_project = :after_project, after_jobid = :after_jobid, after_dataid = :after_dataid
WHERE id = :id

-- name: delete_events
DELETE FROM stale_event WHERE id IN (SELECT value FROM json_each(:ids))

-- name: forget_asserted
-- Declared from outside meanwhile: no run of ours made it.
DELETE FROM made WHERE (project, jobid, dataid) IN
    (SELECT o.project, o.jobid, e.dataid
     FROM stale_event e
          CROSS JOIN datastatus c ON c.project = e.project AND c.datasetid = e.name AND c.dataid = e.dataid
                                     AND c.locktype = 'OUT' AND c.reader = ''
          CROSS JOIN job_dataset o ON o.dataset_project = e.project AND o.datasetid = e.name AND o.itemtype = 'OUT'
          CROSS JOIN made m ON m.project = o.project AND m.jobid = o.jobid AND m.dataid = e.dataid
     WHERE e.id IN (SELECT value FROM json_each(:ids)) AND e.kind = 'chunk' AND c.version IS NOT m.runid
       AND NOT EXISTS (SELECT 1 FROM run r WHERE r.runid = c.version))

-- name: record_made
INSERT INTO made (project, jobid, dataid, runid, code, checks, git_commit)
SELECT DISTINCT r.project, r.jobid, r.dataid, r.runid, r.code, r.checks,
       coalesce((SELECT v.git_commit FROM run_version v WHERE v.runid = r.runid),
                (SELECT q.git_commit FROM pipeline_run q WHERE q.runid = r.runid))
FROM stale_event e
     CROSS JOIN datastatus c ON c.project = e.project AND c.datasetid = e.name AND c.dataid = e.dataid
                                AND c.locktype = 'OUT' AND c.reader = ''
     CROSS JOIN run r ON r.runid = c.version AND r.dataid = e.dataid
WHERE e.id IN (SELECT value FROM json_each(:ids)) AND e.kind = 'chunk'
  AND EXISTS (SELECT 1 FROM job_dataset o
              WHERE o.dataset_project = e.project AND o.datasetid = e.name AND o.itemtype = 'OUT'
                AND o.project = r.project AND o.jobid = r.jobid)
ON CONFLICT (project, jobid, dataid) DO UPDATE
SET runid = excluded.runid, code = excluded.code, checks = excluded.checks, git_commit = excluded.git_commit
WHERE made.runid < excluded.runid

-- name: made_by_events
-- What the events are about, as it was made: where nobody can tell the code of a job from its files, its last run does.
SELECT DISTINCT m.project, m.jobid, m.dataid, m.runid, m.code, m.checks,
       k.jobid IS NULL OR (k.runid < m.runid AND (k.code IS NOT m.code OR k.checks IS NOT m.checks))
FROM stale_event e
     CROSS JOIN job_dataset o ON o.dataset_project = e.project AND o.datasetid = e.name AND o.itemtype = 'OUT'
     LEFT JOIN made m ON m.project = o.project AND m.jobid = o.jobid AND m.dataid = e.dataid
     LEFT JOIN job_code k ON k.project = o.project AND k.jobid = o.jobid
WHERE e.id IN (SELECT value FROM json_each(:ids)) AND e.kind = 'chunk'

-- name: forget_made_from
DELETE FROM made_from WHERE (project, jobid, dataid) IN
    (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
     FROM json_each(:nodes))

-- name: record_made_from
INSERT INTO made_from (dataset_project, datasetid, input_dataid, project, jobid, dataid, version, content)
SELECT json_extract(i.value, '$[0]'), json_extract(i.value, '$[1]'), json_extract(i.value, '$[2]'),
       m.project, m.jobid, m.dataid, json_extract(i.value, '$[3]'),
       nullif(substr(json_extract(i.value, '$[4]'), instr(json_extract(i.value, '$[4]'), '/') + 1), '-')
FROM json_each(:nodes) n
     CROSS JOIN made m ON m.project = json_extract(n.value, '$[0]') AND m.jobid = json_extract(n.value, '$[1]')
                          AND m.dataid = json_extract(n.value, '$[2]')
     CROSS JOIN run r ON r.runid = m.runid
     CROSS JOIN json_each(r.inputs) i
WHERE true
ON CONFLICT DO NOTHING

-- name: readers_page
-- Who read the chunks of these events, event by event, from where each of them has got to.
SELECT e.id, f.project, f.jobid, f.dataid
FROM stale_event e
     CROSS JOIN made_from f ON f.dataset_project = e.project AND f.datasetid = e.name AND f.input_dataid = e.dataid
                               AND (f.project, f.jobid, f.dataid) > (e.after_project, e.after_jobid, e.after_dataid)
WHERE e.id IN (SELECT value FROM json_each(:ids)) AND e.kind IN ('chunk', 'readers')
ORDER BY e.id, f.project, f.jobid, f.dataid LIMIT :limit

-- name: made_page
SELECT dataid FROM made WHERE project = :project AND jobid = :jobid AND dataid > :after ORDER BY dataid LIMIT :limit

-- name: compare
-- Of each: what makes it stale, and what its row says so far (NULL: it has none).
SELECT n.project, n.jobid, n.dataid,
       EXISTS (SELECT 1 FROM made_from f
                    LEFT JOIN datastatus c ON c.project = f.dataset_project AND c.datasetid = f.datasetid
                         AND c.dataid = f.input_dataid AND c.locktype = 'OUT' AND c.reader = ''
               WHERE m.runid IS NOT NULL AND f.project = n.project AND f.jobid = n.jobid AND f.dataid = n.dataid
                 AND c.version IS NOT f.version
                 AND (f.content IS NULL
                      OR f.content IS NOT nullif(substr(c.fingerprint, instr(c.fingerprint, '/') + 1), '-'))),
       coalesce(m.code <> k.code, 0), coalesce(m.checks <> k.checks, 0),
       EXISTS (SELECT 1 FROM made_from f
                    CROSS JOIN job_dataset o ON o.dataset_project = f.dataset_project AND o.datasetid = f.datasetid
                                                AND o.itemtype = 'OUT'
                    CROSS JOIN stale u ON u.project = o.project AND u.jobid = o.jobid AND u.dataid = f.input_dataid
               WHERE m.runid IS NOT NULL AND f.project = n.project AND f.jobid = n.jobid AND f.dataid = n.dataid),
       s.by_input, s.by_code, s.by_check, s.upstream
FROM (SELECT json_extract(value, '$[0]') AS project, json_extract(value, '$[1]') AS jobid,
             json_extract(value, '$[2]') AS dataid
      FROM json_each(:nodes)) n
     LEFT JOIN made m ON m.project = n.project AND m.jobid = n.jobid AND m.dataid = n.dataid
     LEFT JOIN job_code k ON k.project = n.project AND k.jobid = n.jobid
     LEFT JOIN stale s ON s.project = n.project AND s.jobid = n.jobid AND s.dataid = n.dataid

-- name: put_stale
INSERT INTO stale (project, jobid, dataid, by_input, by_code, by_check, upstream)
VALUES (:project, :jobid, :dataid, :by_input, :by_code, :by_check, :upstream)
ON CONFLICT (project, jobid, dataid) DO UPDATE
SET by_input = excluded.by_input, by_code = excluded.by_code, by_check = excluded.by_check,
    upstream = excluded.upstream

-- name: delete_stale
DELETE FROM stale WHERE project = :project AND jobid = :jobid AND dataid = :dataid

-- name: job_codes
SELECT project, jobid, code, checks, runid FROM job_code WHERE :project IS NULL OR project = :project

-- name: put_job_code
INSERT INTO job_code (project, jobid, code, checks, runid) VALUES (:project, :jobid, :code, :checks, :runid)
ON CONFLICT (project, jobid) DO UPDATE SET code = excluded.code, checks = excluded.checks, runid = excluded.runid

-- name: list_stale
-- Only what is published: what is being made again is on its way.
SELECT s.project, s.jobid, s.dataid, s.by_input, s.by_code, s.by_check, s.upstream, s.since, m.runid, m.git_commit
FROM stale s
     CROSS JOIN job_status j ON j.project = s.project AND j.jobid = s.jobid AND j.dataid = s.dataid
     CROSS JOIN made m ON m.project = s.project AND m.jobid = s.jobid AND m.dataid = s.dataid
WHERE (:project IS NULL OR s.project = :project) AND (:jobid IS NULL OR s.jobid = :jobid) AND j.status = 'COMPLETE'
ORDER BY s.project, s.jobid, j.sortkey, s.dataid LIMIT :limit

-- name: count_stale
SELECT s.project, s.jobid, count(CASE WHEN s.by_input + s.by_code + s.by_check > 0 THEN 1 END), count(*)
FROM stale s CROSS JOIN job_status j ON j.project = s.project AND j.jobid = s.jobid AND j.dataid = s.dataid
WHERE (:project IS NULL OR s.project = :project) AND (:jobid IS NULL OR s.jobid = :jobid) AND j.status = 'COMPLETE'
GROUP BY s.project, s.jobid ORDER BY s.project, s.jobid

-- name: find_stale
SELECT s.by_input, s.by_code, s.by_check, s.upstream, s.since, m.runid, m.git_commit
FROM stale s CROSS JOIN made m ON m.project = s.project AND m.jobid = s.jobid AND m.dataid = s.dataid
WHERE s.project = :project AND s.jobid = :jobid AND s.dataid = :dataid

-- name: changed_inputs
-- The inputs that make a dataid stale: other content than it read, or made by a dataid that is stale itself.
SELECT f.dataset_project, f.datasetid, f.input_dataid, f.version, c.version,
       c.version IS NOT f.version
       AND (f.content IS NULL
            OR f.content IS NOT nullif(substr(c.fingerprint, instr(c.fingerprint, '/') + 1), '-')) AS is_other,
       u.jobid
FROM made_from f
     LEFT JOIN datastatus c ON c.project = f.dataset_project AND c.datasetid = f.datasetid
          AND c.dataid = f.input_dataid AND c.locktype = 'OUT' AND c.reader = ''
     LEFT JOIN job_dataset o ON o.dataset_project = f.dataset_project AND o.datasetid = f.datasetid
          AND o.itemtype = 'OUT'
     LEFT JOIN stale u ON u.project = o.project AND u.jobid = o.jobid AND u.dataid = f.input_dataid
WHERE f.project = :project AND f.jobid = :jobid AND f.dataid = :dataid AND (is_other OR u.jobid IS NOT NULL)
ORDER BY f.dataset_project, f.datasetid, f.input_dataid LIMIT :limit

-- name: to_heal
-- What is stale by itself: the rest follows from it.
SELECT s.project, s.jobid, s.dataid
FROM stale s
     CROSS JOIN job_status j ON j.project = s.project AND j.jobid = s.jobid AND j.dataid = s.dataid
     CROSS JOIN made m ON m.project = s.project AND m.jobid = s.jobid AND m.dataid = s.dataid
WHERE s.project = :project AND (:jobid IS NULL OR s.jobid = :jobid) AND s.by_input + s.by_code + s.by_check > 0
  AND j.status IN ('COMPLETE', 'RESUBMIT')
  AND (:made_by IS NULL OR substr(m.git_commit, 1, length(:made_by)) = :made_by)
ORDER BY s.project, s.jobid, j.sortkey, s.dataid

-- name: to_rerun
-- `on_change: rerun`: of jobs that say so, what has an input with other content than it read.
SELECT s.project, s.jobid, s.dataid
FROM job d CROSS JOIN stale s ON s.project = d.project AND s.jobid = d.jobid
     CROSS JOIN job_status j ON j.project = s.project AND j.jobid = s.jobid AND j.dataid = s.dataid
WHERE d.definition LIKE '%"on_change": "rerun"%' AND json_extract(d.definition, '$.on_change') = 'rerun'
  AND s.by_input = 1 AND j.status = 'COMPLETE'
LIMIT :limit

-- name: readers_behind
-- Who has another version of a chunk than is published now, by what they read; or all who have read it.
SELECT f.project, f.jobid, f.dataid
FROM made_from f
     CROSS JOIN job_status j ON j.project = f.project AND j.jobid = f.jobid AND j.dataid = f.dataid
     LEFT JOIN datastatus c ON c.project = f.dataset_project AND c.datasetid = f.datasetid
          AND c.dataid = f.input_dataid AND c.locktype = 'OUT' AND c.reader = ''
WHERE f.dataset_project = :project AND f.datasetid = :datasetid AND f.input_dataid = :dataid
  AND j.status = 'COMPLETE'
  AND (:all = 1 OR (c.version IS NOT f.version
                    AND (f.content IS NULL
                         OR f.content IS NOT nullif(substr(c.fingerprint, instr(c.fingerprint, '/') + 1), '-'))))
ORDER BY f.project, f.jobid, j.sortkey LIMIT :limit
