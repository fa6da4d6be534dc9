-- What dataids were made from and which are stale, on PostgreSQL. Events are worked in by one process at a time.

-- name: only_one
SELECT pg_try_advisory_xact_lock(hashtext('dataflow stale ' || current_schema()))::integer

-- name: is_behind
SELECT EXISTS (SELECT 1 FROM stale_event)::integer

-- name: take_events
-- They are there already.
SELECT 1

-- name: events_taken
SELECT 1

-- name: events
SELECT id, kind, project, name, dataid, after_dataid FROM stale_event ORDER BY id LIMIT %(limit)s

-- name: add_event
INSERT INTO stale_event (kind, project, name, dataid) VALUES (%(kind)s, %(project)s, %(name)s, %(dataid)s)

-- name: add_readers
-- Those who read what a dataid makes are to be compared.
INSERT INTO stale_event (kind, project, name, dataid)
SELECT 'readers', o.dataset_project, o.datasetid, %(dataid)s FROM job_dataset o
WHERE o.project = %(project)s AND o.jobid = %(jobid)s AND o.itemtype = 'OUT'
  AND EXISTS (SELECT 1 FROM job_dataset i
              WHERE i.dataset_project = o.dataset_project AND i.datasetid = o.datasetid AND i.itemtype = 'IN')

-- name: move_on
UPDATE stale_event SET after_project = %(after_project)s, after_jobid = %(after_jobid)s, after_dataid = %(after_dataid)s
WHERE id = %(id)s

-- name: delete_events
DELETE FROM stale_event WHERE id IN (SELECT value::bigint FROM json_array_elements_text(%(ids)s))

-- name: forget_asserted
-- Declared from outside meanwhile: no run of ours made it.
DELETE FROM made WHERE (project, jobid, dataid) IN
    (SELECT o.project, o.jobid, e.dataid
     FROM stale_event e
          JOIN datastatus c ON c.project = e.project AND c.datasetid = e.name AND c.dataid = e.dataid
                                     AND c.locktype = 'OUT' AND c.reader = ''
          JOIN job_dataset o ON o.dataset_project = e.project AND o.datasetid = e.name AND o.itemtype = 'OUT'
          JOIN made m ON m.project = o.project AND m.jobid = o.jobid AND m.dataid = e.dataid
     WHERE e.id IN (SELECT value::bigint FROM json_array_elements_text(%(ids)s)) AND e.kind = 'chunk' AND c.version IS DISTINCT FROM m.runid
       AND NOT EXISTS (SELECT 1 FROM run r WHERE r.runid = c.version))

-- name: record_made
INSERT INTO made (project, jobid, dataid, runid, code, checks, git_commit)
SELECT DISTINCT r.project, r.jobid, r.dataid, r.runid, r.code, r.checks,
       coalesce((SELECT v.git_commit FROM run_version v WHERE v.runid = r.runid),
                (SELECT q.git_commit FROM pipeline_run q WHERE q.runid = r.runid))
FROM stale_event e
     JOIN datastatus c ON c.project = e.project AND c.datasetid = e.name AND c.dataid = e.dataid
                                AND c.locktype = 'OUT' AND c.reader = ''
     JOIN run r ON r.runid = c.version AND r.dataid = e.dataid
WHERE e.id IN (SELECT value::bigint FROM json_array_elements_text(%(ids)s)) AND e.kind = 'chunk'
  AND EXISTS (SELECT 1 FROM job_dataset o
              WHERE o.dataset_project = e.project AND o.datasetid = e.name AND o.itemtype = 'OUT'
                AND o.project = r.project AND o.jobid = r.jobid)
ON CONFLICT (project, jobid, dataid) DO UPDATE
SET runid = excluded.runid, code = excluded.code, checks = excluded.checks, git_commit = excluded.git_commit
WHERE made.runid < excluded.runid

-- name: made_by_events
-- What the events are about, as it was made: where nobody can tell the code of a job from its files, its last run does.
SELECT DISTINCT m.project, m.jobid, m.dataid, m.runid, m.code, m.checks,
       k.jobid IS NULL OR (k.runid < m.runid AND (k.code IS DISTINCT FROM m.code OR k.checks IS DISTINCT FROM m.checks))
FROM stale_event e
     JOIN job_dataset o ON o.dataset_project = e.project AND o.datasetid = e.name AND o.itemtype = 'OUT'
     LEFT JOIN made m ON m.project = o.project AND m.jobid = o.jobid AND m.dataid = e.dataid
     LEFT JOIN job_code k ON k.project = o.project AND k.jobid = o.jobid
WHERE e.id IN (SELECT value::bigint FROM json_array_elements_text(%(ids)s)) AND e.kind = 'chunk'

-- name: forget_made_from
DELETE FROM made_from WHERE (project, jobid, dataid) IN
    (SELECT value->>0, value->>1, value->>2 FROM json_array_elements(%(nodes)s))

