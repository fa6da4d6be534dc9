-- Schedules that were set on this server, what somebody must be told, and what was told.

-- Schedules
-- What a person set instead of what project.yml declares. Such a job goes by a clock of its own, the dataset
-- `every slot of JOB`: changing it moves nobody else, and slots that were opened before stay slots.
CREATE TABLE schedule (
    project  text COLLATE "C" NOT NULL,
    jobid    text COLLATE "C" NOT NULL,
    clock    text,                    -- every 30m, cron 0 3 * * * @Europe/Berlin; NULL: as declared, once more
    declared text NOT NULL,           -- JSON: the job's clock, links and partitions by project.yml
    set_by   text NOT NULL,
    set_at   timestamptz NOT NULL,
    reason   text NOT NULL DEFAULT '',
    PRIMARY KEY (project, jobid)
);

-- Alerts
-- Where an address is written down is kept (`notify.0`, `jobs.load.notify.to.1` of project.yml), never the address itself: it
-- holds passwords and tokens. Whoever sends reads it from the project's folder.
CREATE TABLE alert_watch (
    one          integer PRIMARY KEY CHECK (one = 1),
    history_upto bigint NOT NULL,           -- changes up to this one were looked at
    next_look_at timestamptz NOT NULL,      -- whoever moves it looks
    late_upto    timestamptz NOT NULL       -- slots that had to be done before this moment were looked at
);
INSERT INTO alert_watch (one, history_upto, next_look_at, late_upto)
SELECT 1, coalesce(max(id), 0), clock_timestamp(), clock_timestamp() FROM history;

CREATE TABLE alert_pace (
    project text COLLATE "C" NOT NULL,
    jobid   text COLLATE "C" NOT NULL,
    seconds double precision NOT NULL,      -- that a run takes, as a moving average
    runs    integer NOT NULL,               -- that it was made of
    PRIMARY KEY (project, jobid)
);

CREATE TABLE alert_message (
    messageid    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project      text COLLATE "C" NOT NULL,
    place        text COLLATE "C" NOT NULL, -- of the address, in project.yml
    state        text NOT NULL DEFAULT 'GATHERING'
                 CHECK (state IN ('GATHERING', 'SENDING', 'WAITING', 'SENT', 'GIVEN_UP')),
    events       text NOT NULL,             -- the kinds it tells of, separated by spaces
    created_at   timestamptz NOT NULL,
    due_at       timestamptz NOT NULL,      -- it is sent then, or tried again
    attempts     integer NOT NULL DEFAULT 0,
    deaths       integer NOT NULL DEFAULT 0, -- of senders in the middle of it: whether it went is not known
    sender       text,
    sender_until timestamptz,               -- after that, another may send it
    sent_at      timestamptz,
    error        text NOT NULL DEFAULT '',  -- of the last attempt
    title        text NOT NULL DEFAULT '',
    body         text NOT NULL DEFAULT ''
);
CREATE INDEX alert_message_due ON alert_message (due_at) WHERE state IN ('GATHERING', 'SENDING', 'WAITING');
CREATE INDEX alert_message_of ON alert_message (project, place, messageid);
CREATE INDEX alert_message_open ON alert_message (project, place, messageid)
    WHERE state IN ('GATHERING', 'SENDING', 'WAITING');

-- What is told: while `is_open`, it is so, and is not told again.
CREATE TABLE alert (
    alertid   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    messageid bigint NOT NULL,              -- 0: it is so, but not for long enough
    project   text COLLATE "C" NOT NULL,
    place     text COLLATE "C" NOT NULL,
    event     text NOT NULL CHECK (event IN ('failed', 'recovered', 'late', 'stuck')),
    subject   text NOT NULL CHECK (subject IN ('job', 'dataset')),
    owner     text COLLATE "C" NOT NULL,    -- the project of the job or dataset
    name      text COLLATE "C" NOT NULL,
    dataid    text COLLATE "C" NOT NULL,
    runid     bigint,
    reason    text NOT NULL DEFAULT '',
    at        timestamptz NOT NULL,
    is_open   integer NOT NULL DEFAULT 1,
    was_told  integer NOT NULL DEFAULT 0  -- 1: in this message, or in one before
);
CREATE UNIQUE INDEX alert_open ON alert (project, place, event, subject, owner, name, dataid) WHERE is_open = 1;
CREATE INDEX alert_told_in ON alert (messageid, event, alertid);
