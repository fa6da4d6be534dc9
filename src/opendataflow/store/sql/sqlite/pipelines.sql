-- What pipelines leave beside the run itself, on SQLite.

-- name: put_step
INSERT INTO transformation (runid, position, name, digest, status, output, error, rows, seconds)
VALUES (:runid, :position, :name, :digest, :status, :output, :error, :rows, :seconds)
ON CONFLICT (runid, position) DO UPDATE
SET digest = excluded.digest, status = excluded.status, output = excluded.output, error = excluded.error,
    rows = excluded.rows, seconds = excluded.seconds

-- name: put_pipeline_run
INSERT INTO pipeline_run (runid, project, jobid, engine, git_commit, dirty, application, job_runid, rows, bytes, plan)
VALUES (:runid, :project, :jobid, :engine, :git_commit, :dirty, :application, :job_runid, :rows, :bytes, :plan)
ON CONFLICT (runid) DO UPDATE
SET engine = excluded.engine, git_commit = excluded.git_commit, dirty = excluded.dirty,
    application = excluded.application, job_runid = excluded.job_runid, rows = excluded.rows, bytes = excluded.bytes,
    plan = excluded.plan

-- name: pipeline_run_of
SELECT engine, git_commit, dirty, application, job_runid, rows, bytes, plan FROM pipeline_run WHERE runid = :runid

-- name: steps_of
SELECT position, name, digest, status, output, error, rows, seconds FROM transformation
WHERE runid = :runid ORDER BY position

-- name: last_steps
-- Of each pipeline, the transformations of its newest run.
SELECT r.project, r.jobid, r.dataid, t.runid, t.position, t.name, t.digest, t.status, t.output, t.error, t.rows,
       t.seconds, r.claimed_at
FROM job j
JOIN run r ON r.runid = (SELECT max(n.runid) FROM pipeline_run n WHERE n.project = j.project AND n.jobid = j.jobid)
JOIN transformation t ON t.runid = r.runid
WHERE j.kind = 'pipeline' AND (:project IS NULL OR j.project = :project) AND (:jobid IS NULL OR j.jobid = :jobid)
ORDER BY r.project, r.jobid, t.position

-- name: steps_by_status
-- Of each dataid, its newest run only: what has been healed is no longer an error.
SELECT r.project, r.jobid, r.dataid, t.runid, t.position, t.name, t.digest, t.status, t.output, t.error, t.rows,
       t.seconds, r.claimed_at
FROM transformation t
JOIN run r ON r.runid = t.runid
JOIN job_status s ON s.project = r.project AND s.jobid = r.jobid AND s.dataid = r.dataid AND s.runid = r.runid
WHERE t.status = :status AND (:project IS NULL OR r.project = :project) AND (:jobid IS NULL OR r.jobid = :jobid)
ORDER BY t.runid DESC, t.position LIMIT :limit

-- name: put_unshared
INSERT INTO unshared (project, jobid, digest, runid, reason, noted_at)
VALUES (:project, :jobid, :digest, :runid, :reason, :now)
ON CONFLICT (project, jobid) DO UPDATE
SET digest = excluded.digest, runid = excluded.runid, reason = excluded.reason, noted_at = excluded.noted_at

-- name: unshared_of
SELECT digest, runid, reason FROM unshared WHERE project = :project AND jobid = :jobid
