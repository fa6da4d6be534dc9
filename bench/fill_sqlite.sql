-- What SQLite holds after `behind` runs of the job `nop`, and `ahead` more dataids that are ready.

-- name: job_status
INSERT INTO job_status (project, jobid, dataid, status, waiting, attempts, runid)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :behind + :ahead)
SELECT 'bench', 'nop', CAST(i AS TEXT), CASE WHEN i <= :behind THEN 'COMPLETE' ELSE 'PENDING' END, 0,
       CASE WHEN i <= :behind THEN 1 ELSE 0 END, CASE WHEN i <= :behind THEN i END
FROM n

-- name: input_chunks
INSERT INTO datastatus (project, datasetid, dataid, locktype, status)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :behind + :ahead)
SELECT 'bench', d.datasetid, CAST(i AS TEXT), 'OUT', 'READY' FROM n CROSS JOIN dataset d WHERE d.datasetid LIKE 'in_%'

-- name: output_chunks
INSERT INTO datastatus (project, datasetid, dataid, locktype, jobid, status, version)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :behind + :ahead)
SELECT 'bench', 'done', CAST(i AS TEXT), 'OUT', 'nop', 'READY', i FROM n WHERE i <= :behind

-- name: manifests
INSERT INTO data_manifest (project, datasetid, dataid, version, created_at)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :behind + :ahead)
SELECT 'bench', 'done', CAST(i AS TEXT), i, strftime('%Y-%m-%dT%H:%M:%fZ', 'now') FROM n WHERE i <= :behind

-- name: runs
INSERT INTO run (runid, project, jobid, dataid, attempt, status, owner, host, pid, pid_started, guard_pid, guard_started,
                 claimed_at, ended_at, exit_code, answers, inputs)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :behind + :ahead)
SELECT i, 'bench', 'nop', CAST(i AS TEXT), 1, 'COMPLETE', 'bench@here:1', 'here', 1, 1, 1, 1, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 0,
       '[{"question": "ready", "yes": true, "code": "", "evidence": "in_0/1 READY since 2026-01-01T00:00:00.000Z"}]', '[]'
FROM n WHERE i <= :behind

-- name: history
INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :behind + :ahead)
SELECT h.kind, 'bench', h.name, CAST(i AS TEXT), h.old_status, h.new_status, i, 'bench@here:1'
FROM n CROSS JOIN (
    SELECT 'job' AS kind, 'nop' AS name, 'PENDING' AS old_status, 'RUNNING' AS new_status
    UNION ALL SELECT 'job', 'nop', 'RUNNING', 'COMPLETE'
    UNION ALL SELECT 'chunk', 'done', NULL, 'RUNNING'
    UNION ALL SELECT 'chunk', 'done', 'RUNNING', 'READY'
    UNION ALL SELECT 'chunk', 'in_0', NULL, 'READY') h
WHERE i <= :behind

-- name: token
UPDATE store SET last_token = :behind
