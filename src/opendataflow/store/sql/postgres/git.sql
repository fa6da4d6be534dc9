-- Projects from git repositories on PostgreSQL: where they come from, their versions, and work on them.

-- name: registered_projects
SELECT project, name, modified FROM project ORDER BY project

-- name: git_projects
SELECT project, url, branch, folder, git_commit, username, credential_kind, hook_secret IS NOT NULL, added_at, added_by,
       checked_at, refused_commit, refused_subject, refused_at, problems
FROM git_project WHERE %(project)s::text IS NULL OR project = %(project)s ORDER BY project

-- name: git_secrets_of
SELECT credential, hook_secret FROM git_project WHERE project = %(project)s

-- name: all_git_secrets
SELECT project, credential, hook_secret FROM git_project ORDER BY project

-- name: add_git_project
INSERT INTO git_project (project, url, branch, folder, username, credential, credential_kind, added_at, added_by)
VALUES (%(project)s, %(url)s, %(branch)s, %(folder)s, %(username)s, %(credential)s, %(credential_kind)s, from_now(%(now)s), %(by)s)
ON CONFLICT (project) DO NOTHING

-- name: set_git_credential
UPDATE git_project SET username = %(username)s, credential = %(credential)s, credential_kind = %(credential_kind)s
WHERE project = %(project)s

-- name: set_hook_secret
UPDATE git_project SET hook_secret = %(hook_secret)s WHERE project = %(project)s

-- name: replace_git_secrets
-- Only if they are still those that were read.
UPDATE git_project SET credential = %(credential)s, hook_secret = %(hook_secret)s
WHERE project = %(project)s AND credential IS NOT DISTINCT FROM %(old_credential)s AND hook_secret IS NOT DISTINCT FROM %(old_hook_secret)s

-- name: note_checked
UPDATE git_project SET checked_at = from_now(%(now)s) WHERE project = %(project)s

-- name: note_refused
UPDATE git_project
SET checked_at = from_now(%(now)s), refused_commit = %(git_commit)s, refused_subject = %(subject)s, refused_at = from_now(%(now)s), problems = %(problems)s
WHERE project = %(project)s

-- name: forget_refused
UPDATE git_project SET checked_at = from_now(%(now)s), refused_commit = NULL, refused_subject = NULL, refused_at = NULL, problems = '[]'
WHERE project = %(project)s

-- name: git_versions
SELECT versionid, git_commit, author, subject, committed_at, how, switched_at, switched_by, left_at
FROM git_version WHERE project = %(project)s AND versionid < %(before)s ORDER BY versionid DESC LIMIT %(limit)s

-- name: find_git_version
SELECT versionid, git_commit, author, subject, committed_at, how, switched_at, switched_by, left_at
FROM git_version WHERE project = %(project)s AND git_commit = %(git_commit)s ORDER BY versionid DESC LIMIT 1

-- name: oldest_running
-- When the oldest of the project's runs that go on was begun.
SELECT min(r.claimed_at) FROM job_status s JOIN run r ON r.runid = s.runid
WHERE s.project = %(project)s AND s.status = 'RUNNING'

-- name: running_of
SELECT jobid, dataid, owner FROM job_status WHERE project = %(project)s AND status = 'RUNNING' ORDER BY jobid, dataid LIMIT 20

-- name: foreign_readers
SELECT DISTINCT project, jobid, datasetid FROM job_dataset
WHERE dataset_project = %(project)s AND project <> %(project)s ORDER BY project, jobid, datasetid

-- name: put_run_version
INSERT INTO run_version (runid, git_commit) VALUES (%(runid)s, %(git_commit)s) ON CONFLICT (runid) DO NOTHING

-- name: run_commits
-- Of scripts and pipelines, for the runs between two numbers.
SELECT runid, git_commit FROM run_version WHERE runid BETWEEN %(first)s AND %(last)s
UNION ALL
SELECT runid, git_commit FROM pipeline_run WHERE runid BETWEEN %(first)s AND %(last)s AND git_commit IS NOT NULL

-- Work -----------------------------------------------------------------------------------------------------------------
-- name: lock_tasks
LOCK TABLE git_task IN SHARE ROW EXCLUSIVE MODE

-- name: put_task
INSERT INTO git_task (kind, project, url, branch, username, credential, credential_kind, git_commit, asked_at, asked_by, beat_at)
VALUES (%(kind)s, %(project)s, %(url)s, %(branch)s, %(username)s, %(credential)s, %(credential_kind)s, %(git_commit)s, from_now(%(now)s), %(by)s, from_now(%(now)s))
RETURNING taskid

-- name: waiting_tasks
SELECT taskid FROM git_task WHERE project = %(project)s AND kind = %(kind)s AND state = 'WAITING'

-- name: tasks
SELECT taskid, kind, project, url, branch, git_commit, state, step, said, problems, asked_at, asked_by, beat_at, ended_at, host,
       pid, pid_started
FROM git_task WHERE (%(project)s::text IS NULL OR project = %(project)s) AND taskid < %(before)s ORDER BY taskid DESC LIMIT %(limit)s

-- name: get_task
SELECT taskid, kind, project, url, branch, git_commit, state, step, said, problems, asked_at, asked_by, beat_at, ended_at, host,
       pid, pid_started
FROM git_task WHERE taskid = %(taskid)s

-- name: task_credential
SELECT username, credential, credential_kind FROM git_task WHERE taskid = %(taskid)s

-- name: open_tasks
SELECT taskid, project, state, host, pid, pid_started, beat_at < from_now(%(stale)s), asked_by FROM git_task
WHERE state = 'WAITING' OR state = 'RUNNING' ORDER BY taskid

-- name: take_up_task
-- From now on this process has it; it may still have to wait for its turn.
UPDATE git_task SET host = %(host)s, pid = %(pid)s, pid_started = %(pid_started)s, beat_at = from_now(%(now)s)
WHERE taskid = %(taskid)s AND state = 'WAITING'

-- name: start_task
UPDATE git_task SET state = 'RUNNING', step = 'starts', beat_at = from_now(%(now)s) WHERE taskid = %(taskid)s AND state = 'WAITING'

-- name: name_task
UPDATE git_task SET project = %(project)s WHERE taskid = %(taskid)s

-- name: beat_task
UPDATE git_task SET beat_at = from_now(%(now)s), step = %(step)s WHERE taskid = %(taskid)s AND (state = 'WAITING' OR state = 'RUNNING')

-- name: end_task
UPDATE git_task
SET state = %(state)s, said = %(said)s, problems = %(problems)s, git_commit = coalesce(%(git_commit)s::text, git_commit), step = '',
    credential = NULL, ended_at = from_now(%(now)s)
WHERE taskid = %(taskid)s AND (state = 'WAITING' OR state = 'RUNNING')
