-- Published data that is gone or is no longer what was published, as somebody who looked found it.
CREATE TABLE chunk_damage (
    project   text COLLATE "C" NOT NULL,
    datasetid text COLLATE "C" NOT NULL,
    dataid    text COLLATE "C" NOT NULL,
    version   bigint,        -- it is about this version; a later one is sound until somebody looks
    finding   text NOT NULL CHECK (finding IN ('gone', 'changed')),
    seen_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (project, datasetid, dataid)
);
