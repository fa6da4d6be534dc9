-- Streams: who may send, how far each one is, its batches by the slot they are sealed in, and items that were set aside.
-- Where a stream stands is no column of its own: it is the highest batch that is COMPLETE in job_status.

CREATE TABLE stream (
    project    text COLLATE "C" NOT NULL,
    jobid      text COLLATE "C" NOT NULL,
    token_hash text,                        -- SHA-256 of the token that senders give; NULL: nobody may send over HTTP
    token_at   timestamptz,
    state      text NOT NULL DEFAULT 'NEW' CHECK (state IN ('NEW', 'RUNNING', 'STOPPED', 'FAILED')),
    reason     text NOT NULL DEFAULT '',
    accepted   bigint NOT NULL DEFAULT 0,   -- the end of its log, as its runner last saw it
    oldest_at  timestamptz,                 -- when the oldest item was accepted that is not published yet
    seen_at    timestamptz,                 -- when its runner last said so
    owner      text,
    sealed_to  text COLLATE "C",            -- the slots before this one are sealed
    PRIMARY KEY (project, jobid)
);

CREATE TABLE stream_batch (
    project      text COLLATE "C" NOT NULL,
    jobid        text COLLATE "C" NOT NULL,
    dataid       text COLLATE "C" NOT NULL,
    start_offset bigint NOT NULL,
    end_offset   bigint NOT NULL,           -- the one after its last item
    at           timestamptz NOT NULL,      -- when its first item was accepted
    slot         text COLLATE "C" NOT NULL, -- the hour or day of all of its items
    PRIMARY KEY (project, jobid, dataid)
);
CREATE INDEX stream_batch_end ON stream_batch (project, jobid, end_offset);
CREATE INDEX stream_batch_slot ON stream_batch (project, jobid, slot);

CREATE TABLE stream_failed (
    project     text COLLATE "C" NOT NULL,
    jobid       text COLLATE "C" NOT NULL,
    item_offset bigint NOT NULL,
    at          timestamptz NOT NULL,       -- when it was accepted
    runid       bigint,                     -- the run that set it aside
    error       text NOT NULL,
    item        text NOT NULL,              -- as it was sent, JSON
    replayed_at timestamptz,
    replayed_as text,                       -- the id under which it was sent again
    PRIMARY KEY (project, jobid, item_offset)
);
CREATE INDEX stream_failed_open ON stream_failed (project, jobid, item_offset) WHERE replayed_at IS NULL;
