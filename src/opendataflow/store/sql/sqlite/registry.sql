-- Registration, operators' verbs and reports on SQLite.

-- name: has_tables
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'migration'

-- name: lock_schema
-- The write lock of BEGIN IMMEDIATE already keeps other upgrades out.
SELECT 1

-- name: create_migration_table
CREATE TABLE IF NOT EXISTS migration (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
)

-- name: applied_migrations
SELECT version FROM migration ORDER BY version

-- name: record_migration
INSERT INTO migration (version, name) VALUES (:version, :name)

-- name: stamp_environment
UPDATE store SET environment = :environment WHERE environment = ''

-- name: put_project
INSERT INTO project (project, name, root, home, root_below_home, home_below_store, modified)
VALUES (:project, :name, :root, :home, :root_below_home, :home_below_store, :now)
ON CONFLICT (project) DO UPDATE
SET name = excluded.name, root = excluded.root, home = excluded.home, root_below_home = excluded.root_below_home,
    home_below_store = excluded.home_below_store, modified = excluded.modified

-- name: note_place
-- The root has the store's marker; the project may have moved together with the store.
UPDATE project SET is_marked = 1, root = :root, home = :home WHERE project = :project

-- name: set_home_below_store
UPDATE project SET home_below_store = :home_below_store WHERE project = :project

-- name: homes
SELECT project, home FROM project

-- name: datasets_of
SELECT project, datasetid, hostname, database, schemaname, tablename, username, encryptedpass, location, format,
       partitions, definition, clock
FROM dataset WHERE project = :project ORDER BY datasetid

-- name: put_dataset
INSERT INTO dataset (project, datasetid, hostname, database, schemaname, tablename, username, encryptedpass, location,
                     format, partitions, definition, clock, modified)
VALUES (:project, :datasetid, :hostname, :database, :schemaname, :tablename, :username, :encryptedpass, :location,
        :format, :partitions, :definition, :clock, :now)
ON CONFLICT (project, datasetid) DO UPDATE
SET hostname = excluded.hostname, database = excluded.database, schemaname = excluded.schemaname,
    tablename = excluded.tablename, username = excluded.username, encryptedpass = excluded.encryptedpass,
    location = excluded.location, format = excluded.format, partitions = excluded.partitions,
    definition = excluded.definition, clock = excluded.clock, modified = excluded.modified

-- name: delete_dataset
DELETE FROM dataset WHERE project = :project AND datasetid = :datasetid

-- name: jobs_of
SELECT project, jobid, kind, script, definition, partitions, lease_seconds, timeout_seconds, retries_max,
       backoff_seconds, concurrency, strict, catchup
FROM job WHERE project = :project ORDER BY jobid

-- name: job_links_of
SELECT jobid, itemtype, dataset_project, datasetid, map FROM job_dataset
WHERE project = :project ORDER BY jobid, itemtype, position

-- name: put_job
INSERT INTO job (project, jobid, kind, script, definition, partitions, lease_seconds, timeout_seconds, retries_max,
                 backoff_seconds, concurrency, strict, catchup, modified)
VALUES (:project, :jobid, :kind, :script, :definition, :partitions, :lease_seconds, :timeout_seconds, :retries_max,
        :backoff_seconds, :concurrency, :strict, :catchup, :now)
ON CONFLICT (project, jobid) DO UPDATE
SET kind = excluded.kind, script = excluded.script, definition = excluded.definition,
    expected_upto = CASE WHEN job.partitions IS excluded.partitions THEN job.expected_upto END,
    partitions = excluded.partitions, lease_seconds = excluded.lease_seconds,
    timeout_seconds = excluded.timeout_seconds, retries_max = excluded.retries_max,
    backoff_seconds = excluded.backoff_seconds, concurrency = excluded.concurrency,
    strict = excluded.strict, catchup = excluded.catchup, modified = excluded.modified

-- name: delete_job
DELETE FROM job WHERE project = :project AND jobid = :jobid

-- name: delete_links
DELETE FROM job_dataset WHERE project = :project AND jobid = :jobid

-- name: put_link
INSERT INTO job_dataset (project, jobid, itemtype, dataset_project, datasetid, map, position)
VALUES (:project, :jobid, :itemtype, :dataset_project, :datasetid, :map, :position)

