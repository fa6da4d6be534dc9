-- Projects that come from a git repository, and the versions of them that were put in place.
-- What opens a private repository, and what signs a webhook, is encrypted with the passkey (AES-256-GCM).

CREATE TABLE git_project (
    project         TEXT PRIMARY KEY,
    url             TEXT NOT NULL,           -- without any credential
    branch          TEXT NOT NULL,
    folder          TEXT NOT NULL,           -- its versions are below it, and what they share
    git_commit      TEXT,                    -- the version in place; NULL: none was ever good
    username        TEXT,
    credential      TEXT,                    -- encrypted: a token, or a private key
    credential_kind TEXT CHECK (credential_kind IN ('token', 'key')),
    hook_secret     TEXT,                    -- encrypted; NULL: no webhook is answered
    added_at        TEXT NOT NULL,
    added_by        TEXT NOT NULL,
    checked_at      TEXT,                    -- when the repository was last looked at
    refused_commit  TEXT,                    -- the newest commit, while it is not good enough
    refused_subject TEXT,
    refused_at      TEXT,
    problems        TEXT NOT NULL DEFAULT '[]' -- all that is wrong with it, JSON
) WITHOUT ROWID;

-- What was in place, one after the other.
CREATE TABLE git_version (
    versionid    INTEGER PRIMARY KEY,
    project      TEXT NOT NULL,
    git_commit   TEXT NOT NULL,
    author       TEXT NOT NULL,
    subject      TEXT NOT NULL,
    committed_at TEXT NOT NULL,
    how          TEXT NOT NULL CHECK (how IN ('add', 'pull', 'hook', 'rollback')),
    switched_at  TEXT NOT NULL,
    switched_by  TEXT NOT NULL,
    left_at      TEXT                        -- NULL: it is in place
);
CREATE INDEX git_version_of ON git_version (project, versionid);

-- Work on a project's repository: asked for here, done by a process of its own.
CREATE TABLE git_task (
    taskid          INTEGER PRIMARY KEY,
    kind            TEXT NOT NULL CHECK (kind IN ('add', 'pull', 'hook', 'rollback')),
    project         TEXT,                    -- NULL: not known yet
    url             TEXT,
    branch          TEXT,
    username        TEXT,
    credential      TEXT,                    -- encrypted; only until the project is added
    credential_kind TEXT,
    git_commit      TEXT,                    -- the one that is asked for, or was reached
    state           TEXT NOT NULL DEFAULT 'WAITING'
                    CHECK (state IN ('WAITING', 'RUNNING', 'DONE', 'REFUSED', 'FAILED', 'LOST')),
    step            TEXT NOT NULL DEFAULT '', -- what it does now
    said            TEXT NOT NULL DEFAULT '', -- how it ended
    problems        TEXT NOT NULL DEFAULT '[]',
    asked_at        TEXT NOT NULL,
    asked_by        TEXT NOT NULL,
    beat_at         TEXT NOT NULL,           -- its last sign of life
    ended_at        TEXT,
    host            TEXT,
    pid             INTEGER,
    pid_started     INTEGER
);
CREATE INDEX git_task_of ON git_task (project, taskid);
CREATE INDEX git_task_open ON git_task (taskid) WHERE state = 'WAITING' OR state = 'RUNNING';

-- The commit of a script's run; a pipeline's is in pipeline_run.
CREATE TABLE run_version (
    runid      INTEGER PRIMARY KEY,
    git_commit TEXT NOT NULL
);
CREATE TRIGGER run_forgets_version AFTER DELETE ON run BEGIN
    DELETE FROM run_version WHERE runid = OLD.runid;
END;
