-- Published data that is gone or is no longer what was published, as somebody who looked found it.
CREATE TABLE chunk_damage (
    project   TEXT NOT NULL,
    datasetid TEXT NOT NULL,
    dataid    TEXT NOT NULL,
    version   INTEGER,       -- it is about this version; a later one is sound until somebody looks
    finding   TEXT NOT NULL CHECK (finding IN ('gone', 'changed')),
    seen_at   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (project, datasetid, dataid)
) WITHOUT ROWID;
