-- The core tables. SQL is an interface here: operators read and write job_status and datastatus by hand, so
-- propagation, sort keys and history are triggers in plain SQL that need no function of ours.
-- Times are UTC text like 2025-11-12T02:10:00.000Z, which sorts as time.

CREATE TABLE store (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    store_id    TEXT NOT NULL,
    environment TEXT NOT NULL DEFAULT '',
    -- Who is writing: a transaction of ours names itself here and sets it back before it commits, so whatever
    -- else changes a row is direct SQL. Nobody can see the value of an open transaction.
    actor       TEXT NOT NULL DEFAULT 'direct SQL',
    last_token  INTEGER NOT NULL DEFAULT 0
);
INSERT INTO store (one, store_id) VALUES (1, lower(hex(randomblob(16))));

CREATE TABLE project (
    project  TEXT PRIMARY KEY,
    name     TEXT NOT NULL,
    root     TEXT NOT NULL,
    home     TEXT NOT NULL,
    modified TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) WITHOUT ROWID;

CREATE TABLE dataset (
    project       TEXT NOT NULL DEFAULT '', -- '' in an INSERT: the only project there is
    datasetid     TEXT NOT NULL,
    hostname      TEXT,
    database      TEXT,
    schemaname    TEXT,
    tablename     TEXT,
    username      TEXT,
    encryptedpass TEXT,
    location      TEXT,
    format        TEXT,
    partitions    TEXT,
    definition    TEXT,
    clock         TEXT,
    modified      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (project, datasetid)
) WITHOUT ROWID;

CREATE TABLE job (
    project         TEXT NOT NULL DEFAULT '',
    jobid           TEXT NOT NULL,
    kind            TEXT NOT NULL DEFAULT 'script' CHECK (kind IN ('script', 'pipeline')),
    script          TEXT,
    definition      TEXT NOT NULL DEFAULT '{}',
    partitions      TEXT,
    expected_upto   TEXT,
    lease_seconds   REAL NOT NULL DEFAULT 60,
    timeout_seconds REAL,
    retries_max     INTEGER NOT NULL DEFAULT 0,
    backoff_seconds REAL NOT NULL DEFAULT 30,
    concurrency     INTEGER,
    strict          INTEGER NOT NULL DEFAULT 0, -- 1: no dataid before the one before it
    catchup         TEXT NOT NULL DEFAULT 'all' CHECK (catchup IN ('all', 'latest')), -- missed slots of its clock
    paused_by       TEXT,                       -- who holds the whole job
    paused_at       TEXT,
    same_inputs     INTEGER NOT NULL DEFAULT 0, -- `waiting` of a new job_status row: inputs mapped dataid by dataid,
                                                -- and one more where other inputs must be mapped first
    clocked         INTEGER NOT NULL DEFAULT 0, -- 1: it reads a clock, whose slots alone make its dataids
    mapped_inputs   INTEGER NOT NULL DEFAULT 0, -- inputs by offset, window, rollup or all: see job_input
    shared_waiting  INTEGER NOT NULL DEFAULT 0, -- inputs that every dataid shares (`full`) and that are not READY
    modified        TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (project, jobid)
) WITHOUT ROWID;

CREATE TABLE job_dataset (
    project         TEXT NOT NULL DEFAULT '',
    jobid           TEXT NOT NULL,
    itemtype        TEXT NOT NULL CHECK (itemtype IN ('IN', 'OUT')),
    dataset_project TEXT NOT NULL DEFAULT '',
    datasetid       TEXT NOT NULL,
    map             TEXT NOT NULL DEFAULT 'same'
                    CHECK (map IN ('same', 'full', 'rollup', 'all')
                           OR map GLOB 'offset:[1-9]*' OR map GLOB 'offset:-[1-9]*' OR map GLOB 'window:[1-9]*'),
    position        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (project, jobid, itemtype, dataset_project, datasetid)
) WITHOUT ROWID;
CREATE INDEX job_dataset_of ON job_dataset (dataset_project, datasetid, itemtype, map);

-- The chunks that a dataid of a job reads through offset, window, rollup or all.
CREATE TABLE job_input (
    dataset_project TEXT NOT NULL,
    datasetid       TEXT NOT NULL,
    dataid          TEXT NOT NULL, -- of the chunk
    project         TEXT NOT NULL,
    jobid           TEXT NOT NULL,
    job_dataid      TEXT NOT NULL,
    position        INTEGER NOT NULL,
    PRIMARY KEY (dataset_project, datasetid, dataid, project, jobid, job_dataid)
) WITHOUT ROWID;
CREATE INDEX job_input_of ON job_input (project, jobid, job_dataid, position);

