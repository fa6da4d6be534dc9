-- Is what was published still there, on PostgreSQL.

-- name: ready_page
-- READY chunks by dataset and dataid, from somewhere on; `ours`: those of one dataset, or of all of a project.
SELECT c.project, c.datasetid, c.dataid, c.version, c.location, c.fingerprint
FROM datastatus c
WHERE (c.project, c.datasetid, c.dataid) > (%(after_project)s, %(after_datasetid)s, %(after_dataid)s)
  AND (%(project)s::text IS NULL OR c.project = %(project)s) AND (%(datasetid)s::text IS NULL OR c.datasetid = %(datasetid)s)
  AND c.locktype = 'OUT' AND c.reader = '' AND c.status = 'READY' AND c.fingerprint IS NOT NULL
ORDER BY c.project, c.datasetid, c.dataid LIMIT %(limit)s

-- name: ready_chunk
SELECT c.project, c.datasetid, c.dataid, c.version, c.location, c.fingerprint
FROM datastatus c
WHERE c.project = %(project)s AND c.datasetid = %(datasetid)s AND c.dataid = %(dataid)s AND c.locktype = 'OUT' AND c.reader = ''
  AND c.status = 'READY'

-- name: put_damage
-- Only of the version that was looked at, while it is the one that is published.
INSERT INTO chunk_damage (project, datasetid, dataid, version, finding)
SELECT c.project, c.datasetid, c.dataid, c.version, %(finding)s FROM datastatus c
WHERE c.project = %(project)s AND c.datasetid = %(datasetid)s AND c.dataid = %(dataid)s AND c.locktype = 'OUT' AND c.reader = ''
  AND c.status = 'READY' AND c.version IS NOT DISTINCT FROM %(version)s
ON CONFLICT (project, datasetid, dataid) DO UPDATE
SET version = excluded.version, finding = excluded.finding, seen_at = excluded.seen_at
WHERE chunk_damage.version IS DISTINCT FROM excluded.version OR chunk_damage.finding <> excluded.finding

-- name: delete_damage
DELETE FROM chunk_damage WHERE project = %(project)s AND datasetid = %(datasetid)s AND dataid = %(dataid)s

-- name: list_damage
SELECT w.project, w.datasetid, w.dataid, w.finding, w.seen_at, c.version,
       (SELECT o.jobid FROM job_dataset o
        WHERE o.dataset_project = w.project AND o.datasetid = w.datasetid AND o.itemtype = 'OUT')
FROM chunk_damage w
     JOIN datastatus c ON c.project = w.project AND c.datasetid = w.datasetid AND c.dataid = w.dataid
                                AND c.locktype = 'OUT' AND c.reader = '' AND c.status = 'READY'
                                AND c.version IS NOT DISTINCT FROM w.version
WHERE (%(project)s::text IS NULL OR w.project = %(project)s) AND (%(datasetid)s::text IS NULL OR w.datasetid = %(datasetid)s)
  AND (%(dataid)s::text IS NULL OR w.dataid = %(dataid)s)
ORDER BY w.project, w.datasetid, w.dataid LIMIT %(limit)s
