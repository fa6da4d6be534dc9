-- What goes on now: for pages that are looked at all day.

-- name: running
SELECT s.project, s.jobid, s.dataid, s.runid, s.owner, r.claimed_at, s.lease_until, s.lease_until < from_now(%(now)s), r.attempt,
       (SELECT a.asked_by FROM abort_request a WHERE a.runid = s.runid)
FROM job_status s JOIN run r ON r.runid = s.runid
WHERE s.status = 'RUNNING' AND (%(project)s::text IS NULL OR s.project = %(project)s)
ORDER BY s.project, s.jobid, s.lease_until LIMIT %(limit)s

-- name: count_running
SELECT count(*) FROM job_status
WHERE status = 'RUNNING' AND (%(project)s::text IS NULL OR project = %(project)s)

-- name: ended
-- Of the newest runs, however many there were: those that ended since, by outcome; and since when that is all of them.
SELECT status, count(*), sum(CASE WHEN ended_at >= from_now(%(hour)s) THEN 1 ELSE 0 END), min(claimed_at)
FROM (SELECT status, ended_at, claimed_at, project FROM run WHERE runid >= %(lowest)s ORDER BY runid DESC LIMIT %(limit)s) r
WHERE ended_at >= from_now(%(day)s) AND (%(project)s::text IS NULL OR project = %(project)s)
GROUP BY status

-- name: count_newest
SELECT count(*), min(claimed_at)
FROM (SELECT claimed_at FROM run WHERE runid >= %(lowest)s ORDER BY runid DESC LIMIT %(limit)s) r

-- name: manifests_of_run
SELECT m.project, m.datasetid, m.dataid, m.version, m.location, m.files, m.bytes, m.rows, m.fingerprint, m.validated_at,
       m.created_at, c.status, c.version
FROM job_dataset l JOIN data_manifest m
         ON m.project = l.dataset_project AND m.datasetid = l.datasetid AND m.dataid = %(dataid)s AND m.version = %(runid)s
     LEFT JOIN datastatus c ON c.project = m.project AND c.datasetid = m.datasetid AND c.dataid = m.dataid
                               AND c.locktype = 'OUT' AND c.reader = ''
WHERE l.project = %(project)s AND l.jobid = %(jobid)s AND l.itemtype = 'OUT'
ORDER BY l.position