-- Checks of a status are written out: of a list longer than two, SQLite makes a table, at every insert and update.
CREATE TABLE job_status (
    project      TEXT NOT NULL,
    jobid        TEXT NOT NULL,
    dataid       TEXT NOT NULL CHECK (dataid <> ''),
    status       TEXT NOT NULL DEFAULT 'PENDING'
                 CHECK (status = 'PENDING' OR status = 'RUNNING' OR status = 'COMPLETE'
                        OR status = 'FAILED' OR status = 'RESUBMIT' OR status = 'HOLD'),
    waiting      INTEGER NOT NULL DEFAULT 0, -- its own input chunks that are not READY; only ever moved by one
    unmapped     INTEGER NOT NULL DEFAULT 0, -- 1: its rows in job_input are still to be made
    again        INTEGER NOT NULL DEFAULT 0 CHECK (again IN (0, 1)),
    attempts     INTEGER NOT NULL DEFAULT 0,
    deaths       INTEGER NOT NULL DEFAULT 0,
    parked_until TEXT,
    refusals     INTEGER NOT NULL DEFAULT 0,
    refusal      TEXT,                       -- the last refusal's answers, JSON
    runid        INTEGER,                    -- the live or last run, and its fencing token
    owner        TEXT,
    host         TEXT,
    lease_until  TEXT,
    modified     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    -- Natural order: a number at the end counts as a number (9, 10, 100); dates sort as dates.
    sortkey      TEXT GENERATED ALWAYS AS (
                     rtrim(dataid, '0123456789')
                     || printf('%03d', length(ltrim(substr(dataid, length(rtrim(dataid, '0123456789')) + 1), '0')))
                     || ltrim(substr(dataid, length(rtrim(dataid, '0123456789')) + 1), '0')) STORED,
    PRIMARY KEY (project, jobid, dataid)
) WITHOUT ROWID;
-- The next claim is a seek in this index, however many chunks are done.
CREATE INDEX job_status_claimable ON job_status (project, jobid, sortkey, dataid)
    WHERE status IN ('PENDING', 'RESUBMIT') AND waiting <= 0 AND parked_until IS NULL;
-- Rows on their way from claimable to RUNNING to COMPLETE are in neither of these.
CREATE INDEX job_status_blocked ON job_status (project, jobid, sortkey, dataid)
    WHERE status = 'HOLD' OR (status IN ('PENDING', 'RESUBMIT') AND (waiting > 0 OR parked_until IS NOT NULL));
CREATE INDEX job_status_failed ON job_status (project, jobid, sortkey, dataid) WHERE status = 'FAILED';
CREATE INDEX job_status_running ON job_status (project, jobid, lease_until) WHERE status = 'RUNNING';
CREATE INDEX job_status_parked ON job_status (parked_until) WHERE parked_until IS NOT NULL;
CREATE INDEX job_status_unmapped ON job_status (project, jobid) WHERE unmapped = 1;

CREATE TABLE datastatus (
    project      TEXT NOT NULL DEFAULT '',   -- '' in an INSERT: the one project that has this dataset
    datasetid    TEXT NOT NULL,
    dataid       TEXT NOT NULL CHECK (dataid <> ''),
    locktype     TEXT NOT NULL DEFAULT 'OUT' CHECK (locktype IN ('IN', 'OUT')),
    reader       TEXT NOT NULL DEFAULT '',   -- IN rows: the run that reads
    jobid        TEXT NOT NULL DEFAULT '',
    status       TEXT NOT NULL CHECK (
                 status = 'PENDING' OR status = 'RUNNING' OR status = 'READY' OR
                 status = 'FAILED' OR status = 'RESUBMIT' OR status = 'HOLD'),
    version      INTEGER,                    -- the published version: a run's id, or the token of an assertion
    location     TEXT,
    fingerprint  TEXT,
    validated_at TEXT,
    problem      TEXT,                       -- why what arrived was rejected: CODE: evidence
    modified     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    CHECK (locktype = 'IN' OR reader = ''),
    PRIMARY KEY (project, datasetid, dataid, locktype, reader)
) WITHOUT ROWID;

CREATE TABLE data_manifest (
    project      TEXT NOT NULL,
    datasetid    TEXT NOT NULL,
    dataid       TEXT NOT NULL,
    version      INTEGER NOT NULL,
    location     TEXT,
    files        INTEGER,
    bytes        INTEGER,
    rows         INTEGER,
    schema       TEXT,
    fingerprint  TEXT,
    validated_at TEXT,
    created_at   TEXT NOT NULL,
    PRIMARY KEY (project, datasetid, dataid, version)
) WITHOUT ROWID;

CREATE TABLE run (
    runid         INTEGER PRIMARY KEY,
    project       TEXT NOT NULL,
    jobid         TEXT NOT NULL,
    dataid        TEXT NOT NULL,
    attempt       INTEGER NOT NULL,
    forced        INTEGER NOT NULL DEFAULT 0, -- 1: a person ran it against the answers
    status        TEXT NOT NULL DEFAULT 'RUNNING'
                  CHECK (status = 'RUNNING' OR status = 'COMPLETE' OR status = 'FAILED'
                         OR status = 'RESUBMIT' OR status = 'LOST'),
    owner         TEXT NOT NULL,
    host          TEXT NOT NULL,
    pid           INTEGER NOT NULL,
    pid_started   INTEGER NOT NULL,
    guard_pid     INTEGER NOT NULL,
    guard_started INTEGER NOT NULL,
    claimed_at    TEXT NOT NULL,
    ended_at      TEXT,
    exit_code     INTEGER,
    message       TEXT NOT NULL DEFAULT '',
    answers       TEXT NOT NULL,             -- the five answers of this attempt, JSON
    inputs        TEXT NOT NULL,             -- the versions it read, JSON
    log_path      TEXT,
    log_tail      TEXT NOT NULL DEFAULT ''
);

