-- What each version of a dataset contains that a stream makes as a whole (`returns: dataset`).

CREATE TABLE stream_version (
    project     TEXT NOT NULL,
    jobid       TEXT NOT NULL,              -- the stream
    runid       INTEGER NOT NULL,           -- the version's, of the destination; it counts where that is published
    end_offset  INTEGER NOT NULL,           -- it contains the items before this one
    batch_runid INTEGER NOT NULL,           -- the run that made it
    PRIMARY KEY (project, jobid, runid)
) WITHOUT ROWID;