-- name: record_made_from
INSERT INTO made_from (dataset_project, datasetid, input_dataid, project, jobid, dataid, version, content)
SELECT i.value->>0, i.value->>1, i.value->>2, m.project, m.jobid, m.dataid, (i.value->>3)::bigint,
       content_of(i.value->>4)
FROM json_array_elements(%(nodes)s) n
     JOIN made m ON m.project = n.value->>0 AND m.jobid = n.value->>1 AND m.dataid = n.value->>2
     JOIN run r ON r.runid = m.runid
     CROSS JOIN json_array_elements(r.inputs) i
ON CONFLICT DO NOTHING

-- name: readers_page
-- Who read the chunks of these events, event by event, from where each of them has got to.
-- Of each no more than a page, so that nothing is sorted that is not needed.
SELECT e.id, f.project, f.jobid, f.dataid
FROM stale_event e
     CROSS JOIN LATERAL (
         SELECT r.project, r.jobid, r.dataid FROM made_from r
         WHERE r.dataset_project = e.project AND r.datasetid = e.name AND r.input_dataid = e.dataid
           AND (r.project, r.jobid, r.dataid) > (e.after_project, e.after_jobid, e.after_dataid)
         ORDER BY r.project, r.jobid, r.dataid LIMIT %(limit)s) f
WHERE e.id IN (SELECT value::bigint FROM json_array_elements_text(%(ids)s)) AND e.kind IN ('chunk', 'readers')
ORDER BY e.id, f.project, f.jobid, f.dataid LIMIT %(limit)s

-- name: made_page
SELECT dataid FROM made WHERE project = %(project)s AND jobid = %(jobid)s AND dataid > %(after)s ORDER BY dataid LIMIT %(limit)s

-- name: compare
-- Of each: what makes it stale, and what its row says so far (NULL: it has none).
SELECT n.project, n.jobid, n.dataid,
       EXISTS (SELECT 1 FROM made_from f
                    LEFT JOIN datastatus c ON c.project = f.dataset_project AND c.datasetid = f.datasetid
                         AND c.dataid = f.input_dataid AND c.locktype = 'OUT' AND c.reader = ''
               WHERE m.runid IS NOT NULL AND f.project = n.project AND f.jobid = n.jobid AND f.dataid = n.dataid
                 AND c.version IS DISTINCT FROM f.version
                 AND (f.content IS NULL
                      OR f.content IS DISTINCT FROM content_of(c.fingerprint))),
       coalesce(m.code <> k.code, false), coalesce(m.checks <> k.checks, false),
       EXISTS (SELECT 1 FROM made_from f
                    JOIN job_dataset o ON o.dataset_project = f.dataset_project AND o.datasetid = f.datasetid
                                                AND o.itemtype = 'OUT'
                    JOIN stale u ON u.project = o.project AND u.jobid = o.jobid AND u.dataid = f.input_dataid
               WHERE m.runid IS NOT NULL AND f.project = n.project AND f.jobid = n.jobid AND f.dataid = n.dataid),
       s.by_input, s.by_code, s.by_check, s.upstream
FROM (SELECT value->>0 AS project, value->>1 AS jobid, value->>2 AS dataid
      FROM json_array_elements(%(nodes)s)) n
     LEFT JOIN made m ON m.project = n.project AND m.jobid = n.jobid AND m.dataid = n.dataid
     LEFT JOIN job_code k ON k.project = n.project AND k.jobid = n.jobid
     LEFT JOIN stale s ON s.project = n.project AND s.jobid = n.jobid AND s.dataid = n.dataid

-- name: put_stale
INSERT INTO stale (project, jobid, dataid, by_input, by_code, by_check, upstream)
VALUES (%(project)s, %(jobid)s, %(dataid)s, %(by_input)s, %(by_code)s, %(by_check)s, %(upstream)s)
ON CONFLICT (project, jobid, dataid) DO UPDATE
SET by_input = excluded.by_input, by_code = excluded.by_code, by_check = excluded.by_check,
    upstream = excluded.upstream

-- name: delete_stale
DELETE FROM stale WHERE project = %(project)s AND jobid = %(jobid)s AND dataid = %(dataid)s

-- name: job_codes
SELECT project, jobid, code, checks, runid FROM job_code WHERE %(project)s::text IS NULL OR project = %(project)s

-- name: put_job_code
INSERT INTO job_code (project, jobid, code, checks, runid) VALUES (%(project)s, %(jobid)s, %(code)s, %(checks)s, %(runid)s)
ON CONFLICT (project, jobid) DO UPDATE SET code = excluded.code, checks = excluded.checks, runid = excluded.runid

-- name: list_stale
-- Only what is published: what is being made again is on its way.
SELECT s.project, s.jobid, s.dataid, s.by_input, s.by_code, s.by_check, s.upstream, s.since, m.runid, m.git_commit
FROM stale s
     JOIN job_status j ON j.project = s.project AND j.jobid = s.jobid AND j.dataid = s.dataid
     JOIN made m ON m.project = s.project AND m.jobid = s.jobid AND m.dataid = s.dataid