CREATE TABLE history (
    id         INTEGER PRIMARY KEY,
    at         TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    kind       TEXT NOT NULL CHECK (kind IN ('job', 'chunk')),
    project    TEXT NOT NULL,
    name       TEXT NOT NULL,
    dataid     TEXT NOT NULL,
    old_status TEXT,
    new_status TEXT,
    runid      INTEGER,
    actor      TEXT NOT NULL
);
-- Also the way to the runs of a dataid: every change of a run is here with its number.
CREATE INDEX history_of ON history (dataid, name, id); -- by dataid first: what one run writes lies together

-- How many dataids of a job and chunks of a dataset stand in each status, as of the history up to `upto` (the row with an
-- empty kind). What came later is added when somebody asks, and folded in now and then: no claim waits for a counter.
CREATE TABLE tally (
    kind    TEXT NOT NULL,
    project TEXT NOT NULL,
    name    TEXT NOT NULL,
    status  TEXT NOT NULL,
    n       INTEGER NOT NULL,
    PRIMARY KEY (kind, project, name, status)
) WITHOUT ROWID;
INSERT INTO tally (kind, project, name, status, n) VALUES ('', '', '', 'upto', 0);

-- What the counters should be, counted from the chunks as they are: for registration, the sweep and `db check`.
CREATE VIEW link_counts AS
SELECT j.project, j.jobid,
       count(CASE WHEN l.map = 'same' THEN 1 END)
       + (count(CASE WHEN l.map NOT IN ('same', 'full') THEN 1 END) > 0) AS same_inputs,
       count(CASE WHEN l.map NOT IN ('same', 'full') THEN 1 END) AS mapped_inputs,
       count(CASE WHEN l.map = 'full' AND c.status IS NOT 'READY' THEN 1 END) AS shared_waiting,
       count(d.clock) > 0 AS clocked
FROM job j
     LEFT JOIN job_dataset l ON l.project = j.project AND l.jobid = j.jobid AND l.itemtype = 'IN'
     LEFT JOIN dataset d ON d.project = l.dataset_project AND d.datasetid = l.datasetid
     LEFT JOIN datastatus c ON c.project = l.dataset_project AND c.datasetid = l.datasetid AND c.dataid = 'full'
                               AND c.locktype = 'OUT' AND c.reader = '' AND l.map = 'full'
GROUP BY j.project, j.jobid;

CREATE VIEW counted_waiting AS
SELECT s.project, s.jobid, s.dataid,
       (SELECT count(*) FROM job_dataset l
        WHERE l.project = s.project AND l.jobid = s.jobid AND l.itemtype = 'IN' AND l.map = 'same'
          AND NOT EXISTS (SELECT 1 FROM datastatus c
                          WHERE c.project = l.dataset_project AND c.datasetid = l.datasetid AND c.dataid = s.dataid
                            AND c.locktype = 'OUT' AND c.reader = '' AND c.status = 'READY'))
       + CASE s.unmapped WHEN 1 THEN 1 ELSE
           (SELECT count(*) FROM job_input e
            WHERE e.project = s.project AND e.jobid = s.jobid AND e.job_dataid = s.dataid
              AND NOT EXISTS (SELECT 1 FROM datastatus c
                              WHERE c.project = e.dataset_project AND c.datasetid = e.datasetid AND c.dataid = e.dataid
                                AND c.locktype = 'OUT' AND c.reader = '' AND c.status = 'READY')) END AS waiting
FROM job_status s;

CREATE TRIGGER history_is_append_only_1 BEFORE UPDATE ON history
BEGIN
    SELECT RAISE(ABORT, 'history is append-only');
END;
CREATE TRIGGER history_is_append_only_2 BEFORE DELETE ON history
WHEN (SELECT actor FROM store) NOT LIKE 'history clean%'
BEGIN
    SELECT RAISE(ABORT, 'history is append-only; see dataflow history clean');
END;

-- Every trigger that could fire costs a frame even when its WHEN says no, and a claim and a publish pass all of them. So
-- there are few: one for the history, one for what a publish wakes, and one for everything that only hand-made changes,
-- RESUBMIT and chunks closing need. A frame is as large as its trigger's body, and is cleared each time: what runs seldom
-- stands in a trigger of its own, and inserting into a view is how that one is called.