-- name: producers
SELECT dataset_project, datasetid, project, jobid FROM job_dataset WHERE itemtype = 'OUT'

-- name: find_dataset
SELECT project, datasetid, hostname, database, schemaname, tablename, username, encryptedpass, location, format,
       partitions, definition, clock
FROM dataset WHERE datasetid = :datasetid AND (:project IS NULL OR project = :project)

-- name: get_chunk_status
SELECT status FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND dataid = :dataid AND locktype = 'OUT' AND reader = ''

-- name: readers_of
SELECT jobid, reader FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND dataid = :dataid AND locktype = 'IN' AND status = 'RUNNING'

-- name: assert_chunk
INSERT INTO datastatus (project, datasetid, dataid, locktype, status, version, location, fingerprint, validated_at,
                        modified)
VALUES (:project, :datasetid, :dataid, 'OUT', 'READY', :version, :location, :fingerprint, :validated_at, :now)
ON CONFLICT (project, datasetid, dataid, locktype, reader) DO UPDATE
SET status = 'READY', version = excluded.version, location = excluded.location,
    fingerprint = excluded.fingerprint, validated_at = excluded.validated_at, problem = NULL,
    modified = excluded.modified

-- name: try_readers_now
-- What was refused because of this chunk need not wait for its next try.
UPDATE job_status SET parked_until = NULL
WHERE status IN ('PENDING', 'RESUBMIT') AND refusals > 0 AND parked_until IS NOT NULL AND (project, jobid, dataid) IN (
    SELECT l.project, l.jobid, s.dataid FROM job_dataset l JOIN job_status s ON s.project = l.project AND s.jobid = l.jobid
    WHERE l.dataset_project = :project AND l.datasetid = :datasetid AND l.itemtype = 'IN'
      AND s.parked_until IS NOT NULL
      AND (l.map = 'same' AND s.dataid = :dataid OR l.map = 'full' AND :dataid = 'full')
    UNION ALL
    SELECT e.project, e.jobid, e.job_dataid FROM job_input e
    WHERE e.dataset_project = :project AND e.datasetid = :datasetid AND e.dataid = :dataid)

-- name: names
SELECT 'job', project, jobid FROM job WHERE :project IS NULL OR project = :project
UNION ALL
SELECT 'chunk', project, datasetid FROM dataset WHERE :project IS NULL OR project = :project
ORDER BY 1, 2, 3

-- name: wrong_tally
SELECT kind, project, name, status, sum(n), sum(counted) FROM (
    SELECT kind, project, name, status, n, 0 AS counted FROM tally WHERE kind <> ''
    UNION ALL
    SELECT kind, project, name, old_status, -1, 0 FROM history
    WHERE id > (SELECT n FROM tally WHERE kind = '') AND old_status IS NOT NULL AND NOT (kind = 'job' AND old_status = 'PENDING')
    UNION ALL
    SELECT kind, project, name, new_status, 1, 0 FROM history
    WHERE id > (SELECT n FROM tally WHERE kind = '') AND new_status IS NOT NULL AND NOT (kind = 'job' AND new_status = 'PENDING')
    UNION ALL
    SELECT 'job', project, jobid, status, 0, count(*) FROM job_status WHERE status <> 'PENDING'
    GROUP BY project, jobid, status
    UNION ALL
    SELECT 'chunk', project, datasetid, status, 0, count(*) FROM datastatus WHERE locktype = 'OUT'
    GROUP BY project, datasetid, status) m
GROUP BY kind, project, name, status HAVING sum(n) <> sum(counted)

-- name: job_rows
SELECT project, jobid, dataid, status, waiting, attempts, runid, owner, lease_until, parked_until, modified
FROM job_status
WHERE (:project IS NULL OR project = :project) AND (:jobid IS NULL OR jobid = :jobid)
  AND (:status IS NULL OR status = :status)
ORDER BY project, jobid, sortkey, dataid LIMIT :limit

-- name: get_job_row
SELECT project, jobid, dataid, status, waiting, attempts, runid, owner, lease_until, parked_until, modified,
       refusal, again, deaths
FROM job_status WHERE project = :project AND jobid = :jobid AND dataid = :dataid

