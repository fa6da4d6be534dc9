-- Looking at everything: the overview of `status`, and what blocks what.

-- name: latest_chunks
SELECT dataid, status FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND reader = ''
ORDER BY dataid DESC LIMIT %(limit)s

-- name: chunks_between
SELECT dataid, status FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND reader = ''
  AND dataid BETWEEN %(first)s AND %(last)s

-- name: ready_outside
-- Chunks of slots before the first or after the last: two ranges of the key, so that those between are not counted.
SELECT (SELECT count(*) FROM datastatus
        WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND reader = ''
          AND status = 'READY' AND dataid < %(first)s)
     + (SELECT count(*) FROM datastatus
        WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND reader = ''
          AND status = 'READY' AND dataid > %(last)s)

-- name: chunks_of
SELECT dataid, status, version, location, fingerprint, validated_at, problem, modified FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND reader = ''

-- name: datasets
SELECT project, datasetid, partitions, clock,
       (SELECT p.jobid FROM job_dataset p
        WHERE p.dataset_project = d.project AND p.datasetid = d.datasetid AND p.itemtype = 'OUT')
FROM dataset d WHERE %(project)s::text IS NULL OR project = %(project)s ORDER BY project, datasetid

-- name: failed_rows
SELECT s.project, s.jobid, s.dataid, s.status, s.waiting, s.parked_until, s.refusal::text, r.message
FROM job_status s LEFT JOIN run r ON r.runid = s.runid
WHERE s.status = 'FAILED' AND (%(project)s::text IS NULL OR s.project = %(project)s)
ORDER BY s.project, s.jobid, s.sortkey, s.dataid LIMIT %(limit)s

-- name: blocked_rows
SELECT s.project, s.jobid, s.dataid, s.status, s.waiting, s.parked_until, s.refusal::text, ''
FROM job_status s
WHERE (s.status = 'HOLD' OR (s.status IN ('PENDING', 'RESUBMIT') AND (s.waiting > 0 OR s.parked_until IS NOT NULL)))
  AND (%(project)s::text IS NULL OR s.project = %(project)s)
ORDER BY s.project, s.jobid, s.sortkey, s.dataid LIMIT %(limit)s

-- name: holders
-- Who put the dataids on HOLD that are, and why.
SELECT s.project, s.jobid, s.dataid,
       (SELECT h.actor FROM history h
        WHERE h.dataid = s.dataid AND h.name = s.jobid AND h.project = s.project AND h.kind = 'job' AND h.new_status = 'HOLD'
        ORDER BY h.id DESC LIMIT 1)
FROM job_status s
WHERE s.status = 'HOLD' AND (%(project)s::text IS NULL OR s.project = %(project)s)
ORDER BY s.project, s.jobid, s.sortkey, s.dataid LIMIT %(limit)s

-- name: running_rows
SELECT s.project, s.jobid, s.dataid, s.owner, s.lease_until < from_now(%(now)s) FROM job_status s
WHERE s.status = 'RUNNING' AND (%(project)s::text IS NULL OR s.project = %(project)s)

-- name: missing_inputs
-- For the first that wait, as blocked_rows has them: the chunks that are not READY, and who makes them.
SELECT s.project, s.jobid, s.dataid, l.dataset_project, l.datasetid, s.dataid, c.status, c.problem
FROM (SELECT s.project, s.jobid, s.dataid, s.waiting FROM job_status s
      WHERE (s.status = 'HOLD' OR (s.status IN ('PENDING', 'RESUBMIT') AND (s.waiting > 0 OR s.parked_until IS NOT NULL)))
        AND (%(project)s::text IS NULL OR s.project = %(project)s)
      ORDER BY s.project, s.jobid, s.sortkey, s.dataid LIMIT %(limit)s) s
     JOIN job_dataset l ON true
     LEFT JOIN datastatus c ON c.project = l.dataset_project AND c.datasetid = l.datasetid AND c.dataid = s.dataid
                               AND c.locktype = 'OUT' AND c.reader = ''
WHERE s.waiting > 0
  AND l.project = s.project AND l.jobid = s.jobid AND l.itemtype = 'IN' AND l.map = 'same' AND c.status IS DISTINCT FROM 'READY'