-- Jobs on dataids -------------------------------------------------------------------------------------------------
CREATE TRIGGER job_status_history_insert AFTER INSERT ON job_status WHEN NEW.status <> 'PENDING'
BEGIN
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    VALUES ('job', NEW.project, NEW.jobid, NEW.dataid, NULL, NEW.status, NEW.runid, (SELECT actor FROM store));
END;
CREATE TRIGGER job_status_history_update AFTER UPDATE OF status ON job_status WHEN NEW.status <> OLD.status
BEGIN
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    VALUES ('job', NEW.project, NEW.jobid, NEW.dataid, OLD.status, NEW.status, NEW.runid, (SELECT actor FROM store));
END;
CREATE TRIGGER job_status_history_delete AFTER DELETE ON job_status WHEN OLD.status <> 'PENDING'
BEGIN
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    VALUES ('job', OLD.project, OLD.jobid, OLD.dataid, OLD.status, NULL, OLD.runid, (SELECT actor FROM store));
END;
CREATE TRIGGER job_status_key_is_fixed BEFORE UPDATE OF project, jobid, dataid ON job_status
WHEN NEW.project <> OLD.project OR NEW.jobid <> OLD.jobid OR NEW.dataid <> OLD.dataid
BEGIN
    SELECT RAISE(ABORT, 'a job on a dataid keeps its name; delete the row and insert another');
END;

-- A claim and the end of a run change the owner; whatever leaves it as it is comes from outside the run.
-- A RUNNING job is its owner's: taken from it by hand, its locks would stay for ever; set by hand, nobody would end it.
-- RESUBMIT, however it is set, leaves PENDING and HOLD (but they are tried at once, not after their backoff), and on
-- RUNNING means again after this run.
CREATE TRIGGER job_status_by_hand BEFORE UPDATE OF status ON job_status
WHEN NEW.owner IS OLD.owner
     AND (NEW.status = 'RUNNING' OR OLD.status = 'RUNNING'
          OR (NEW.status = 'RESUBMIT' AND OLD.status IN ('PENDING', 'HOLD')))
BEGIN
    SELECT RAISE(ABORT, 'only a claim makes a job RUNNING and only its run ends it; RESUBMIT means again after this run')
    WHERE NEW.status <> OLD.status AND NEW.status <> 'RESUBMIT';
    UPDATE job_status
    SET parked_until = CASE OLD.status WHEN 'RUNNING' THEN parked_until END,
        again = OLD.status = 'RUNNING' OR again
    WHERE project = OLD.project AND jobid = OLD.jobid AND dataid = OLD.dataid
      AND (OLD.status <> 'RUNNING' OR NEW.status = 'RESUBMIT');
    SELECT RAISE(IGNORE) WHERE NEW.status = 'RESUBMIT';
END;
-- RESUBMIT closes the outputs. A person's gives the job all its attempts back; a due retry (which ends the parking) does
-- not. And `modified` follows hand-made changes; our own statements set it themselves.
CREATE VIEW job_changed AS
SELECT '' AS project, '' AS jobid, '' AS dataid, '' AS old_status, '' AS new_status, 0 AS still_parked,
       0 AS unsigned; -- 1: whoever changed it left `modified` as it was
CREATE TRIGGER job_status_resubmit AFTER UPDATE OF status ON job_status
WHEN NEW.status = 'RESUBMIT' OR (NEW.modified IS OLD.modified AND NEW.status <> OLD.status)
BEGIN
    INSERT INTO job_changed VALUES (NEW.project, NEW.jobid, NEW.dataid, OLD.status, NEW.status,
                                    NEW.parked_until IS OLD.parked_until, NEW.modified IS OLD.modified);
END;
CREATE TRIGGER job_changed_follows INSTEAD OF INSERT ON job_changed
BEGIN
    UPDATE datastatus SET status = 'RESUBMIT', modified = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
    WHERE NEW.new_status = 'RESUBMIT' AND NEW.old_status <> 'RESUBMIT'
      AND dataid = NEW.dataid AND locktype = 'OUT' AND reader = '' AND status IN ('READY', 'FAILED', 'RUNNING')
      AND (project, datasetid) IN
          (SELECT dataset_project, datasetid FROM job_dataset
           WHERE project = NEW.project AND jobid = NEW.jobid AND itemtype = 'OUT');
    UPDATE job_status SET attempts = 0, deaths = 0, refusals = 0, parked_until = NULL
    WHERE project = NEW.project AND jobid = NEW.jobid AND dataid = NEW.dataid
      AND NEW.new_status = 'RESUBMIT' AND NEW.old_status IN ('COMPLETE', 'FAILED', 'RESUBMIT') AND NEW.still_parked;
    UPDATE job_status SET modified = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
    WHERE project = NEW.project AND jobid = NEW.jobid AND dataid = NEW.dataid
      AND NEW.unsigned AND NEW.new_status <> NEW.old_status;
END;