-- name: get_run
SELECT runid, project, jobid, dataid, attempt, forced, status, owner, claimed_at, ended_at, exit_code, message, answers,
       inputs, log_path, log_tail
FROM run WHERE runid = :runid

-- name: runs_of
SELECT runid, project, jobid, dataid, attempt, forced, status, owner, claimed_at, ended_at, exit_code, message, answers,
       inputs, log_path, log_tail
FROM run WHERE runid IN (SELECT h.runid FROM history h
                    WHERE h.project = :project AND h.kind = 'job' AND h.name = :jobid AND h.dataid = :dataid)
ORDER BY runid DESC LIMIT :limit

-- name: history_of
-- A chunk's row has the run that published it; which run began it, or failed to make it, its job's row before it says.
SELECT h.at, h.kind, h.name, h.dataid, h.old_status, h.new_status,
       CASE WHEN h.kind = 'chunk' AND (h.old_status = 'RUNNING' OR h.new_status = 'RUNNING') THEN
           coalesce((SELECT m.runid FROM job_dataset l JOIN history m ON m.dataid = h.dataid AND m.name = l.jobid
                     WHERE l.dataset_project = h.project AND l.datasetid = h.name AND l.itemtype = 'OUT'
                       AND m.project = l.project AND m.kind = 'job' AND m.id < h.id
                     ORDER BY m.id DESC LIMIT 1), h.runid)
       ELSE h.runid END, h.actor
FROM history h WHERE h.project = :project AND h.kind = :kind AND h.name = :name AND h.dataid = :dataid ORDER BY h.id

-- name: wrong_counters
SELECT s.project, s.jobid, s.dataid, s.waiting, w.waiting
FROM job_status s JOIN counted_waiting w ON w.project = s.project AND w.jobid = s.jobid AND w.dataid = s.dataid
     JOIN job j ON j.project = s.project AND j.jobid = s.jobid
WHERE s.waiting <> w.waiting

-- name: wrong_shared_counters
SELECT j.project, j.jobid, j.shared_waiting, c.shared_waiting
FROM job j JOIN link_counts c ON c.project = j.project AND c.jobid = j.jobid
WHERE j.shared_waiting <> c.shared_waiting OR j.same_inputs <> c.same_inputs OR j.mapped_inputs <> c.mapped_inputs
   OR j.clocked <> c.clocked

-- name: missing_rows
SELECT DISTINCT j.project, j.jobid, c.dataid
FROM job j JOIN job_dataset l ON l.project = j.project AND l.jobid = j.jobid AND l.itemtype = 'IN' AND l.map = 'same'
     JOIN datastatus c ON c.project = l.dataset_project AND c.datasetid = l.datasetid AND c.locktype = 'OUT'
                          AND c.status = 'READY'
WHERE j.clocked = 0 -- slots from before a job was there, and those it skipped, are not its own
  AND NOT EXISTS (SELECT 1 FROM job_status s
                  WHERE s.project = j.project AND s.jobid = j.jobid AND s.dataid = c.dataid)

-- name: orphan_locks
SELECT project, datasetid, dataid, reader FROM datastatus d
WHERE locktype = 'IN' AND status = 'RUNNING' AND reader <> ''
  AND NOT EXISTS (SELECT 1 FROM run r WHERE CAST(r.runid AS TEXT) = d.reader AND r.status = 'RUNNING')

-- name: release_orphan
DELETE FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND dataid = :dataid AND locktype = 'IN' AND reader = :reader

-- name: expected_upto
SELECT expected_upto FROM job WHERE project = :project AND jobid = :jobid

-- name: untouched_rows
SELECT dataid FROM job_status
WHERE project = :project AND jobid = :jobid AND status = 'PENDING' AND runid IS NULL

-- name: delete_untouched
DELETE FROM job_status
WHERE project = :project AND jobid = :jobid AND dataid = :dataid AND status = 'PENDING' AND runid IS NULL

-- name: declared_limits
SELECT name, declared, project FROM connection_limit WHERE declared IS NOT NULL

-- name: declare_limit
INSERT INTO connection_limit (name, declared, project) VALUES (:name, :declared, :project)
ON CONFLICT (name) DO UPDATE SET declared = excluded.declared, project = excluded.project

-- name: undeclare_limit
UPDATE connection_limit SET declared = NULL, project = NULL WHERE name = :name

