-- What PostgreSQL holds after `behind` runs of the job `nop`, and `ahead` more dataids that are ready.

-- name: job_status
INSERT INTO job_status (project, jobid, dataid, sortkey, status, waiting, attempts, runid)
WITH n(i) AS (SELECT generate_series(1, %(behind)s + %(ahead)s))
SELECT 'bench', 'nop', CAST(i AS text), natural_key(CAST(i AS text)), CASE WHEN i <= %(behind)s THEN 'COMPLETE' ELSE 'PENDING' END, 0,
       CASE WHEN i <= %(behind)s THEN 1 ELSE 0 END, CASE WHEN i <= %(behind)s THEN i END
FROM n

-- name: input_chunks
INSERT INTO datastatus (project, datasetid, dataid, locktype, status)
WITH n(i) AS (SELECT generate_series(1, %(behind)s + %(ahead)s))
SELECT 'bench', d.datasetid, CAST(i AS text), 'OUT', 'READY' FROM n CROSS JOIN dataset d WHERE d.datasetid LIKE 'in_%%'

-- name: output_chunks
INSERT INTO datastatus (project, datasetid, dataid, locktype, jobid, status, version)
WITH n(i) AS (SELECT generate_series(1, %(behind)s + %(ahead)s))
SELECT 'bench', 'done', CAST(i AS text), 'OUT', 'nop', 'READY', i FROM n WHERE i <= %(behind)s

-- name: manifests
INSERT INTO data_manifest (project, datasetid, dataid, version, created_at)
WITH n(i) AS (SELECT generate_series(1, %(behind)s + %(ahead)s))
SELECT 'bench', 'done', CAST(i AS text), i, clock_timestamp() FROM n WHERE i <= %(behind)s

-- name: runs
INSERT INTO run (runid, project, jobid, dataid, attempt, status, owner, host, pid, pid_started, guard_pid, guard_started,
                 claimed_at, ended_at, exit_code, answers, inputs)
WITH n(i) AS (SELECT generate_series(1, %(behind)s + %(ahead)s))
SELECT i, 'bench', 'nop', CAST(i AS text), 1, 'COMPLETE', 'bench@here:1', 'here', 1, 1, 1, 1, clock_timestamp(), clock_timestamp(), 0,
       '[{"question": "ready", "yes": true, "code": "", "evidence": "in_0/1 READY since 2026-01-01T00:00:00.000Z"}]', '[]'
FROM n WHERE i <= %(behind)s

-- name: history
INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
WITH n(i) AS (SELECT generate_series(1, %(behind)s + %(ahead)s))
SELECT h.kind, 'bench', h.name, CAST(i AS text), h.old_status, h.new_status, i, 'bench@here:1'
FROM n CROSS JOIN (
    SELECT 'job' AS kind, 'nop' AS name, 'PENDING' AS old_status, 'RUNNING' AS new_status
    UNION ALL SELECT 'job', 'nop', 'RUNNING', 'COMPLETE'
    UNION ALL SELECT 'chunk', 'done', NULL, 'RUNNING'
    UNION ALL SELECT 'chunk', 'done', 'RUNNING', 'READY'
    UNION ALL SELECT 'chunk', 'in_0', NULL, 'READY') h
WHERE i <= %(behind)s

-- name: token
SELECT setval('run_token', greatest(%(behind)s, 1))