-- Chunks ----------------------------------------------------------------------------------------------------------
CREATE TRIGGER datastatus_by_hand BEFORE INSERT ON datastatus
WHEN NOT EXISTS (SELECT 1 FROM dataset WHERE project = NEW.project AND datasetid = NEW.datasetid)
BEGIN
    SELECT RAISE(ABORT, 'this project has no dataset of this name; see dataflow apply') WHERE NEW.project <> '';
    SELECT RAISE(ABORT, 'no project has a dataset of this name; see dataflow apply')
    WHERE NOT EXISTS (SELECT 1 FROM dataset WHERE datasetid = NEW.datasetid);
    SELECT RAISE(ABORT, 'several projects have a dataset of this name; give the column project')
    WHERE (SELECT count(*) FROM dataset WHERE datasetid = NEW.datasetid) > 1;
    INSERT INTO datastatus (project, datasetid, dataid, locktype, reader, jobid, status, version, location,
                            fingerprint, validated_at, problem, modified)
    SELECT project, NEW.datasetid, NEW.dataid, NEW.locktype, NEW.reader, NEW.jobid, NEW.status, NEW.version,
           NEW.location, NEW.fingerprint, NEW.validated_at, NEW.problem, NEW.modified
    FROM dataset WHERE datasetid = NEW.datasetid;
    SELECT RAISE(IGNORE);
END;
CREATE TRIGGER datastatus_key_is_fixed BEFORE UPDATE OF project, datasetid, dataid, locktype, reader ON datastatus
WHEN NEW.project <> OLD.project OR NEW.datasetid <> OLD.datasetid OR NEW.dataid <> OLD.dataid
     OR NEW.locktype <> OLD.locktype OR NEW.reader <> OLD.reader
BEGIN
    SELECT RAISE(ABORT, 'a chunk keeps its name; delete the row and insert another');
END;
-- An IN row is a live run's lock; a hand-made change of the chunk's status is not meant for it.
CREATE TRIGGER readers_keep_their_locks BEFORE UPDATE OF status ON datastatus
WHEN OLD.locktype = 'IN' AND NEW.status <> OLD.status
BEGIN
    SELECT RAISE(IGNORE);
END;

CREATE TRIGGER chunk_history_insert AFTER INSERT ON datastatus WHEN NEW.locktype = 'OUT'
BEGIN
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    VALUES ('chunk', NEW.project, NEW.datasetid, NEW.dataid, NULL, NEW.status, NEW.version, (SELECT actor FROM store));
END;
CREATE TRIGGER chunk_history_update AFTER UPDATE OF status ON datastatus
WHEN NEW.locktype = 'OUT' AND (NEW.status <> OLD.status OR NEW.version IS NOT OLD.version)
BEGIN
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    VALUES ('chunk', NEW.project, NEW.datasetid, NEW.dataid, OLD.status, NEW.status, NEW.version,
            (SELECT actor FROM store));
END;

-- Readiness: a chunk that opens or closes moves the counters of those who wait for it, by one.
CREATE VIEW chunk_opened AS SELECT '' AS project, '' AS datasetid, '' AS dataid;
CREATE TRIGGER chunk_opened_wakes INSTEAD OF INSERT ON chunk_opened
BEGIN
    INSERT INTO job_status (project, jobid, dataid, waiting, unmapped)
    SELECT l.project, l.jobid, NEW.dataid, j.same_inputs - 1, j.mapped_inputs > 0
    FROM job_dataset l JOIN job j ON j.project = l.project AND j.jobid = l.jobid
    WHERE l.dataset_project = NEW.project AND l.datasetid = NEW.datasetid AND l.itemtype = 'IN' AND l.map = 'same'
      AND (j.clocked = 0 OR EXISTS (SELECT 1 FROM dataset
                                    WHERE project = NEW.project AND datasetid = NEW.datasetid AND clock IS NOT NULL))
    ON CONFLICT (project, jobid, dataid) DO UPDATE SET waiting = waiting - 1;
    UPDATE job_status SET waiting = waiting - 1
    WHERE dataid = NEW.dataid
      AND (SELECT clock FROM dataset WHERE project = NEW.project AND datasetid = NEW.datasetid) IS NULL
      AND (project, jobid) IN
        (SELECT l.project, l.jobid FROM job_dataset l CROSS JOIN job j
         WHERE l.dataset_project = NEW.project AND l.datasetid = NEW.datasetid AND l.itemtype = 'IN' AND l.map = 'same'
           AND j.project = l.project AND j.jobid = l.jobid AND j.clocked = 1);
    UPDATE job_status SET waiting = waiting - 1
    WHERE (project, jobid, dataid) IN
        (SELECT project, jobid, job_dataid FROM job_input
         WHERE dataset_project = NEW.project AND datasetid = NEW.datasetid AND dataid = NEW.dataid);
    UPDATE job SET shared_waiting = shared_waiting - 1
    WHERE NEW.dataid = 'full' AND (project, jobid) IN
        (SELECT project, jobid FROM job_dataset
         WHERE dataset_project = NEW.project AND datasetid = NEW.datasetid AND itemtype = 'IN' AND map = 'full');