UNION ALL
SELECT s.project, s.jobid, s.dataid, e.dataset_project, e.datasetid, e.dataid, c.status, c.problem
FROM (SELECT s.project, s.jobid, s.dataid, s.waiting FROM job_status s
      WHERE (s.status = 'HOLD' OR (s.status IN ('PENDING', 'RESUBMIT') AND (s.waiting > 0 OR s.parked_until IS NOT NULL)))
        AND (%(project)s::text IS NULL OR s.project = %(project)s)
      ORDER BY s.project, s.jobid, s.sortkey, s.dataid LIMIT %(limit)s) s
     JOIN job_input e ON true
     LEFT JOIN datastatus c ON c.project = e.dataset_project AND c.datasetid = e.datasetid AND c.dataid = e.dataid
                               AND c.locktype = 'OUT' AND c.reader = ''
WHERE s.waiting > 0
  AND e.project = s.project AND e.jobid = s.jobid AND e.job_dataid = s.dataid AND c.status IS DISTINCT FROM 'READY'

-- name: missing_shared
-- Jobs whose every dataid waits for a chunk `full`, and how many do.
SELECT j.project, j.jobid, l.dataset_project, l.datasetid, c.status, c.problem,
       (SELECT count(*) FROM job_status s
        WHERE s.project = j.project AND s.jobid = j.jobid
          AND s.status IN ('PENDING', 'RESUBMIT') AND s.waiting <= 0 AND s.parked_until IS NULL)
FROM job j JOIN job_dataset l ON l.project = j.project AND l.jobid = j.jobid AND l.itemtype = 'IN' AND l.map = 'full'
     LEFT JOIN datastatus c ON c.project = l.dataset_project AND c.datasetid = l.datasetid AND c.dataid = 'full'
                               AND c.locktype = 'OUT' AND c.reader = ''
WHERE j.shared_waiting > 0 AND c.status IS DISTINCT FROM 'READY' AND (%(project)s::text IS NULL OR j.project = %(project)s)

-- name: paused_jobs
SELECT j.project, j.jobid, j.paused_by,
       (SELECT count(*) FROM job_status s
        WHERE s.project = j.project AND s.jobid = j.jobid
          AND s.status IN ('PENDING', 'RESUBMIT') AND s.waiting <= 0 AND s.parked_until IS NULL),
       j.paused_until
FROM job j
WHERE j.paused_by IS NOT NULL AND (j.paused_until IS NULL OR j.paused_until > clock_timestamp()) AND (%(project)s::text IS NULL OR j.project = %(project)s)

-- name: closed_jobs
-- Jobs of which nothing starts because a limit is 0: their own (no name), or a connection's; and how many could run.
SELECT j.project, j.jobid, z.name,
       (SELECT count(*) FROM job_status s
        WHERE s.project = j.project AND s.jobid = j.jobid
          AND s.status IN ('PENDING', 'RESUBMIT') AND s.waiting <= 0 AND s.parked_until IS NULL)
FROM job j JOIN (SELECT project, jobid, '' AS name FROM job WHERE max_runs = 0
                 UNION ALL
                 SELECT u.project, u.jobid, c.name FROM connection_limit c JOIN job_connection u ON u.name = c.name
                 WHERE c.max_runs = 0) z ON z.project = j.project AND z.jobid = j.jobid
WHERE (%(project)s::text IS NULL OR j.project = %(project)s)

-- name: ready_jobs
-- How many dataids of each job could run.
SELECT project, jobid, count(*) FROM job_status
WHERE status IN ('PENDING', 'RESUBMIT') AND waiting <= 0 AND parked_until IS NULL
  AND (%(project)s::text IS NULL OR project = %(project)s)
GROUP BY project, jobid

-- name: all_links
SELECT project, jobid, itemtype, dataset_project, datasetid FROM job_dataset
WHERE %(project)s::text IS NULL OR project = %(project)s

-- name: all_jobs
SELECT project, jobid, kind, script FROM job WHERE %(project)s::text IS NULL OR project = %(project)s
ORDER BY project, jobid

-- What is open of a job, without looking at what is done -------------------------------------------------------------
-- name: plan_counts
SELECT 'ready', count(*) FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s
  AND status IN ('PENDING', 'RESUBMIT') AND waiting <= 0 AND parked_until IS NULL