WHERE (%(project)s::text IS NULL OR s.project = %(project)s) AND (%(jobid)s::text IS NULL OR s.jobid = %(jobid)s) AND j.status = 'COMPLETE'
ORDER BY s.project, s.jobid, j.sortkey, s.dataid LIMIT %(limit)s

-- name: count_stale
SELECT s.project, s.jobid, count(CASE WHEN s.by_input + s.by_code + s.by_check > 0 THEN 1 END), count(*)
FROM stale s JOIN job_status j ON j.project = s.project AND j.jobid = s.jobid AND j.dataid = s.dataid
WHERE (%(project)s::text IS NULL OR s.project = %(project)s) AND (%(jobid)s::text IS NULL OR s.jobid = %(jobid)s) AND j.status = 'COMPLETE'
GROUP BY s.project, s.jobid ORDER BY s.project, s.jobid

-- name: find_stale
SELECT s.by_input, s.by_code, s.by_check, s.upstream, s.since, m.runid, m.git_commit
FROM stale s JOIN made m ON m.project = s.project AND m.jobid = s.jobid AND m.dataid = s.dataid
WHERE s.project = %(project)s AND s.jobid = %(jobid)s AND s.dataid = %(dataid)s

-- name: changed_inputs
-- The inputs that make a dataid stale: other content than it read, or made by a dataid that is stale itself.
SELECT f.dataset_project, f.datasetid, f.input_dataid, f.version, c.version,
       c.version IS DISTINCT FROM f.version
       AND (f.content IS NULL
            OR f.content IS DISTINCT FROM content_of(c.fingerprint)) AS is_other,
       u.jobid
FROM made_from f
     LEFT JOIN datastatus c ON c.project = f.dataset_project AND c.datasetid = f.datasetid
          AND c.dataid = f.input_dataid AND c.locktype = 'OUT' AND c.reader = ''
     LEFT JOIN job_dataset o ON o.dataset_project = f.dataset_project AND o.datasetid = f.datasetid
          AND o.itemtype = 'OUT'
     LEFT JOIN stale u ON u.project = o.project AND u.jobid = o.jobid AND u.dataid = f.input_dataid
WHERE f.project = %(project)s AND f.jobid = %(jobid)s AND f.dataid = %(dataid)s AND (u.jobid IS NOT NULL OR c.version IS DISTINCT FROM f.version
       AND (f.content IS NULL OR f.content IS DISTINCT FROM content_of(c.fingerprint)))
ORDER BY f.dataset_project, f.datasetid, f.input_dataid LIMIT %(limit)s

-- name: to_heal
-- What is stale by itself: the rest follows from it.
SELECT s.project, s.jobid, s.dataid
FROM stale s
     JOIN job_status j ON j.project = s.project AND j.jobid = s.jobid AND j.dataid = s.dataid
     JOIN made m ON m.project = s.project AND m.jobid = s.jobid AND m.dataid = s.dataid
WHERE s.project = %(project)s AND (%(jobid)s::text IS NULL OR s.jobid = %(jobid)s) AND s.by_input + s.by_code + s.by_check > 0
  AND j.status IN ('COMPLETE', 'RESUBMIT')
  AND (%(made_by)s::text IS NULL OR substr(m.git_commit, 1, length(%(made_by)s)) = %(made_by)s)
ORDER BY s.project, s.jobid, j.sortkey, s.dataid

-- name: to_rerun
-- `on_change: rerun`: of jobs that say so, what has an input with other content than it read.
SELECT s.project, s.jobid, s.dataid
FROM job d JOIN stale s ON s.project = d.project AND s.jobid = d.jobid
     JOIN job_status j ON j.project = s.project AND j.jobid = s.jobid AND j.dataid = s.dataid
WHERE d.definition LIKE '%%"on_change": "rerun"%%' AND d.definition::json->>'on_change' = 'rerun'
  AND s.by_input = 1 AND j.status = 'COMPLETE'
LIMIT %(limit)s

-- name: readers_behind
-- Who has another version of a chunk than is published now, by what they read; or all who have read it.
SELECT f.project, f.jobid, f.dataid
FROM made_from f
     JOIN job_status j ON j.project = f.project AND j.jobid = f.jobid AND j.dataid = f.dataid
     LEFT JOIN datastatus c ON c.project = f.dataset_project AND c.datasetid = f.datasetid
          AND c.dataid = f.input_dataid AND c.locktype = 'OUT' AND c.reader = ''
WHERE f.dataset_project = %(project)s AND f.datasetid = %(datasetid)s AND f.input_dataid = %(dataid)s
  AND j.status = 'COMPLETE'
  AND (%(all)s = 1 OR (c.version IS DISTINCT FROM f.version
                    AND (f.content IS NULL
                         OR f.content IS DISTINCT FROM content_of(c.fingerprint))))
ORDER BY f.project, f.jobid, j.sortkey LIMIT %(limit)s