END;
CREATE VIEW chunk_closed AS SELECT '' AS project, '' AS datasetid, '' AS dataid;
CREATE TRIGGER chunk_closed_stops INSTEAD OF INSERT ON chunk_closed
BEGIN
    UPDATE job_status SET waiting = waiting + 1
    WHERE dataid = NEW.dataid AND (project, jobid) IN
        (SELECT project, jobid FROM job_dataset
         WHERE dataset_project = NEW.project AND datasetid = NEW.datasetid AND itemtype = 'IN' AND map = 'same');
    UPDATE job_status SET waiting = waiting + 1
    WHERE (project, jobid, dataid) IN
        (SELECT project, jobid, job_dataid FROM job_input
         WHERE dataset_project = NEW.project AND datasetid = NEW.datasetid AND dataid = NEW.dataid);
    UPDATE job SET shared_waiting = shared_waiting + 1
    WHERE NEW.dataid = 'full' AND (project, jobid) IN
        (SELECT project, jobid FROM job_dataset
         WHERE dataset_project = NEW.project AND datasetid = NEW.datasetid AND itemtype = 'IN' AND map = 'full');
END;
-- A chunk declared READY from outside also completes the job that would have made it, once all its outputs are there.
-- (A publish goes from RUNNING to READY and ends the job itself.)
CREATE VIEW chunk_asserted AS SELECT '' AS project, '' AS datasetid, '' AS dataid;
CREATE TRIGGER chunk_asserted_completes INSTEAD OF INSERT ON chunk_asserted
BEGIN
    INSERT INTO job_status (project, jobid, dataid, status, waiting, unmapped)
    SELECT l.project, l.jobid, NEW.dataid, 'COMPLETE', j.same_inputs, j.mapped_inputs > 0
    FROM job_dataset l JOIN job j ON j.project = l.project AND j.jobid = l.jobid
    WHERE l.dataset_project = NEW.project AND l.datasetid = NEW.datasetid AND l.itemtype = 'OUT'
      AND NOT EXISTS (
          SELECT 1 FROM job_dataset o LEFT JOIN datastatus c
              ON c.project = o.dataset_project AND c.datasetid = o.datasetid AND c.dataid = NEW.dataid
                 AND c.locktype = 'OUT' AND c.reader = ''
          WHERE o.project = l.project AND o.jobid = l.jobid AND o.itemtype = 'OUT' AND c.status IS NOT 'READY')
    ON CONFLICT (project, jobid, dataid) DO UPDATE SET status = 'COMPLETE', parked_until = NULL
    WHERE status IN ('PENDING', 'FAILED', 'RESUBMIT');
END;
CREATE TRIGGER chunk_opens AFTER UPDATE OF status ON datastatus
WHEN NEW.status = 'READY' AND OLD.status <> 'READY' AND NEW.locktype = 'OUT'
     AND EXISTS (SELECT 1 FROM job_dataset
                 WHERE dataset_project = NEW.project AND datasetid = NEW.datasetid AND itemtype = 'IN')
BEGIN
    INSERT INTO chunk_opened VALUES (NEW.project, NEW.datasetid, NEW.dataid);
END;
CREATE TRIGGER chunk_arrives AFTER INSERT ON datastatus WHEN NEW.status = 'READY' AND NEW.locktype = 'OUT'
BEGIN
    INSERT INTO chunk_opened VALUES (NEW.project, NEW.datasetid, NEW.dataid);
    INSERT INTO chunk_asserted VALUES (NEW.project, NEW.datasetid, NEW.dataid);
END;
-- What neither a claim nor a publish does: chunks declared READY that had a row, closed, resubmitted or changed by hand.
CREATE VIEW chunk_changed AS
SELECT '' AS project, '' AS datasetid, '' AS dataid, '' AS locktype, '' AS reader, '' AS old_status, '' AS new_status,
       0 AS unsigned; -- 1: whoever changed it left `modified` as it was
CREATE TRIGGER chunk_changed_otherwise AFTER UPDATE OF status ON datastatus
WHEN NEW.locktype = 'OUT' AND (OLD.status = 'READY' OR (NEW.status IN ('READY', 'RESUBMIT') AND OLD.status <> 'RUNNING')
                               OR NEW.modified IS OLD.modified)
BEGIN
    INSERT INTO chunk_changed VALUES (NEW.project, NEW.datasetid, NEW.dataid, NEW.locktype, NEW.reader, OLD.status,
                                      NEW.status, NEW.modified IS OLD.modified);
