-- What pipelines leave beside the run itself, and what the checks of a chunk found.

CREATE TABLE pipeline_run (
    runid       INTEGER PRIMARY KEY,
    project     TEXT NOT NULL,
    jobid       TEXT NOT NULL,
    engine      TEXT,               -- spark | pandas
    git_commit  TEXT,               -- of the project's folder; NULL outside git
    dirty       INTEGER,            -- 1: the folder differed from that commit
    application TEXT,               -- Spark's name for the session that ran it
    job_runid   INTEGER,            -- the first run of the Spark job it shared with other chunks
    rows        INTEGER,
    bytes       INTEGER,
    plan        TEXT                -- Spark's plan, where it was asked for
);
CREATE INDEX pipeline_run_of ON pipeline_run (project, jobid, runid);

CREATE TABLE transformation (
    runid    INTEGER NOT NULL,
    position INTEGER NOT NULL,      -- from 1, in the order of project.yml
    name     TEXT NOT NULL,
    digest   TEXT,                  -- sha256 of the code that ran
    status   TEXT NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'RUNNING', 'DONE', 'ERROR')),
    output   TEXT NOT NULL DEFAULT '', -- what it printed, and warnings
    error    TEXT NOT NULL DEFAULT '', -- the traceback, cut to the user's code
    rows     INTEGER,               -- where `profile: true` asked for it
    seconds  REAL,
    PRIMARY KEY (runid, position)
) WITHOUT ROWID;
CREATE INDEX transformation_errors ON transformation (runid) WHERE status = 'ERROR';

CREATE TRIGGER run_forgets_pipeline AFTER DELETE ON run BEGIN
    DELETE FROM pipeline_run WHERE runid = OLD.runid;
    DELETE FROM transformation WHERE runid = OLD.runid;
END;

CREATE TABLE data_check (
    project    TEXT NOT NULL DEFAULT '',
    datasetid  TEXT NOT NULL,
    dataid     TEXT NOT NULL,
    position   INTEGER NOT NULL,    -- from 1, in the order in which they are declared
    name       TEXT NOT NULL,
    result     TEXT NOT NULL CHECK (result IN ('passed', 'failed', 'warned', 'quarantined', 'skipped')),
    detail     TEXT NOT NULL DEFAULT '',
    runid      INTEGER,             -- whose output it was; NULL for data that arrived
    checked_at TEXT NOT NULL,
    PRIMARY KEY (project, datasetid, dataid, position)
) WITHOUT ROWID;
