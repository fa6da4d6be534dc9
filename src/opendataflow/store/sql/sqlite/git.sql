-- Projects from git repositories on SQLite: where they come from, their versions, and work on them.

-- name: registered_projects
SELECT project, name, modified FROM project ORDER BY project

-- name: git_projects
SELECT project, url, branch, folder, git_commit, username, credential_kind, hook_secret IS NOT NULL, added_at, added_by,
       checked_at, refused_commit, refused_subject, refused_at, problems
FROM git_project WHERE :project IS NULL OR project = :project ORDER BY project

-- name: git_secrets_of
SELECT credential, hook_secret FROM git_project WHERE project = :project

-- name: all_git_secrets
SELECT project, credential, hook_secret FROM git_project ORDER BY project

-- name: add_git_project
INSERT INTO git_project (project, url, branch, folder, username, credential, credential_kind, added_at, added_by)
VALUES (:project, :url, :branch, :folder, :username, :credential, :credential_kind, :now, :by)
ON CONFLICT (project) DO NOTHING

-- name: set_git_credential
UPDATE git_project SET username = :username, credential = :credential, credential_kind = :credential_kind
WHERE project = :project

-- name: set_hook_secret
UPDATE git_project SET hook_secret = :hook_secret WHERE project = :project

-- name: replace_git_secrets
-- Only if they are still those that were read.
UPDATE git_project SET credential = :credential, hook_secret = :hook_secret
WHERE project = :project AND credential IS :old_credential AND hook_secret IS :old_hook_secret

-- name: note_checked
UPDATE git_project SET checked_at = :now WHERE project = :project

-- name: note_refused
UPDATE git_project
SET checked_at = :now, refused_commit = :git_commit, refused_subject = :subject, refused_at = :now, problems = :problems
WHERE project = :project

-- name: forget_refused
UPDATE git_project SET checked_at = :now, refused_commit = NULL, refused_subject = NULL, refused_at = NULL, problems = '[]'
WHERE project = :project

-- name: git_versions
SELECT versionid, git_commit, author, subject, committed_at, how, switched_at, switched_by, left_at
FROM git_version WHERE project = :project AND versionid < :before ORDER BY versionid DESC LIMIT :limit

-- name: find_git_version
SELECT versionid, git_commit, author, subject, committed_at, how, switched_at, switched_by, left_at
FROM git_version WHERE project = :project AND git_commit = :git_commit ORDER BY versionid DESC LIMIT 1

-- name: oldest_running
-- When the oldest of the project's runs that go on was begun.
SELECT min(r.claimed_at) FROM job_status s JOIN run r ON r.runid = s.runid
WHERE s.project = :project AND s.status = 'RUNNING'

-- name: running_of
SELECT jobid, dataid, owner FROM job_status WHERE project = :project AND status = 'RUNNING' ORDER BY jobid, dataid LIMIT 20

-- name: foreign_readers
SELECT DISTINCT project, jobid, datasetid FROM job_dataset
WHERE dataset_project = :project AND project <> :project ORDER BY project, jobid, datasetid

-- name: put_run_version
INSERT INTO run_version (runid, git_commit) VALUES (:runid, :git_commit) ON CONFLICT (runid) DO NOTHING

-- name: run_commits
-- Of scripts and pipelines, for the runs between two numbers.
SELECT runid, git_commit FROM run_version WHERE runid BETWEEN :first AND :last
UNION ALL
SELECT runid, git_commit FROM pipeline_run WHERE runid BETWEEN :first AND :last AND git_commit IS NOT NULL

-- Work -----------------------------------------------------------------------------------------------------------------
-- name: lock_tasks
-- The write lock of BEGIN IMMEDIATE already keeps others out.
SELECT 1

-- name: put_task
INSERT INTO git_task (kind, project, url, branch, username, credential, credential_kind, git_commit, asked_at, asked_by, beat_at)
VALUES (:kind, :project, :url, :branch, :username, :credential, :credential_kind, :git_commit, :now, :by, :now)
RETURNING taskid

-- name: waiting_tasks
SELECT taskid FROM git_task WHERE project = :project AND kind = :kind AND state = 'WAITING'

-- name: tasks
SELECT taskid, kind, project, url, branch, git_commit, state, step, said, problems, asked_at, asked_by, beat_at, ended_at, host,
       pid, pid_started
FROM git_task WHERE (:project IS NULL OR project = :project) AND taskid < :before ORDER BY taskid DESC LIMIT :limit

-- name: get_task
SELECT taskid, kind, project, url, branch, git_commit, state, step, said, problems, asked_at, asked_by, beat_at, ended_at, host,
       pid, pid_started
FROM git_task WHERE taskid = :taskid

-- name: task_credential
SELECT username, credential, credential_kind FROM git_task WHERE taskid = :taskid

-- name: open_tasks
SELECT taskid, project, state, host, pid, pid_started, beat_at < :stale, asked_by FROM git_task
WHERE state = 'WAITING' OR state = 'RUNNING' ORDER BY taskid

-- name: take_up_task
-- From now on this process has it; it may still have to wait for its turn.
UPDATE git_task SET host = :host, pid = :pid, pid_started = :pid_started, beat_at = :now
WHERE taskid = :taskid AND state = 'WAITING'

-- name: start_task
UPDATE git_task SET state = 'RUNNING', step = 'starts', beat_at = :now WHERE taskid = :taskid AND state = 'WAITING'

-- name: name_task
UPDATE git_task SET project = :project WHERE taskid = :taskid

-- name: beat_task
UPDATE git_task SET beat_at = :now, step = :step WHERE taskid = :taskid AND (state = 'WAITING' OR state = 'RUNNING')

-- name: end_task
UPDATE git_task
SET state = :state, said = :said, problems = :problems, git_commit = coalesce(:git_commit, git_commit), step = '',
    credential = NULL, ended_at = :now
WHERE taskid = :taskid AND (state = 'WAITING' OR state = 'RUNNING')