END;
CREATE TRIGGER chunk_changed_follows INSTEAD OF INSERT ON chunk_changed
BEGIN
    INSERT INTO chunk_closed
    SELECT NEW.project, NEW.datasetid, NEW.dataid WHERE NEW.old_status = 'READY' AND NEW.new_status <> 'READY';
    INSERT INTO chunk_asserted
    SELECT NEW.project, NEW.datasetid, NEW.dataid
    WHERE NEW.new_status = 'READY' AND NEW.old_status NOT IN ('READY', 'RUNNING');
    UPDATE job_status SET status = 'RESUBMIT'
    WHERE NEW.new_status = 'RESUBMIT' AND NEW.old_status IN ('READY', 'FAILED')
      AND dataid = NEW.dataid AND status IN ('COMPLETE', 'FAILED') AND (project, jobid) IN
        (SELECT project, jobid FROM job_dataset
         WHERE dataset_project = NEW.project AND datasetid = NEW.datasetid AND itemtype = 'OUT');
    UPDATE datastatus SET modified = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
    WHERE project = NEW.project AND datasetid = NEW.datasetid AND dataid = NEW.dataid
      AND locktype = NEW.locktype AND reader = NEW.reader
      AND NEW.unsigned AND NEW.new_status <> NEW.old_status;
END;
CREATE TRIGGER chunk_deleted AFTER DELETE ON datastatus WHEN OLD.locktype = 'OUT'
BEGIN
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    VALUES ('chunk', OLD.project, OLD.datasetid, OLD.dataid, OLD.status, NULL, OLD.version, (SELECT actor FROM store));
    INSERT INTO chunk_closed SELECT OLD.project, OLD.datasetid, OLD.dataid WHERE OLD.status = 'READY';
END;

-- Registration by hand: rows without a project belong to the only one, and counters follow the links ------------------
CREATE TRIGGER dataset_by_hand BEFORE INSERT ON dataset WHEN NEW.project = ''
BEGIN
    SELECT RAISE(ABORT, 'this store has no project or several; give the column project')
    WHERE (SELECT count(*) FROM project) <> 1;
    INSERT INTO dataset (project, datasetid, hostname, database, schemaname, tablename, username, encryptedpass, location,
                         format, partitions, definition, clock, modified)
    SELECT project, NEW.datasetid, NEW.hostname, NEW.database, NEW.schemaname, NEW.tablename, NEW.username,
           NEW.encryptedpass, NEW.location, NEW.format, NEW.partitions, NEW.definition, NEW.clock,
           NEW.modified
    FROM project;
    SELECT RAISE(IGNORE);
END;
CREATE TRIGGER job_by_hand BEFORE INSERT ON job WHEN NEW.project = ''
BEGIN
    SELECT RAISE(ABORT, 'this store has no project or several; give the column project')
    WHERE (SELECT count(*) FROM project) <> 1;
    INSERT INTO job (project, jobid, kind, script, definition, partitions, lease_seconds, timeout_seconds, retries_max,
                     backoff_seconds, concurrency, strict, catchup, modified)
    SELECT project, NEW.jobid, NEW.kind, NEW.script, NEW.definition, NEW.partitions, NEW.lease_seconds,
           NEW.timeout_seconds, NEW.retries_max, NEW.backoff_seconds, NEW.concurrency, NEW.strict, NEW.catchup,
           NEW.modified
    FROM project;
    SELECT RAISE(IGNORE);
END;
CREATE TRIGGER job_dataset_by_hand BEFORE INSERT ON job_dataset WHEN NEW.project = '' OR NEW.dataset_project = ''
BEGIN
    SELECT RAISE(ABORT, 'this store has no project or several; give the column project')
    WHERE NEW.project = '' AND (SELECT count(*) FROM project) <> 1;
    INSERT INTO job_dataset (project, jobid, itemtype, dataset_project, datasetid, map, position)
    SELECT project, NEW.jobid, NEW.itemtype, CASE NEW.dataset_project WHEN '' THEN project ELSE NEW.dataset_project END,
           NEW.datasetid, NEW.map, NEW.position
    FROM project WHERE NEW.project IN ('', project);
    SELECT RAISE(IGNORE);
END;
-- Our own transactions count when all links are there.
CREATE TRIGGER link_made_by_hand AFTER INSERT ON job_dataset WHEN (SELECT actor FROM store) = 'direct SQL'
BEGIN
    SELECT RAISE(ABORT, 'that project has no such dataset')
    WHERE NOT EXISTS (SELECT 1 FROM dataset WHERE project = NEW.dataset_project AND datasetid = NEW.datasetid);
    UPDATE job
    SET (same_inputs, mapped_inputs, shared_waiting, clocked) =
        (SELECT c.same_inputs, c.mapped_inputs, c.shared_waiting, c.clocked FROM link_counts c
         WHERE c.project = job.project AND c.jobid = job.jobid)
    WHERE project = NEW.project AND jobid = NEW.jobid;
    INSERT INTO job_status (project, jobid, dataid, waiting, unmapped)
    SELECT DISTINCT j.project, j.jobid, c.dataid, j.same_inputs, j.mapped_inputs > 0
    FROM job j JOIN job_dataset i ON i.project = j.project AND i.jobid = j.jobid AND i.itemtype = 'IN' AND i.map = 'same'
         JOIN datastatus c ON c.project = i.dataset_project AND c.datasetid = i.datasetid AND c.locktype = 'OUT'
                              AND c.status = 'READY'
         JOIN dataset d ON d.project = c.project AND d.datasetid = c.datasetid
    WHERE d.clock IS NULL AND j.clocked = 0 AND j.project = NEW.project AND j.jobid = NEW.jobid
    ON CONFLICT (project, jobid, dataid) DO NOTHING;
    DELETE FROM job_input WHERE project = NEW.project AND jobid = NEW.jobid;
    UPDATE job_status
    SET unmapped = (SELECT j.mapped_inputs > 0 FROM job j WHERE j.project = NEW.project AND j.jobid = NEW.jobid)
    WHERE project = NEW.project AND jobid = NEW.jobid;
    UPDATE job_status
    SET waiting = (SELECT w.waiting FROM counted_waiting w
                   WHERE w.project = job_status.project AND w.jobid = job_status.jobid AND w.dataid = job_status.dataid)
    WHERE project = NEW.project AND jobid = NEW.jobid;
