-- Projects that come from a git repository, and the versions of them that were put in place.
-- What opens a private repository, and what signs a webhook, is encrypted with the passkey (AES-256-GCM).

CREATE TABLE git_project (
    project         text COLLATE "C" PRIMARY KEY,
    url             text NOT NULL,           -- without any credential
    branch          text NOT NULL,
    folder          text NOT NULL,           -- its versions are below it, and what they share
    git_commit      text,                    -- the version in place; NULL: none was ever good
    username        text,
    credential      text,                    -- encrypted: a token, or a private key
    credential_kind text CHECK (credential_kind IN ('token', 'key')),
    hook_secret     text,                    -- encrypted; NULL: no webhook is answered
    added_at        timestamptz NOT NULL,
    added_by        text NOT NULL,
    checked_at      timestamptz,             -- when the repository was last looked at
    refused_commit  text,                    -- the newest commit, while it is not good enough
    refused_subject text,
    refused_at      timestamptz,
    problems        text NOT NULL DEFAULT '[]' -- all that is wrong with it, JSON
);

-- What was in place, one after the other.
CREATE TABLE git_version (
    versionid    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project      text COLLATE "C" NOT NULL,
    git_commit   text NOT NULL,
    author       text NOT NULL,
    subject      text NOT NULL,
    committed_at timestamptz NOT NULL,
    how          text NOT NULL CHECK (how IN ('add', 'pull', 'hook', 'rollback')),
    switched_at  timestamptz NOT NULL,
    switched_by  text NOT NULL,
    left_at      timestamptz                  -- NULL: it is in place
);
CREATE INDEX git_version_of ON git_version (project, versionid);

-- Work on a project's repository: asked for here, done by a process of its own.
CREATE TABLE git_task (
    taskid          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind            text NOT NULL CHECK (kind IN ('add', 'pull', 'hook', 'rollback')),
    project         text COLLATE "C",        -- NULL: not known yet
    url             text,
    branch          text,
    username        text,
    credential      text,                    -- encrypted; only until the project is added
    credential_kind text,
    git_commit      text,                    -- the one that is asked for, or was reached
    state           text NOT NULL DEFAULT 'WAITING'
                    CHECK (state IN ('WAITING', 'RUNNING', 'DONE', 'REFUSED', 'FAILED', 'LOST')),
    step            text NOT NULL DEFAULT '', -- what it does now
    said            text NOT NULL DEFAULT '', -- how it ended
    problems        text NOT NULL DEFAULT '[]',
    asked_at        timestamptz NOT NULL,
    asked_by        text NOT NULL,
    beat_at         timestamptz NOT NULL,    -- its last sign of life
    ended_at        timestamptz,
    host            text,
    pid             integer,
    pid_started     bigint
);
CREATE INDEX git_task_of ON git_task (project, taskid);
CREATE INDEX git_task_open ON git_task (taskid) WHERE state = 'WAITING' OR state = 'RUNNING';

-- The commit of a script's run; a pipeline's is in pipeline_run.
CREATE TABLE run_version (
    runid      bigint PRIMARY KEY,
    git_commit text NOT NULL
);
CREATE FUNCTION run_forgets_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM run_version WHERE runid = OLD.runid;
    RETURN NULL;
END $$;
CREATE TRIGGER run_forgets_version AFTER DELETE ON run FOR EACH ROW EXECUTE FUNCTION run_forgets_version();
ALTER FUNCTION run_forgets_version SET search_path FROM CURRENT;