-- name: forget_limit
DELETE FROM connection_limit WHERE name = :name AND max_runs IS NULL

-- name: put_binding
INSERT INTO source_binding (project, datasetid, field, value, bound_by, bound_at)
VALUES (:project, :datasetid, :field, :value, :bound_by, :now)
ON CONFLICT (project, datasetid, field) DO UPDATE
SET value = excluded.value, bound_by = excluded.bound_by, bound_at = excluded.bound_at

-- name: delete_binding
DELETE FROM source_binding WHERE project = :project AND datasetid = :datasetid AND field = :field

-- name: bound_values
SELECT datasetid, field, value FROM source_binding WHERE project = :project ORDER BY datasetid, field

-- Schedules --------------------------------------------------------------------------------------------------------
-- name: hold_project
-- The write lock of BEGIN IMMEDIATE already keeps other changes of schedules, and `apply`, out.
SELECT 1

-- name: schedules_of
SELECT jobid, clock, declared, set_by, set_at, reason FROM schedule
WHERE project = :project AND (:jobid IS NULL OR jobid = :jobid) ORDER BY jobid

-- name: put_schedule
INSERT INTO schedule (project, jobid, clock, declared, set_by, set_at, reason)
VALUES (:project, :jobid, :clock, :declared, :set_by, :now, :reason)
ON CONFLICT (project, jobid) DO UPDATE
SET clock = excluded.clock, declared = excluded.declared, set_by = excluded.set_by, set_at = excluded.set_at,
    reason = excluded.reason

-- name: put_declared
UPDATE schedule SET declared = :declared WHERE project = :project AND jobid = :jobid AND declared <> :declared

-- name: delete_schedule
DELETE FROM schedule WHERE project = :project AND jobid = :jobid

-- name: record_schedule
-- Beside the changes of the job's limits.
INSERT INTO limit_history (project, jobid, what, was, becomes, reason, actor)
SELECT :project, :jobid, 'schedule', :was, :becomes, :reason, actor FROM store

-- name: read_whole_by
-- Who reads an output of the job as one chunk.
SELECT DISTINCT r.jobid FROM job_dataset o
     JOIN job_dataset r ON r.dataset_project = o.dataset_project AND r.datasetid = o.datasetid AND r.itemtype = 'IN'
                           AND r.map = 'full'
WHERE o.project = :project AND o.jobid = :jobid AND o.itemtype = 'OUT' ORDER BY r.jobid

-- name: keep_slots
-- What the job has begun keeps its slot under the clock that it goes by from now on; before the job is linked to it.
INSERT INTO datastatus (project, datasetid, dataid, locktype, status, modified)
SELECT :project, :datasetid, s.dataid, 'OUT', 'READY', :now FROM job_status s
WHERE s.project = :project AND s.jobid = :jobid
ON CONFLICT (project, datasetid, dataid, locktype, reader) DO NOTHING

-- name: forget_untouched
-- What was never begun.
DELETE FROM job_status WHERE project = :project AND jobid = :jobid AND status = 'PENDING' AND runid IS NULL

-- Versions of a git project: part of the transaction that registers one ------------------------------------------------
-- name: leave_version
UPDATE git_version SET left_at = :now WHERE project = :project AND left_at IS NULL

-- name: put_version
INSERT INTO git_version (project, git_commit, author, subject, committed_at, how, switched_at, switched_by)
VALUES (:project, :git_commit, :author, :subject, :committed_at, :how, :now, :by)

-- name: set_git_commit
UPDATE git_project SET git_commit = :git_commit, checked_at = :now, refused_commit = NULL, refused_subject = NULL,
                       refused_at = NULL, problems = '[]'
WHERE project = :project

-- name: delete_project
DELETE FROM project WHERE project = :project

-- name: delete_git_project
DELETE FROM git_project WHERE project = :project

-- name: delete_git_versions
DELETE FROM git_version WHERE project = :project

-- name: latest_of_form
-- The latest slot whose name is as long as the names of the clock are: dates and minutes do not sort as one.
SELECT dataid FROM datastatus
WHERE project = :project AND datasetid = :datasetid AND locktype = 'OUT' AND length(dataid) = :length
ORDER BY dataid DESC LIMIT 1
