-- What a batch of a stream from a Kafka topic holds: a range of offsets for each partition, also where it is empty.

CREATE TABLE stream_topic_part (
    project       TEXT NOT NULL,
    jobid         TEXT NOT NULL,
    dataid        TEXT NOT NULL,
    partition_no  INTEGER NOT NULL,
    start_offset  INTEGER NOT NULL,
    end_offset    INTEGER NOT NULL,           -- the one after its last record
    PRIMARY KEY (project, jobid, dataid, partition_no)
) WITHOUT ROWID;
