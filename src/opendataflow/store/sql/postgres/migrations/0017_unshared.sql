-- Pipelines whose chunks share no Spark job while their code is this, since one came out different than it does alone.

CREATE TABLE unshared (
    project  text NOT NULL,
    jobid    text NOT NULL,
    digest   text NOT NULL,      -- of the project's code then
    runid    bigint NOT NULL,   -- the run that was produced alone
    reason   text NOT NULL,
    noted_at timestamptz NOT NULL,
    PRIMARY KEY (project, jobid)
);
