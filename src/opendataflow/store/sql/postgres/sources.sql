-- Sources on PostgreSQL: a page of datasets with their last test, what was bound, and who reads and writes them.

-- name: list_sources
SELECT d.project, d.datasetid, d.hostname, d.database, d.schemaname, d.tablename, d.username, d.encryptedpass, d.location,
       d.format, d.partitions, d.definition, d.clock, t.tested_at, t.tested_by, t.answered, t.said
FROM dataset d
LEFT JOIN source_test t ON t.project = d.project AND t.datasetid = d.datasetid
WHERE d.clock IS NULL AND (%(project)s::text IS NULL OR d.project = %(project)s)
  AND (%(datasetid)s::text IS NULL OR d.datasetid = %(datasetid)s)
ORDER BY d.project, d.datasetid LIMIT %(limit)s OFFSET %(offset)s

-- name: count_sources
SELECT count(*) FROM dataset d WHERE d.clock IS NULL AND (%(project)s::text IS NULL OR d.project = %(project)s)

-- name: links_between
SELECT dataset_project, datasetid, itemtype, project, jobid FROM job_dataset
WHERE (dataset_project, datasetid) >= (%(first_project)s, %(first_datasetid)s)
  AND (dataset_project, datasetid) <= (%(last_project)s, %(last_datasetid)s)
ORDER BY dataset_project, datasetid, itemtype, project, jobid

-- name: list_bindings
SELECT datasetid, field, value, bound_by, bound_at FROM source_binding
WHERE project = %(project)s AND (%(datasetid)s::text IS NULL OR datasetid = %(datasetid)s)
ORDER BY datasetid, field

-- name: bindings_between
SELECT project, datasetid, field, bound_by, bound_at FROM source_binding
WHERE (project, datasetid) >= (%(first_project)s, %(first_datasetid)s)
  AND (project, datasetid) <= (%(last_project)s, %(last_datasetid)s)
ORDER BY project, datasetid, field

-- name: put_test
INSERT INTO source_test (project, datasetid, tested_at, tested_by, answered, said)
VALUES (%(project)s, %(datasetid)s, from_now(%(now)s), %(tested_by)s, %(answered)s, %(said)s)
ON CONFLICT (project, datasetid) DO UPDATE
SET tested_at = excluded.tested_at, tested_by = excluded.tested_by, answered = excluded.answered, said = excluded.said

-- name: project_names
SELECT project FROM project ORDER BY project
