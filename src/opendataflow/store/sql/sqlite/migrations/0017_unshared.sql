-- Pipelines whose chunks share no Spark job while their code is this, since one came out different than it does alone.

CREATE TABLE unshared (
    project  TEXT NOT NULL,
    jobid    TEXT NOT NULL,
    digest   TEXT NOT NULL,      -- of the project's code then
    runid    INTEGER NOT NULL,   -- the run that was produced alone
    reason   TEXT NOT NULL,
    noted_at TEXT NOT NULL,
    PRIMARY KEY (project, jobid)
) WITHOUT ROWID;
