-- Schedules that were set on this server, what somebody must be told, and what was told.

-- Schedules
-- What a person set instead of what project.yml declares. Such a job goes by a clock of its own, the dataset
-- `every slot of JOB`: changing it moves nobody else, and slots that were opened before stay slots.
CREATE TABLE schedule (
    project  TEXT NOT NULL,
    jobid    TEXT NOT NULL,
    clock    TEXT,                    -- every 30m, cron 0 3 * * * @Europe/Berlin; NULL: as declared, once more
    declared TEXT NOT NULL,           -- JSON: the job's clock, links and partitions by project.yml
    set_by   TEXT NOT NULL,
    set_at   TEXT NOT NULL,
    reason   TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (project, jobid)
) WITHOUT ROWID;

-- Alerts
-- Where an address is written down is kept (`notify.0`, `jobs.load.notify.to.1` of project.yml), never the address itself: it
-- holds passwords and tokens. Whoever sends reads it from the project's folder.
CREATE TABLE alert_watch (
    one          INTEGER PRIMARY KEY CHECK (one = 1),
    history_upto INTEGER NOT NULL,          -- changes up to this one were looked at
    next_look_at TEXT NOT NULL,             -- whoever moves it looks
    late_upto    TEXT NOT NULL              -- slots that had to be done before this moment were looked at
);
INSERT INTO alert_watch (one, history_upto, next_look_at, late_upto)
SELECT 1, coalesce(max(id), 0), strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), strftime('%Y-%m-%dT%H:%M:%fZ', 'now') FROM history;

CREATE TABLE alert_pace (
    project TEXT NOT NULL,
    jobid   TEXT NOT NULL,
    seconds REAL NOT NULL,                  -- that a run takes, as a moving average
    runs    INTEGER NOT NULL,               -- that it was made of
    PRIMARY KEY (project, jobid)
) WITHOUT ROWID;

CREATE TABLE alert_message (
    messageid    INTEGER PRIMARY KEY,
    project      TEXT NOT NULL,
    place        TEXT NOT NULL,             -- of the address, in project.yml
    state        TEXT NOT NULL DEFAULT 'GATHERING'
                 CHECK (state IN ('GATHERING', 'SENDING', 'WAITING', 'SENT', 'GIVEN_UP')),
    events       TEXT NOT NULL,             -- the kinds it tells of, separated by spaces
    created_at   TEXT NOT NULL,
    due_at       TEXT NOT NULL,             -- it is sent then, or tried again
    attempts     INTEGER NOT NULL DEFAULT 0,
    deaths       INTEGER NOT NULL DEFAULT 0, -- of senders in the middle of it: whether it went is not known
    sender       TEXT,
    sender_until TEXT,                      -- after that, another may send it
    sent_at      TEXT,
    error        TEXT NOT NULL DEFAULT '',  -- of the last attempt
    title        TEXT NOT NULL DEFAULT '',
    body         TEXT NOT NULL DEFAULT ''
);
CREATE INDEX alert_message_due ON alert_message (due_at) WHERE state IN ('GATHERING', 'SENDING', 'WAITING');
CREATE INDEX alert_message_of ON alert_message (project, place, messageid);
CREATE INDEX alert_message_open ON alert_message (project, place, messageid)
    WHERE state IN ('GATHERING', 'SENDING', 'WAITING');

-- What is told: while `is_open`, it is so, and is not told again.
CREATE TABLE alert (
    alertid   INTEGER PRIMARY KEY,
    messageid INTEGER NOT NULL,             -- 0: it is so, but not for long enough
    project   TEXT NOT NULL,
    place     TEXT NOT NULL,
    event     TEXT NOT NULL CHECK (event IN ('failed', 'recovered', 'late', 'stuck')),
    subject   TEXT NOT NULL CHECK (subject IN ('job', 'dataset')),
    owner     TEXT NOT NULL,                -- the project of the job or dataset
    name      TEXT NOT NULL,
    dataid    TEXT NOT NULL,
    runid     INTEGER,
    reason    TEXT NOT NULL DEFAULT '',
    at        TEXT NOT NULL,
    is_open   INTEGER NOT NULL DEFAULT 1,
    was_told  INTEGER NOT NULL DEFAULT 0  -- 1: in this message, or in one before
);
CREATE UNIQUE INDEX alert_open ON alert (project, place, event, subject, owner, name, dataid) WHERE is_open = 1;
CREATE INDEX alert_told_in ON alert (messageid, event, alertid);
