-- What each version of a dataset contains that a stream makes as a whole (`returns: dataset`).

CREATE TABLE stream_version (
    project     text COLLATE "C" NOT NULL,
    jobid       text COLLATE "C" NOT NULL,  -- the stream
    runid       bigint NOT NULL,            -- the version's, of the destination; it counts where that is published
    end_offset  bigint NOT NULL,            -- it contains the items before this one
    batch_runid bigint NOT NULL,            -- the run that made it
    PRIMARY KEY (project, jobid, runid)
);
