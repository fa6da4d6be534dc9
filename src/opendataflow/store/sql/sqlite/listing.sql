-- What is registered, on SQLite.

-- name: datasets
SELECT project, datasetid, hostname, database, schemaname, tablename, username, encryptedpass, location, format,
       partitions, definition, clock, modified
FROM dataset WHERE :project IS NULL OR project = :project ORDER BY project, datasetid

-- name: jobs
SELECT project, jobid, kind, script, definition, partitions, lease_seconds, timeout_seconds, retries_max,
       backoff_seconds, concurrency, strict, catchup, scaled_to, braked_to, max_runs,
       CASE WHEN paused_until IS NULL OR paused_until > strftime('%Y-%m-%dT%H:%M:%fZ', 'now') THEN paused_by END, paused_at, paused_until,
       expected_upto, modified
FROM job WHERE :project IS NULL OR project = :project ORDER BY project, jobid

-- name: links
-- Also those by which other projects read its datasets.
SELECT project, jobid, itemtype, dataset_project, datasetid, map
FROM job_dataset WHERE :project IS NULL OR project = :project OR dataset_project = :project
ORDER BY project, jobid, itemtype, position
