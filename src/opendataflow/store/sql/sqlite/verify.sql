-- Is what was published still there, on SQLite.

-- name: ready_page
-- READY chunks by dataset and dataid, from somewhere on; `ours`: those of one dataset, or of all of a project.
SELECT c.project, c.datasetid, c.dataid, c.version, c.location, c.fingerprint
FROM datastatus c
WHERE (c.project, c.datasetid, c.dataid) > (:after_project, :after_datasetid, :after_dataid)
  AND (:project IS NULL OR c.project = :project) AND (:datasetid IS NULL OR c.datasetid = :datasetid)
  AND c.locktype = 'OUT' AND c.reader = '' AND c.status = 'READY' AND c.fingerprint IS NOT NULL
ORDER BY c.project, c.datasetid, c.dataid LIMIT :limit

-- name: ready_chunk
SELECT c.project, c.datasetid, c.dataid, c.version, c.location, c.fingerprint
FROM datastatus c
WHERE c.project = :project AND c.datasetid = :datasetid AND c.dataid = :dataid AND c.locktype = 'OUT' AND c.reader = ''
  AND c.status = 'READY'

-- name: put_damage
-- Only of the version that was looked at, while it is the one that is published.
INSERT INTO chunk_damage (project, datasetid, dataid, version, finding)
SELECT c.project, c.datasetid, c.dataid, c.version, :finding FROM datastatus c
WHERE c.project = :project AND c.datasetid = :datasetid AND c.dataid = :dataid AND c.locktype = 'OUT' AND c.reader = ''
  AND c.status = 'READY' AND c.version IS :version
ON CONFLICT (project, datasetid, dataid) DO UPDATE
SET version = excluded.version, finding = excluded.finding, seen_at = excluded.seen_at
WHERE chunk_damage.version IS NOT excluded.version OR chunk_damage.finding <> excluded.finding

-- name: delete_damage
DELETE FROM chunk_damage WHERE project = :project AND datasetid = :datasetid AND dataid = :dataid

-- name: list_damage
SELECT w.project, w.datasetid, w.dataid, w.finding, w.seen_at, c.version,
       (SELECT o.jobid FROM job_dataset o
        WHERE o.dataset_project = w.project AND o.datasetid = w.datasetid AND o.itemtype = 'OUT')
FROM chunk_damage w
     CROSS JOIN datastatus c ON c.project = w.project AND c.datasetid = w.datasetid AND c.dataid = w.dataid
                                AND c.locktype = 'OUT' AND c.reader = '' AND c.status = 'READY'
                                AND c.version IS w.version
WHERE (:project IS NULL OR w.project = :project) AND (:datasetid IS NULL OR w.datasetid = :datasetid)
  AND (:dataid IS NULL OR w.dataid = :dataid)
ORDER BY w.project, w.datasetid, w.dataid LIMIT :limit
