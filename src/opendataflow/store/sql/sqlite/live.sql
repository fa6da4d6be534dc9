-- What goes on now: for pages that are looked at all day.

-- name: running
SELECT s.project, s.jobid, s.dataid, s.runid, s.owner, r.claimed_at, s.lease_until, s.lease_until < :now, r.attempt,
       (SELECT a.asked_by FROM abort_request a WHERE a.runid = s.runid)
FROM job_status s INDEXED BY job_status_running JOIN run r ON r.runid = s.runid
WHERE s.status = 'RUNNING' AND (:project IS NULL OR s.project = :project)
ORDER BY s.project, s.jobid, s.lease_until LIMIT :limit

-- name: count_running
SELECT count(*) FROM job_status INDEXED BY job_status_running
WHERE status = 'RUNNING' AND (:project IS NULL OR project = :project)

-- name: ended
-- Of the newest runs, however many there were: those that ended since, by outcome; and since when that is all of them.
SELECT status, count(*), sum(CASE WHEN ended_at >= :hour THEN 1 ELSE 0 END), min(claimed_at)
FROM (SELECT status, ended_at, claimed_at, project FROM run WHERE runid >= :lowest ORDER BY runid DESC LIMIT :limit) r
WHERE ended_at >= :day AND (:project IS NULL OR project = :project)
GROUP BY status

-- name: count_newest
SELECT count(*), min(claimed_at)
FROM (SELECT claimed_at FROM run WHERE runid >= :lowest ORDER BY runid DESC LIMIT :limit) r

-- name: manifests_of_run
SELECT m.project, m.datasetid, m.dataid, m.version, m.location, m.files, m.bytes, m.rows, m.fingerprint, m.validated_at,
       m.created_at, c.status, c.version
FROM job_dataset l JOIN data_manifest m
         ON m.project = l.dataset_project AND m.datasetid = l.datasetid AND m.dataid = :dataid AND m.version = :runid
     LEFT JOIN datastatus c ON c.project = m.project AND c.datasetid = m.datasetid AND c.dataid = m.dataid
                               AND c.locktype = 'OUT' AND c.reader = ''
WHERE l.project = :project AND l.jobid = :jobid AND l.itemtype = 'OUT'
ORDER BY l.position
