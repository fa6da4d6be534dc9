-- Streams: who may send, how far each one is, its batches by the slot they are sealed in, and items that were set aside.
-- Where a stream stands is no column of its own: it is the highest batch that is COMPLETE in job_status.

CREATE TABLE stream (
    project    TEXT NOT NULL,
    jobid      TEXT NOT NULL,
    token_hash TEXT,                        -- SHA-256 of the token that senders give; NULL: nobody may send over HTTP
    token_at   TEXT,
    state      TEXT NOT NULL DEFAULT 'NEW' CHECK (state IN ('NEW', 'RUNNING', 'STOPPED', 'FAILED')),
    reason     TEXT NOT NULL DEFAULT '',
    accepted   INTEGER NOT NULL DEFAULT 0,  -- the end of its log, as its runner last saw it
    oldest_at  TEXT,                        -- when the oldest item was accepted that is not published yet
    seen_at    TEXT,                        -- when its runner last said so
    owner      TEXT,
    sealed_to  TEXT,                        -- the slots before this one are sealed
    PRIMARY KEY (project, jobid)
) WITHOUT ROWID;

CREATE TABLE stream_batch (
    project      TEXT NOT NULL,
    jobid        TEXT NOT NULL,
    dataid       TEXT NOT NULL,
    start_offset INTEGER NOT NULL,
    end_offset   INTEGER NOT NULL,          -- the one after its last item
    at           TEXT NOT NULL,             -- when its first item was accepted
    slot         TEXT NOT NULL,             -- the hour or day of all of its items
    PRIMARY KEY (project, jobid, dataid)
) WITHOUT ROWID;
CREATE INDEX stream_batch_end ON stream_batch (project, jobid, end_offset);
CREATE INDEX stream_batch_slot ON stream_batch (project, jobid, slot);

CREATE TABLE stream_failed (
    project     TEXT NOT NULL,
    jobid       TEXT NOT NULL,
    item_offset INTEGER NOT NULL,
    at          TEXT NOT NULL,              -- when it was accepted
    runid       INTEGER,                    -- the run that set it aside
    error       TEXT NOT NULL,
    item        TEXT NOT NULL,              -- as it was sent, JSON
    replayed_at TEXT,
    replayed_as TEXT,                       -- the id under which it was sent again
    PRIMARY KEY (project, jobid, item_offset)
) WITHOUT ROWID;
CREATE INDEX stream_failed_open ON stream_failed (project, jobid, item_offset) WHERE replayed_at IS NULL;