END;
CREATE TRIGGER link_changed_by_hand AFTER UPDATE ON job_dataset WHEN (SELECT actor FROM store) = 'direct SQL'
BEGIN
    UPDATE job
    SET (same_inputs, mapped_inputs, shared_waiting, clocked) =
        (SELECT c.same_inputs, c.mapped_inputs, c.shared_waiting, c.clocked FROM link_counts c
         WHERE c.project = job.project AND c.jobid = job.jobid)
    WHERE project = NEW.project AND jobid = NEW.jobid;
    INSERT INTO job_status (project, jobid, dataid, waiting, unmapped)
    SELECT DISTINCT j.project, j.jobid, c.dataid, j.same_inputs, j.mapped_inputs > 0
    FROM job j JOIN job_dataset i ON i.project = j.project AND i.jobid = j.jobid AND i.itemtype = 'IN' AND i.map = 'same'
         JOIN datastatus c ON c.project = i.dataset_project AND c.datasetid = i.datasetid AND c.locktype = 'OUT'
                              AND c.status = 'READY'
         JOIN dataset d ON d.project = c.project AND d.datasetid = c.datasetid
    WHERE d.clock IS NULL AND j.clocked = 0 AND j.project = NEW.project AND j.jobid = NEW.jobid
    ON CONFLICT (project, jobid, dataid) DO NOTHING;
    DELETE FROM job_input WHERE project = NEW.project AND jobid = NEW.jobid;
    UPDATE job_status
    SET unmapped = (SELECT j.mapped_inputs > 0 FROM job j WHERE j.project = NEW.project AND j.jobid = NEW.jobid)
    WHERE project = NEW.project AND jobid = NEW.jobid;
    UPDATE job_status
    SET waiting = (SELECT w.waiting FROM counted_waiting w
                   WHERE w.project = job_status.project AND w.jobid = job_status.jobid AND w.dataid = job_status.dataid)
    WHERE project = NEW.project AND jobid = NEW.jobid;
END;
CREATE TRIGGER link_removed_by_hand AFTER DELETE ON job_dataset WHEN (SELECT actor FROM store) = 'direct SQL'
BEGIN
    UPDATE job
    SET (same_inputs, mapped_inputs, shared_waiting, clocked) =
        (SELECT c.same_inputs, c.mapped_inputs, c.shared_waiting, c.clocked FROM link_counts c
         WHERE c.project = job.project AND c.jobid = job.jobid)
    WHERE project = OLD.project AND jobid = OLD.jobid;
    INSERT INTO job_status (project, jobid, dataid, waiting, unmapped)
    SELECT DISTINCT j.project, j.jobid, c.dataid, j.same_inputs, j.mapped_inputs > 0
    FROM job j JOIN job_dataset i ON i.project = j.project AND i.jobid = j.jobid AND i.itemtype = 'IN' AND i.map = 'same'
         JOIN datastatus c ON c.project = i.dataset_project AND c.datasetid = i.datasetid AND c.locktype = 'OUT'
                              AND c.status = 'READY'
         JOIN dataset d ON d.project = c.project AND d.datasetid = c.datasetid
    WHERE d.clock IS NULL AND j.clocked = 0 AND j.project = OLD.project AND j.jobid = OLD.jobid
    ON CONFLICT (project, jobid, dataid) DO NOTHING;
    DELETE FROM job_input WHERE project = OLD.project AND jobid = OLD.jobid;
    UPDATE job_status
    SET unmapped = (SELECT j.mapped_inputs > 0 FROM job j WHERE j.project = OLD.project AND j.jobid = OLD.jobid)
    WHERE project = OLD.project AND jobid = OLD.jobid;
    UPDATE job_status
    SET waiting = (SELECT w.waiting FROM counted_waiting w
                   WHERE w.project = job_status.project AND w.jobid = job_status.jobid AND w.dataid = job_status.dataid)
    WHERE project = OLD.project AND jobid = OLD.jobid;
END;