UNION ALL
SELECT 'waiting', count(*) FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s
  AND (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
  AND status <> 'HOLD' AND waiting > 0
UNION ALL
SELECT 'parked', count(*) FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s
  AND (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
  AND status <> 'HOLD' AND waiting <= 0
UNION ALL
SELECT 'held', count(*) FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s
  AND (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
  AND status = 'HOLD'
UNION ALL
SELECT 'retrying', count(*) FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s AND status = 'FAILED' AND parked_until IS NOT NULL
UNION ALL
SELECT 'failed', count(*) FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s AND status = 'FAILED' AND parked_until IS NULL
UNION ALL
SELECT 'running', count(*) FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s AND status = 'RUNNING'

-- name: plan_shared
SELECT shared_waiting FROM job WHERE project = %(project)s AND jobid = %(jobid)s

-- name: parked_refusals
SELECT dataid, refusal::text FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s
  AND (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
  AND status <> 'HOLD' AND waiting <= 0
ORDER BY sortkey, dataid

-- name: plan_next
SELECT dataid FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s
  AND status IN ('PENDING', 'RESUBMIT') AND waiting <= 0 AND parked_until IS NULL
ORDER BY sortkey, dataid LIMIT %(limit)s

-- name: open_rows
SELECT dataid, status, waiting, parked_until, refusal::text FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s
  AND status IN ('PENDING', 'RESUBMIT') AND waiting <= 0 AND parked_until IS NULL
UNION ALL
SELECT dataid, status, waiting, parked_until, refusal::text FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s
  AND (status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL)))
UNION ALL
SELECT dataid, status, waiting, parked_until, refusal::text FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s AND status = 'FAILED'
UNION ALL
SELECT dataid, status, waiting, parked_until, refusal::text FROM job_status
WHERE project = %(project)s AND jobid = %(jobid)s AND status = 'RUNNING'

-- name: chunk_statuses
SELECT dataid, status, problem FROM datastatus
WHERE project = %(project)s AND datasetid = %(datasetid)s AND locktype = 'OUT' AND reader = ''

-- name: behind_failed
-- How many dataids of each job wait for something that failed for good, at whatever distance. Looks at what failed and
-- what waits for it, and at no more than so many of these. OFFSET 0, and what waits is asked outside: each is sought
-- by its key; the planner thinks as well of an index of all that waits, and reads the whole of it each time.
WITH RECURSIVE behind (project, jobid, dataid, is_root) AS (
    SELECT project, jobid, dataid, true FROM job_status
    WHERE status = 'FAILED' AND parked_until IS NULL
    UNION
    SELECT n.project, n.jobid, n.dataid, false
    FROM behind b JOIN job_dataset o ON o.project = b.project AND o.jobid = b.jobid AND o.itemtype = 'OUT'
         CROSS JOIN LATERAL (
             SELECT s.project, s.jobid, s.dataid, s.status IN ('PENDING', 'RESUBMIT') AND s.waiting > 0 AS waits
             FROM job_dataset l JOIN job_status s ON s.project = l.project AND s.jobid = l.jobid AND s.dataid = b.dataid
             WHERE l.dataset_project = o.dataset_project AND l.datasetid = o.datasetid AND l.itemtype = 'IN'
               AND l.map = 'same'
             UNION ALL
             SELECT s.project, s.jobid, s.dataid, s.status IN ('PENDING', 'RESUBMIT') AND s.waiting > 0
             FROM job_input e JOIN job_status s ON s.project = e.project AND s.jobid = e.jobid AND s.dataid = e.job_dataid
             WHERE e.dataset_project = o.dataset_project AND e.datasetid = o.datasetid AND e.dataid = b.dataid
             UNION ALL
             SELECT s.project, s.jobid, s.dataid, true
             FROM job_dataset l JOIN job_status s ON s.project = l.project AND s.jobid = l.jobid
             WHERE b.dataid = 'full' AND l.dataset_project = o.dataset_project AND l.datasetid = o.datasetid
               AND l.itemtype = 'IN' AND l.map = 'full'
               AND s.status IN ('PENDING', 'RESUBMIT') AND s.waiting <= 0 AND s.parked_until IS NULL
             OFFSET 0) n
    WHERE n.waits)
SELECT project, jobid, count(*) FROM (SELECT * FROM behind LIMIT %(limit)s) f
WHERE NOT is_root AND (%(project)s::text IS NULL OR project = %(project)s)
GROUP BY project, jobid

-- name: retried_jobs
-- How many dataids of each job failed and are tried again by themselves.
SELECT project, jobid, count(*) FROM job_status
WHERE status = 'FAILED' AND parked_until IS NOT NULL AND (%(project)s::text IS NULL OR project = %(project)s)
GROUP BY project, jobid
