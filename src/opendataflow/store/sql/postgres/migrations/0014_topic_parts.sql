-- What a batch of a stream from a Kafka topic holds: a range of offsets for each partition, also where it is empty.

CREATE TABLE stream_topic_part (
    project       text COLLATE "C" NOT NULL,
    jobid         text COLLATE "C" NOT NULL,
    dataid        text COLLATE "C" NOT NULL,
    partition_no  int NOT NULL,
    start_offset  bigint NOT NULL,
    end_offset    bigint NOT NULL,           -- the one after its last record
    PRIMARY KEY (project, jobid, dataid, partition_no)
);
