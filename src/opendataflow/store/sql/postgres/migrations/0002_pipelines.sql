-- What pipelines leave beside the run itself, and what the checks of a chunk found.

CREATE TABLE pipeline_run (
    runid       bigint PRIMARY KEY,
    project     text COLLATE "C" NOT NULL,
    jobid       text COLLATE "C" NOT NULL,
    engine      text,               -- spark | pandas
    git_commit  text,               -- of the project's folder; NULL outside git
    dirty       integer,            -- 1: the folder differed from that commit
    application text,               -- Spark's name for the session that ran it
    job_runid   bigint,             -- the first run of the Spark job it shared with other chunks
    rows        bigint,
    bytes       bigint,
    plan        text                -- Spark's plan, where it was asked for
);
CREATE INDEX pipeline_run_of ON pipeline_run (project, jobid, runid);

CREATE TABLE transformation (
    runid    bigint NOT NULL,
    position integer NOT NULL,      -- from 1, in the order of project.yml
    name     text NOT NULL,
    digest   text,                  -- sha256 of the code that ran
    status   text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'RUNNING', 'DONE', 'ERROR')),
    output   text NOT NULL DEFAULT '', -- what it printed, and warnings
    error    text NOT NULL DEFAULT '', -- the traceback, cut to the user's code
    rows     bigint,                -- where `profile: true` asked for it
    seconds  double precision,
    PRIMARY KEY (runid, position)
);
CREATE INDEX transformation_errors ON transformation (runid) WHERE status = 'ERROR';

CREATE FUNCTION run_forgets_pipeline() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM pipeline_run WHERE runid = OLD.runid;
    DELETE FROM transformation WHERE runid = OLD.runid;
    RETURN NULL;
END $$;
CREATE TRIGGER run_forgets_pipeline AFTER DELETE ON run FOR EACH ROW EXECUTE FUNCTION run_forgets_pipeline();

CREATE TABLE data_check (
    project    text COLLATE "C" NOT NULL DEFAULT '',
    datasetid  text COLLATE "C" NOT NULL,
    dataid     text COLLATE "C" NOT NULL,
    position   integer NOT NULL,    -- from 1, in the order in which they are declared
    name       text NOT NULL,
    result     text NOT NULL CHECK (result IN ('passed', 'failed', 'warned', 'quarantined', 'skipped')),
    detail     text NOT NULL DEFAULT '',
    runid      bigint,              -- whose output it was; NULL for data that arrived
    checked_at timestamptz NOT NULL,
    PRIMARY KEY (project, datasetid, dataid, position)
);
ALTER FUNCTION run_forgets_pipeline SET search_path FROM CURRENT;
