-- A table's CHECK constraints are parsed anew for every statement, a domain's once per session: so statuses are domains,
-- and what else a hand-made row could get wrong is refused by the triggers that only hand-made rows meet.
--
-- The core tables. SQL is an interface here: operators read and write job_status and datastatus by hand, so
-- propagation, sort keys and history are triggers. The tables are those of the SQLite store, column by column; where
-- PostgreSQL has a better type (timestamptz, json) it is used.

CREATE DOMAIN job_state AS text
    CHECK (VALUE IN ('PENDING', 'RUNNING', 'COMPLETE', 'FAILED', 'RESUBMIT', 'HOLD'));
CREATE DOMAIN chunk_state AS text
    CHECK (VALUE IN ('PENDING', 'RUNNING', 'READY', 'FAILED', 'RESUBMIT', 'HOLD'));
CREATE DOMAIN lock_type AS text CHECK (VALUE IN ('IN', 'OUT'));

CREATE TABLE store (
    one         integer PRIMARY KEY CHECK (one = 1),
    store_id    text NOT NULL,
    environment text NOT NULL DEFAULT ''
);
INSERT INTO store (one, store_id) VALUES (1, replace(gen_random_uuid()::text, '-', ''));

CREATE SEQUENCE run_token AS bigint;

CREATE TABLE project (
    project  text COLLATE "C" PRIMARY KEY,
    name     text NOT NULL,
    root     text NOT NULL,
    home     text NOT NULL,
    modified timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE dataset (
    project       text COLLATE "C" NOT NULL DEFAULT '', -- '' in an INSERT: the only project there is
    datasetid     text COLLATE "C" NOT NULL,
    hostname      text,
    database      text,
    schemaname    text,
    tablename     text,
    username      text,
    encryptedpass text,
    location      text,
    format        text,
    partitions    text,
    definition    text,
    clock         text,
    modified      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (project, datasetid)
);

CREATE TABLE job (
    project         text COLLATE "C" NOT NULL DEFAULT '',
    jobid           text COLLATE "C" NOT NULL,
    kind            text NOT NULL DEFAULT 'script' CHECK (kind IN ('script', 'pipeline')),
    script          text,
    definition      text NOT NULL DEFAULT '{}',
    partitions      text,
    expected_upto   text,
    lease_seconds   double precision NOT NULL DEFAULT 60,
    timeout_seconds double precision,
    retries_max     integer NOT NULL DEFAULT 0,
    backoff_seconds double precision NOT NULL DEFAULT 30,
    concurrency     integer,
    strict          integer NOT NULL DEFAULT 0, -- 1: no dataid before the one before it
    catchup         text NOT NULL DEFAULT 'all' CHECK (catchup IN ('all', 'latest')), -- missed slots of its clock
    paused_by       text,                       -- who holds the whole job
    paused_at       timestamptz,
    same_inputs     integer NOT NULL DEFAULT 0, -- `waiting` of a new job_status row: inputs mapped dataid by dataid,
                                                -- and one more where other inputs must be mapped first
    clocked         integer NOT NULL DEFAULT 0, -- 1: it reads a clock, whose slots alone make its dataids
    mapped_inputs   integer NOT NULL DEFAULT 0, -- inputs by offset, window, rollup or all: see job_input
    shared_waiting  integer NOT NULL DEFAULT 0, -- inputs that every dataid shares (`full`) and that are not READY
    modified        timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (project, jobid)
);

CREATE TABLE job_dataset (
    project         text COLLATE "C" NOT NULL DEFAULT '',
    jobid           text COLLATE "C" NOT NULL,
    itemtype        text NOT NULL CHECK (itemtype IN ('IN', 'OUT')),
    dataset_project text COLLATE "C" NOT NULL DEFAULT '',
    datasetid       text COLLATE "C" NOT NULL,
    map             text NOT NULL DEFAULT 'same'
                    CHECK (map IN ('same', 'full', 'rollup', 'all') OR map ~ '^(offset:-?[1-9][0-9]*|window:[1-9][0-9]*)$'),
    position        integer NOT NULL DEFAULT 0,
    PRIMARY KEY (project, jobid, itemtype, dataset_project, datasetid)
);
CREATE INDEX job_dataset_of ON job_dataset (dataset_project, datasetid, itemtype, map);

-- The chunks that a dataid of a job reads through offset, window, rollup or all.
CREATE TABLE job_input (
    dataset_project text COLLATE "C" NOT NULL,
    datasetid       text COLLATE "C" NOT NULL,
    dataid          text COLLATE "C" NOT NULL, -- of the chunk
    project         text COLLATE "C" NOT NULL,
    jobid           text COLLATE "C" NOT NULL,
    job_dataid      text COLLATE "C" NOT NULL,
    position        integer NOT NULL,
    PRIMARY KEY (dataset_project, datasetid, dataid, project, jobid, job_dataid)
);
CREATE INDEX job_input_of ON job_input (project, jobid, job_dataid, position);

CREATE TABLE job_status (
    project      text COLLATE "C" NOT NULL,
    jobid        text COLLATE "C" NOT NULL,
    dataid       text COLLATE "C" NOT NULL,
    status       job_state NOT NULL DEFAULT 'PENDING',
    waiting      integer NOT NULL DEFAULT 0, -- its own input chunks that are not READY; only ever moved by one
    unmapped     integer NOT NULL DEFAULT 0, -- 1: its rows in job_input are still to be made
    again        integer NOT NULL DEFAULT 0, -- 1: RESUBMIT was set while it ran
    attempts     integer NOT NULL DEFAULT 0,
    deaths       integer NOT NULL DEFAULT 0,
    parked_until timestamptz,
    refusals     integer NOT NULL DEFAULT 0,
    refusal      json,                       -- the last refusal's answers
    runid        bigint,                     -- the live or last run, and its fencing token
    owner        text,
    host         text,
    lease_until  timestamptz,
    modified     timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Natural order: a number at the end counts as a number (9, 10, 100); dates sort as dates.
    sortkey      text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (project, jobid, dataid)
) WITH (fillfactor = 80);
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
    project      text COLLATE "C" NOT NULL DEFAULT '', -- '' in an INSERT: the one project that has this dataset
    datasetid    text COLLATE "C" NOT NULL,
    dataid       text COLLATE "C" NOT NULL,
    locktype     lock_type NOT NULL DEFAULT 'OUT',
    reader       text NOT NULL DEFAULT '',             -- IN rows: the run that reads
    jobid        text COLLATE "C" NOT NULL DEFAULT '',
    status       chunk_state NOT NULL,
    version      bigint,                               -- the published version: a run's id, or an assertion's token
    location     text,
    fingerprint  text,
    validated_at timestamptz,
    problem      text,                                 -- why what arrived was rejected: CODE: evidence
    modified     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (project, datasetid, dataid, locktype, reader)
) WITH (fillfactor = 80);

CREATE TABLE data_manifest (
    project      text COLLATE "C" NOT NULL,
    datasetid    text COLLATE "C" NOT NULL,
    dataid       text COLLATE "C" NOT NULL,
    version      bigint NOT NULL,
    location     text,
    files        bigint,
    bytes        bigint,
    rows         bigint,
    schema       text,
    fingerprint  text,
    validated_at timestamptz,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (project, datasetid, dataid, version)
);

CREATE TABLE run (
    runid         bigint PRIMARY KEY,
    project       text COLLATE "C" NOT NULL,
    jobid         text COLLATE "C" NOT NULL,
    dataid        text COLLATE "C" NOT NULL,
    attempt       integer NOT NULL,
    forced        integer NOT NULL DEFAULT 0,      -- 1: a person ran it against the answers
    status        text NOT NULL DEFAULT 'RUNNING', -- RUNNING, COMPLETE, FAILED, RESUBMIT, LOST
    owner         text NOT NULL,
    host          text NOT NULL,
    pid           bigint NOT NULL,
    pid_started   bigint NOT NULL,
    guard_pid     bigint NOT NULL,
    guard_started bigint NOT NULL,
    claimed_at    timestamptz NOT NULL,
    ended_at      timestamptz,
    exit_code     integer,
    message       text NOT NULL DEFAULT '',
    answers       json NOT NULL,             -- the five answers of this attempt
    inputs        json NOT NULL,             -- the versions it read
    log_path      text,
    log_tail      text NOT NULL DEFAULT ''
) WITH (fillfactor = 80);

CREATE TABLE history (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind       text NOT NULL, -- job or chunk
    project    text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    dataid     text COLLATE "C" NOT NULL,
    old_status text,
    new_status text,
    runid      bigint,
    actor      text NOT NULL
);
-- Also the way to the runs of a dataid: every change of a run is here with its number.
CREATE INDEX history_of ON history (dataid, name, id); -- by dataid first: what one run writes lies together

-- How many dataids of a job and chunks of a dataset stand in each status, as of the history up to `upto` (the row with an
-- empty kind). What came later is added when somebody asks, and folded in now and then: no claim waits for a counter.
CREATE TABLE tally (
    kind    text NOT NULL,
    project text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    status  text NOT NULL,
    n       bigint NOT NULL,
    PRIMARY KEY (kind, project, name, status)
);
INSERT INTO tally (kind, project, name, status, n) VALUES ('', '', '', 'upto', 0);

CREATE FUNCTION from_now(seconds double precision) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() + make_interval(secs => seconds) $$;

CREATE FUNCTION natural_key(dataid text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT rtrim(dataid, '0123456789')
           || lpad(length(ltrim(substr(dataid, length(rtrim(dataid, '0123456789')) + 1), '0'))::text, 3, '0')
           || ltrim(substr(dataid, length(rtrim(dataid, '0123456789')) + 1), '0')
$$;

CREATE FUNCTION utc_text(moment timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

CREATE FUNCTION current_actor() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce(nullif(current_setting('dataflow.actor', true), ''), session_user || ' (direct SQL)')
$$;

-- What the counters should be, counted from the chunks as they are: for registration, the sweep and `db check`.
CREATE VIEW link_counts AS
SELECT j.project, j.jobid,
       (count(*) FILTER (WHERE l.map = 'same')
        + CASE WHEN count(*) FILTER (WHERE l.map NOT IN ('same', 'full')) > 0 THEN 1 ELSE 0 END)::integer AS same_inputs,
       (count(*) FILTER (WHERE l.map NOT IN ('same', 'full')))::integer AS mapped_inputs,
       (count(*) FILTER (WHERE l.map = 'full' AND c.status IS DISTINCT FROM 'READY'))::integer AS shared_waiting,
       (count(d.clock) > 0)::integer AS clocked
FROM job j
     LEFT JOIN job_dataset l ON l.project = j.project AND l.jobid = j.jobid AND l.itemtype = 'IN'
     LEFT JOIN dataset d ON d.project = l.dataset_project AND d.datasetid = l.datasetid
     LEFT JOIN datastatus c ON c.project = l.dataset_project AND c.datasetid = l.datasetid AND c.dataid = 'full'
                               AND c.locktype = 'OUT' AND c.reader = '' AND l.map = 'full'
GROUP BY j.project, j.jobid;

CREATE VIEW counted_waiting AS
SELECT s.project, s.jobid, s.dataid,
       ((SELECT count(*) FROM job_dataset l
         WHERE l.project = s.project AND l.jobid = s.jobid AND l.itemtype = 'IN' AND l.map = 'same'
           AND NOT EXISTS (SELECT 1 FROM datastatus c
                           WHERE c.project = l.dataset_project AND c.datasetid = l.datasetid AND c.dataid = s.dataid
                             AND c.locktype = 'OUT' AND c.reader = '' AND c.status = 'READY'))
        + CASE s.unmapped WHEN 1 THEN 1 ELSE
            (SELECT count(*) FROM job_input e
             WHERE e.project = s.project AND e.jobid = s.jobid AND e.job_dataid = s.dataid
               AND NOT EXISTS (SELECT 1 FROM datastatus c
                               WHERE c.project = e.dataset_project AND c.datasetid = e.datasetid AND c.dataid = e.dataid
                                 AND c.locktype = 'OUT' AND c.reader = '' AND c.status = 'READY')) END)::integer AS waiting
FROM job_status s;

CREATE FUNCTION history_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('dataflow.actor', true) LIKE 'history clean%' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'history is append-only; see dataflow history clean';
END $$;
CREATE TRIGGER history_is_append_only BEFORE UPDATE OR DELETE ON history
FOR EACH ROW EXECUTE FUNCTION history_is_append_only();

-- Readiness: a chunk that opens or closes moves the counters of those who wait for it, by one. The upsert makes a row
-- that two inputs create at the same moment count both; the order makes two publishers take their locks alike.
CREATE FUNCTION chunk_opens(c datastatus) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    by_same boolean;
    by_full boolean;
    by_map boolean;
    by_clock boolean;
BEGIN
    SELECT bool_or(l.map = 'same'), bool_or(l.map = 'full'), bool_or(l.map NOT IN ('same', 'full')), bool_or(j.clocked = 1)
    INTO by_same, by_full, by_map, by_clock
    FROM job_dataset l JOIN job j ON j.project = l.project AND j.jobid = l.jobid
    WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'IN';
    IF by_clock THEN
        by_clock := EXISTS (SELECT 1 FROM dataset d
                            WHERE d.project = c.project AND d.datasetid = c.datasetid AND d.clock IS NOT NULL);
        IF NOT by_clock THEN
            UPDATE job_status SET waiting = waiting - 1
            WHERE dataid = c.dataid AND (project, jobid) IN
                (SELECT l.project, l.jobid FROM job_dataset l JOIN job j ON j.project = l.project AND j.jobid = l.jobid
                 WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'IN'
                   AND l.map = 'same' AND j.clocked = 1);
        END IF;
    END IF;
    IF by_same THEN
        INSERT INTO job_status (project, jobid, dataid, waiting, unmapped)
        SELECT l.project, l.jobid, c.dataid, j.same_inputs - 1, (j.mapped_inputs > 0)::integer
        FROM job_dataset l JOIN job j ON j.project = l.project AND j.jobid = l.jobid
        WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'IN' AND l.map = 'same'
          AND (j.clocked = 0 OR by_clock)
        ORDER BY l.project, l.jobid
        ON CONFLICT (project, jobid, dataid) DO UPDATE SET waiting = job_status.waiting - 1;
    END IF;
    IF by_full AND c.dataid = 'full' THEN
        UPDATE job SET shared_waiting = shared_waiting - 1
        WHERE (project, jobid) IN
            (SELECT l.project, l.jobid FROM job_dataset l
             WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'IN' AND l.map = 'full');
    END IF;
    IF by_map THEN
        PERFORM move_mapped(c, -1);
    END IF;
END $$;

CREATE FUNCTION chunk_closes(c datastatus) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE job_status SET waiting = waiting + 1
    WHERE dataid = c.dataid AND (project, jobid) IN
        (SELECT l.project, l.jobid FROM job_dataset l
         WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'IN' AND l.map = 'same');
    IF c.dataid = 'full' THEN
        UPDATE job SET shared_waiting = shared_waiting + 1
        WHERE (project, jobid) IN
            (SELECT l.project, l.jobid FROM job_dataset l
             WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'IN' AND l.map = 'full');
    END IF;
    PERFORM move_mapped(c, 1);
END $$;

-- The rows are locked in one order by everybody, so that two chunks opening at once wait for each other, not for ever.
CREATE FUNCTION move_mapped(c datastatus, step integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM job_input e JOIN job_status s
        ON s.project = e.project AND s.jobid = e.jobid AND s.dataid = e.job_dataid
    WHERE e.dataset_project = c.project AND e.datasetid = c.datasetid AND e.dataid = c.dataid
    ORDER BY e.project, e.jobid, e.job_dataid
    FOR UPDATE OF s;
    UPDATE job_status s SET waiting = s.waiting + step
    FROM job_input e
    WHERE e.dataset_project = c.project AND e.datasetid = c.datasetid AND e.dataid = c.dataid
      AND s.project = e.project AND s.jobid = e.jobid AND s.dataid = e.job_dataid;
END $$;

-- A chunk declared READY from outside completes the job that would have made it, once all its outputs are there.
CREATE FUNCTION chunk_asserted(p_project text, p_datasetid text, p_dataid text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job_status (project, jobid, dataid, status, waiting, unmapped)
    SELECT l.project, l.jobid, p_dataid, 'COMPLETE', j.same_inputs, (j.mapped_inputs > 0)::integer
    FROM job_dataset l JOIN job j ON j.project = l.project AND j.jobid = l.jobid
    WHERE l.dataset_project = p_project AND l.datasetid = p_datasetid AND l.itemtype = 'OUT'
      AND NOT EXISTS (
          SELECT 1 FROM job_dataset o LEFT JOIN datastatus c
              ON c.project = o.dataset_project AND c.datasetid = o.datasetid AND c.dataid = p_dataid
                 AND c.locktype = 'OUT' AND c.reader = ''
          WHERE o.project = l.project AND o.jobid = l.jobid AND o.itemtype = 'OUT'
            AND c.status IS DISTINCT FROM 'READY')
    ON CONFLICT (project, jobid, dataid) DO UPDATE SET status = 'COMPLETE', parked_until = NULL
    WHERE job_status.status IN ('PENDING', 'FAILED', 'RESUBMIT');
END $$;

-- Only for what is written by hand: our own sessions name themselves and know what they write.
CREATE FUNCTION assert_chunk_known(c datastatus) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF c.dataid = '' OR c.reader <> '' THEN
        RAISE EXCEPTION 'a chunk needs a dataid and has no reader';
    ELSIF NOT EXISTS (SELECT 1 FROM dataset d WHERE d.project = c.project AND d.datasetid = c.datasetid) THEN
        RAISE EXCEPTION 'this project has no dataset of this name; see dataflow apply';
    END IF;
END $$;

CREATE FUNCTION chunk_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was text := CASE WHEN TG_OP <> 'INSERT' THEN OLD.status END;
    now_is text := CASE WHEN TG_OP <> 'DELETE' THEN NEW.status END;
    c datastatus := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    IF c.locktype <> 'OUT' OR was IS NOT DISTINCT FROM now_is AND OLD.version IS NOT DISTINCT FROM NEW.version THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' AND coalesce(current_setting('dataflow.actor', true), '') = '' THEN
        PERFORM assert_chunk_known(c);
    END IF;
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    VALUES ('chunk', c.project, c.datasetid, c.dataid, was, now_is, c.version, current_actor());
    IF now_is = 'READY' AND was IS DISTINCT FROM 'READY' THEN
        PERFORM chunk_opens(c);
        IF was IS DISTINCT FROM 'RUNNING' THEN -- a publish goes from RUNNING to READY and ends the job itself
            PERFORM chunk_asserted(c.project, c.datasetid, c.dataid);
        END IF;
    ELSIF was = 'READY' AND now_is IS DISTINCT FROM 'READY' THEN
        PERFORM chunk_closes(c);
    END IF;
    IF now_is = 'RESUBMIT' AND was IN ('READY', 'FAILED') THEN
        UPDATE job_status SET status = 'RESUBMIT'
        WHERE dataid = c.dataid AND status IN ('COMPLETE', 'FAILED') AND (project, jobid) IN
            (SELECT l.project, l.jobid FROM job_dataset l
             WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'OUT');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER chunk_inserted AFTER INSERT ON datastatus
FOR EACH ROW WHEN (NEW.locktype = 'OUT') EXECUTE FUNCTION chunk_changed();
-- A WHEN is parsed anew for every statement; where it would mostly be true, the function looks for itself.
CREATE TRIGGER chunk_updated AFTER UPDATE OF status ON datastatus
FOR EACH ROW EXECUTE FUNCTION chunk_changed();
CREATE TRIGGER chunk_deleted AFTER DELETE ON datastatus
FOR EACH ROW WHEN (OLD.locktype = 'OUT') EXECUTE FUNCTION chunk_changed();

CREATE FUNCTION datastatus_arrives() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    found_projects text[];
BEGIN
    found_projects := ARRAY(SELECT d.project FROM dataset d WHERE d.datasetid = NEW.datasetid);
    IF cardinality(found_projects) = 0 THEN
        RAISE EXCEPTION 'no project has a dataset of this name; see dataflow apply';
    ELSIF cardinality(found_projects) > 1 THEN
        RAISE EXCEPTION 'several projects have a dataset of this name; give the column project';
    END IF;
    NEW.project := found_projects[1];
    RETURN NEW;
END $$;
CREATE TRIGGER datastatus_arrives BEFORE INSERT ON datastatus
FOR EACH ROW WHEN (NEW.project = '') EXECUTE FUNCTION datastatus_arrives();

CREATE FUNCTION datastatus_before_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.project, NEW.datasetid, NEW.dataid, NEW.locktype, NEW.reader)
       <> (OLD.project, OLD.datasetid, OLD.dataid, OLD.locktype, OLD.reader) THEN
        RAISE EXCEPTION 'a chunk keeps its name; delete the row and insert another';
    END IF;
    IF OLD.locktype = 'IN' THEN
        NEW.status := OLD.status; -- a live run's lock: a hand-made change of the chunk's status is not meant for it
    END IF;
    IF NEW.status <> OLD.status AND NEW.modified = OLD.modified THEN
        NEW.modified := clock_timestamp(); -- hand-made; our own statements set it themselves
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER datastatus_before_update BEFORE UPDATE ON datastatus
FOR EACH ROW WHEN (NEW.modified = OLD.modified) EXECUTE FUNCTION datastatus_before_update();

-- RESUBMIT, however it is set: PENDING and HOLD stay (but are tried at once, not after their backoff), RUNNING means
-- again after this run, and a person's RESUBMIT gives the job all its attempts back.
CREATE FUNCTION job_status_before_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.project, NEW.jobid, NEW.dataid) <> (OLD.project, OLD.jobid, OLD.dataid) THEN
        RAISE EXCEPTION 'a job on a dataid keeps its name; delete the row and insert another';
    END IF;
    -- A RUNNING job is its owner's: taken from it by hand, its locks would stay for ever; set by hand, nobody would end it.
    IF NEW.status <> OLD.status AND NEW.owner IS NOT DISTINCT FROM OLD.owner
       AND (NEW.status = 'RUNNING' OR (OLD.status = 'RUNNING' AND NEW.status <> 'RESUBMIT')) THEN
        RAISE EXCEPTION 'only a claim makes a job RUNNING and only its run ends it; RESUBMIT means again after this run';
    END IF;
    IF NEW.status = 'RESUBMIT' THEN
        IF OLD.status IN ('PENDING', 'HOLD') THEN
            NEW := OLD;
            NEW.parked_until := NULL;
            RETURN NEW;
        ELSIF OLD.status = 'RUNNING' AND NEW.owner IS NOT DISTINCT FROM OLD.owner THEN
            NEW := OLD;
            NEW.again := 1;
            RETURN NEW;
        ELSIF OLD.status <> 'RUNNING' AND NEW.parked_until IS NOT DISTINCT FROM OLD.parked_until THEN
            NEW.attempts := 0;
            NEW.deaths := 0;
            NEW.refusals := 0;
            NEW.parked_until := NULL;
        END IF;
    END IF;
    IF NEW.status <> OLD.status AND NEW.modified = OLD.modified THEN
        NEW.modified := clock_timestamp();
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER job_status_before_update BEFORE UPDATE OF status, project, jobid, dataid ON job_status
FOR EACH ROW WHEN (NEW.status = 'RESUBMIT' OR NEW.modified = OLD.modified)
EXECUTE FUNCTION job_status_before_update();

-- Not a generated column: next to a BEFORE UPDATE trigger that would be parsed, planned and computed for every update.
CREATE FUNCTION job_status_before_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.sortkey := natural_key(NEW.dataid);
    RETURN NEW;
END $$;
CREATE TRIGGER job_status_before_insert BEFORE INSERT ON job_status
FOR EACH ROW EXECUTE FUNCTION job_status_before_insert();

CREATE FUNCTION job_status_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
        VALUES ('job', OLD.project, OLD.jobid, OLD.dataid, OLD.status, NULL, OLD.runid, current_actor());
        RETURN NULL;
    ELSIF TG_OP = 'UPDATE' AND NEW.status = OLD.status THEN
        RETURN NULL;
    END IF;
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    VALUES ('job', NEW.project, NEW.jobid, NEW.dataid, CASE WHEN TG_OP = 'UPDATE' THEN OLD.status END, NEW.status,
            NEW.runid, current_actor());
    IF NEW.status = 'RESUBMIT' AND TG_OP = 'UPDATE' THEN
        UPDATE datastatus SET status = 'RESUBMIT', modified = clock_timestamp()
        WHERE dataid = NEW.dataid AND locktype = 'OUT' AND reader = '' AND status IN ('READY', 'FAILED', 'RUNNING')
          AND (project, datasetid) IN
              (SELECT l.dataset_project, l.datasetid FROM job_dataset l
               WHERE l.project = NEW.project AND l.jobid = NEW.jobid AND l.itemtype = 'OUT');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER job_status_inserted AFTER INSERT ON job_status
FOR EACH ROW WHEN (NEW.status <> 'PENDING') EXECUTE FUNCTION job_status_changed();
CREATE TRIGGER job_status_updated AFTER UPDATE OF status ON job_status
FOR EACH ROW EXECUTE FUNCTION job_status_changed();
CREATE TRIGGER job_status_deleted AFTER DELETE ON job_status
FOR EACH ROW WHEN (OLD.status <> 'PENDING') EXECUTE FUNCTION job_status_changed();

-- Registration by hand: rows without a project belong to the only one, and counters follow the links.
CREATE FUNCTION only_project() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    found_projects text[] := ARRAY(SELECT p.project FROM project p);
BEGIN
    IF cardinality(found_projects) = 1 THEN
        RETURN found_projects[1];
    END IF;
    RAISE EXCEPTION 'this store has % projects; give the column project', cardinality(found_projects);
END $$;
CREATE FUNCTION registered_by_hand() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.project := only_project();
    RETURN NEW;
END $$;
CREATE TRIGGER dataset_by_hand BEFORE INSERT ON dataset
FOR EACH ROW WHEN (NEW.project = '') EXECUTE FUNCTION registered_by_hand();
CREATE TRIGGER job_by_hand BEFORE INSERT ON job
FOR EACH ROW WHEN (NEW.project = '') EXECUTE FUNCTION registered_by_hand();
CREATE FUNCTION linked_by_hand() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.project := coalesce(nullif(NEW.project, ''), only_project());
    NEW.dataset_project := coalesce(nullif(NEW.dataset_project, ''), NEW.project);
    RETURN NEW;
END $$;
CREATE TRIGGER job_dataset_by_hand BEFORE INSERT ON job_dataset
FOR EACH ROW WHEN (NEW.project = '' OR NEW.dataset_project = '') EXECUTE FUNCTION linked_by_hand();

CREATE FUNCTION links_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    l job_dataset := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    IF coalesce(current_setting('dataflow.actor', true), '') <> '' THEN
        RETURN NULL; -- our own sessions count when all links are there
    END IF;
    IF TG_OP <> 'DELETE' AND NOT EXISTS (SELECT 1 FROM dataset d
                                         WHERE d.project = l.dataset_project AND d.datasetid = l.datasetid) THEN
        RAISE EXCEPTION 'that project has no dataset %', l.datasetid;
    END IF;
    LOCK TABLE datastatus IN SHARE ROW EXCLUSIVE MODE;
    UPDATE job j SET (same_inputs, mapped_inputs, shared_waiting, clocked) =
        (SELECT c.same_inputs, c.mapped_inputs, c.shared_waiting, c.clocked FROM link_counts c
         WHERE c.project = j.project AND c.jobid = j.jobid)
    WHERE j.project = l.project AND j.jobid = l.jobid;
    INSERT INTO job_status (project, jobid, dataid, waiting, unmapped)
    SELECT DISTINCT j.project, j.jobid, c.dataid, j.same_inputs, (j.mapped_inputs > 0)::integer
    FROM job j JOIN job_dataset i ON i.project = j.project AND i.jobid = j.jobid AND i.itemtype = 'IN' AND i.map = 'same'
         JOIN datastatus c ON c.project = i.dataset_project AND c.datasetid = i.datasetid AND c.locktype = 'OUT'
                              AND c.status = 'READY'
         JOIN dataset d ON d.project = c.project AND d.datasetid = c.datasetid
    WHERE d.clock IS NULL AND j.clocked = 0 AND j.project = l.project AND j.jobid = l.jobid
    ON CONFLICT (project, jobid, dataid) DO NOTHING;
    DELETE FROM job_input e WHERE e.project = l.project AND e.jobid = l.jobid;
    UPDATE job_status s
    SET unmapped = (SELECT (j.mapped_inputs > 0)::integer FROM job j
                    WHERE j.project = l.project AND j.jobid = l.jobid)
    WHERE s.project = l.project AND s.jobid = l.jobid;
    UPDATE job_status s SET waiting = w.waiting
    FROM counted_waiting w
    WHERE s.project = l.project AND s.jobid = l.jobid
      AND w.project = s.project AND w.jobid = s.jobid AND w.dataid = s.dataid;
    RETURN NULL;
END $$;
CREATE TRIGGER links_changed AFTER INSERT OR UPDATE OR DELETE ON job_dataset
FOR EACH ROW EXECUTE FUNCTION links_changed();

-- What the five questions need of a dataid, in one round trip with the row itself ---------------------------------------
-- A set-returning SQL function is taken apart by the planner: many candidates cost one plan and one execution.
CREATE FUNCTION chunk_facts(p_project text, p_jobid text, p_dataid text) RETURNS TABLE (facts json)
LANGUAGE sql STABLE AS $$
    SELECT json_agg(json_build_array(
        l.itemtype, l.dataset_project, l.datasetid, coalesce(e.dataid, p_dataid), c.status, c.version, c.location,
        c.fingerprint, utc_text(c.validated_at), c.problem,
        coalesce(nullif(c.jobid, ''),
                 (SELECT p.jobid FROM job_dataset p
                  WHERE p.dataset_project = l.dataset_project AND p.datasetid = l.datasetid AND p.itemtype = 'OUT'),
                 ''),
        utc_text(c.modified),
        CASE l.itemtype WHEN 'OUT' THEN
            (SELECT string_agg(r.jobid || ' (run ' || r.reader || ')', ', ') FROM datastatus r
             WHERE r.project = l.dataset_project AND r.datasetid = l.datasetid AND r.dataid = p_dataid
               AND r.locktype = 'IN' AND r.status = 'RUNNING') END) ORDER BY l.position, e.position)
    FROM job_dataset l
         LEFT JOIN LATERAL (
             SELECT 'full' AS dataid, 0 AS position WHERE l.map = 'full'
             UNION ALL
             SELECT i.dataid, i.position FROM job_input i
             WHERE l.map NOT IN ('same', 'full') AND i.project = p_project AND i.jobid = p_jobid
               AND i.job_dataid = p_dataid AND i.dataset_project = l.dataset_project AND i.datasetid = l.datasetid) e
             ON true
         LEFT JOIN datastatus c
             ON c.project = l.dataset_project AND c.datasetid = l.datasetid AND c.dataid = coalesce(e.dataid, p_dataid)
                AND c.locktype = 'OUT' AND c.reader = ''
    WHERE l.project = p_project AND l.jobid = p_jobid
      AND (l.map IN ('same', 'full') OR e.dataid IS NOT NULL)
$$;

-- The lowest dataid of a job that is not COMPLETE: four seeks, however many are.
CREATE FUNCTION lowest_open(p_project text, p_jobid text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT x.dataid FROM (
        (SELECT s.dataid, s.sortkey FROM job_status s
         WHERE s.project = p_project AND s.jobid = p_jobid
           AND (s.status = 'HOLD'
                OR (s.status IN ('PENDING', 'RESUBMIT') AND (s.waiting > 0 OR s.parked_until IS NOT NULL)))
         ORDER BY s.sortkey, s.dataid LIMIT 1)
        UNION ALL
        (SELECT s.dataid, s.sortkey FROM job_status s
         WHERE s.project = p_project AND s.jobid = p_jobid
           AND s.status IN ('PENDING', 'RESUBMIT') AND s.waiting <= 0 AND s.parked_until IS NULL
         ORDER BY s.sortkey, s.dataid LIMIT 1)
        UNION ALL
        (SELECT s.dataid, s.sortkey FROM job_status s
         WHERE s.project = p_project AND s.jobid = p_jobid AND s.status = 'FAILED'
         ORDER BY s.sortkey, s.dataid LIMIT 1)
        UNION ALL
        (SELECT s.dataid, s.sortkey FROM job_status s
         WHERE s.project = p_project AND s.jobid = p_jobid AND s.status = 'RUNNING'
         ORDER BY s.sortkey, s.dataid LIMIT 1)) x
    ORDER BY x.sortkey, x.dataid LIMIT 1
$$;

-- The two hot verbs, each one round trip and one transaction; store/claims.py has the same steps for SQLite -------------
CREATE FUNCTION claim_run(p jsonb, answers json, OUT o_runid bigint, OUT o_attempt integer, OUT o_deaths integer)
LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    p_project text := p->>'project';
    p_jobid text := p->>'jobid';
    p_dataid text := p->>'dataid';
    ins jsonb := p->'inputs';   -- [[project, datasetid, dataid, version, fingerprint], …]
    outs jsonb := p->'outputs'; -- [[project, datasetid, dataid], …]
    c_project text;
    c_dataset text;
    n integer;
BEGIN
    -- Nobody waits for a row that another runner is just taking.
    PERFORM 1 FROM job_status s
    WHERE s.project = p_project AND s.jobid = p_jobid AND s.dataid = p_dataid
      AND s.status IN ('PENDING', 'RESUBMIT') AND (s.waiting <= 0 OR p ? 'forced')
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM 1 FROM job j WHERE j.project = p_project AND j.jobid = p_jobid AND j.paused_by IS NOT NULL
        AND NOT p ? 'forced';
    IF FOUND THEN
        RETURN;
    END IF;
    IF p ? 'strict' AND lowest_open(p_project, p_jobid) <> p_dataid THEN
        RETURN;
    END IF;
    IF p->>'concurrency' IS NOT NULL THEN
        PERFORM 1 FROM job j WHERE j.project = p_project AND j.jobid = p_jobid FOR UPDATE;
        SELECT count(*) INTO n FROM job_status s
        WHERE s.project = p_project AND s.jobid = p_jobid AND s.status = 'RUNNING';
        IF n >= (p->>'concurrency')::integer THEN
            RETURN;
        END IF;
    END IF;
    -- SHARE: whoever would close an input must wait for this claim, or this claim sees it closed. A row that is
    -- being changed counts as changed: waiting for it while holding the job's row could deadlock.
    FOR i IN 0 .. jsonb_array_length(ins) - 1 LOOP
        PERFORM 1 FROM datastatus c
        WHERE c.project = ins->i->>0 AND c.datasetid = ins->i->>1 AND c.dataid = ins->i->>2
          AND c.locktype = 'OUT' AND c.reader = '' AND c.status = 'READY'
          AND c.version IS NOT DISTINCT FROM (ins->i->>3)::bigint
        FOR SHARE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END LOOP;
    FOR i IN 0 .. jsonb_array_length(outs) - 1 LOOP
        c_project := outs->i->>0;
        c_dataset := outs->i->>1;
        -- A chunk that was there before is locked first and then looked at: no reader can slip in between.
        PERFORM 1 FROM datastatus c
        WHERE c.project = c_project AND c.datasetid = c_dataset AND c.dataid = p_dataid AND c.locktype = 'OUT'
          AND c.reader = ''
        FOR UPDATE;
        IF FOUND THEN
            PERFORM 1 FROM datastatus r
            WHERE r.project = c_project AND r.datasetid = c_dataset AND r.dataid = p_dataid AND r.locktype = 'IN'
              AND r.status = 'RUNNING';
            IF FOUND THEN
                RETURN;
            END IF;
        END IF;
    END LOOP;
    o_runid := nextval('run_token');
    FOR i IN 0 .. jsonb_array_length(outs) - 1 LOOP
        INSERT INTO datastatus AS d (project, datasetid, dataid, locktype, jobid, status, modified)
        VALUES (outs->i->>0, outs->i->>1, p_dataid, 'OUT', p_jobid, 'RUNNING', moment)
        ON CONFLICT (project, datasetid, dataid, locktype, reader)
        DO UPDATE SET status = 'RUNNING', jobid = excluded.jobid, modified = excluded.modified;
    END LOOP;
    UPDATE job_status s
    SET status = 'RUNNING', runid = o_runid, owner = p->>'owner', host = p->>'host',
        lease_until = moment + make_interval(secs => (p->>'lease_seconds')::double precision),
        attempts = s.attempts + 1, again = 0, parked_until = NULL, modified = moment
    WHERE s.project = p_project AND s.jobid = p_jobid AND s.dataid = p_dataid
    RETURNING s.attempts, s.deaths INTO o_attempt, o_deaths;
    INSERT INTO run (runid, project, jobid, dataid, attempt, forced, owner, host, pid, pid_started, guard_pid, guard_started,
                     claimed_at, answers, inputs)
    VALUES (o_runid, p_project, p_jobid, p_dataid, o_attempt, (p ? 'forced')::integer, p->>'owner', p->>'host', (p->>'pid')::bigint,
            (p->>'pid_started')::bigint, (p->>'guard_pid')::bigint, (p->>'guard_started')::bigint, moment,
            claim_run.answers, ins::json);
    FOR i IN 0 .. jsonb_array_length(ins) - 1 LOOP
        INSERT INTO datastatus (project, datasetid, dataid, locktype, reader, jobid, status, modified)
        VALUES (ins->i->>0, ins->i->>1, ins->i->>2, 'IN', o_runid::text, p_jobid, 'RUNNING', moment);
    END LOOP;
END $$;

-- What becomes of the job was decided by store/claims.py for both cases: `ends` has RESUBMIT not set while it ran, then set.
CREATE FUNCTION finish_run(p jsonb, OUT o_case integer, OUT o_earlier text) LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    p_project text := p->>'project';
    p_jobid text := p->>'jobid';
    p_dataid text := p->>'dataid';
    p_runid bigint := (p->>'runid')::bigint;
    e jsonb;
    m jsonb;
BEGIN
    -- The token is in the WHERE: a run that outlived its lease must change nothing.
    UPDATE job_status s
    SET status = p->'ends'->s.again->>'status', attempts = (p->'ends'->s.again->>'attempts')::integer,
        deaths = (p->'ends'->s.again->>'deaths')::integer,
        parked_until = moment + make_interval(secs => (p->'ends'->s.again->>'retry_in')::double precision),
        refusals = 0, owner = NULL, host = NULL, lease_until = NULL, modified = moment
    WHERE s.project = p_project AND s.jobid = p_jobid AND s.dataid = p_dataid AND s.runid = p_runid
      AND s.status = 'RUNNING'
    RETURNING s.again INTO o_case;
    IF NOT FOUND THEN
        SELECT r.status INTO o_earlier FROM run r WHERE r.runid = p_runid;
        RETURN;
    ELSIF o_case = 1 THEN
        UPDATE job_status s SET again = 0
        WHERE s.project = p_project AND s.jobid = p_jobid AND s.dataid = p_dataid;
    END IF;
    e := p->'ends'->o_case;
    IF (p->>'complete')::boolean THEN
        FOR i IN 0 .. jsonb_array_length(p->'manifests') - 1 LOOP
            m := p->'manifests'->i;
            UPDATE datastatus d
            SET status = CASE e->>'status' WHEN 'COMPLETE' THEN 'READY' ELSE 'RESUBMIT' END, version = p_runid,
                location = m->>'location', fingerprint = m->>'fingerprint',
                validated_at = CASE WHEN (m->>'validated')::boolean THEN moment END, problem = NULL, modified = moment
            WHERE d.project = m->>'project' AND d.datasetid = m->>'datasetid' AND d.dataid = p_dataid
              AND d.locktype = 'OUT' AND d.reader = '';
            IF m->>'location' IS NOT NULL THEN -- data without a place has nothing to list
                INSERT INTO data_manifest (project, datasetid, dataid, version, location, files, bytes, rows, schema,
                                           fingerprint, validated_at, created_at)
                VALUES (m->>'project', m->>'datasetid', p_dataid, p_runid, m->>'location', (m->>'files')::bigint,
                        (m->>'bytes')::bigint, (m->>'rows')::bigint, m->>'schema', m->>'fingerprint',
                        CASE WHEN (m->>'validated')::boolean THEN moment END, moment);
            END IF;
        END LOOP;
    ELSIF e->>'status' = 'FAILED' THEN
        UPDATE datastatus d SET status = 'FAILED', modified = moment
        WHERE d.dataid = p_dataid AND d.locktype = 'OUT' AND d.reader = '' AND d.status = 'RUNNING'
          AND (d.project, d.datasetid) IN
              (SELECT l.dataset_project, l.datasetid FROM job_dataset l
               WHERE l.project = p_project AND l.jobid = p_jobid AND l.itemtype = 'OUT');
    END IF;
    FOR i IN 0 .. jsonb_array_length(p->'inputs') - 1 LOOP
        m := p->'inputs'->i;
        DELETE FROM datastatus d
        WHERE d.project = m->>0 AND d.datasetid = m->>1 AND d.dataid = m->>2 AND d.locktype = 'IN'
          AND d.reader = p->>'runid';
    END LOOP;
    UPDATE run r
    SET status = e->>'run_status', ended_at = moment, exit_code = (p->>'exit_code')::integer, message = e->>'message',
        log_path = coalesce(p->>'log_path', r.log_path),
        log_tail = CASE p->>'log_tail' WHEN '' THEN r.log_tail ELSE p->>'log_tail' END
    WHERE r.runid = p_runid;
END $$;

-- The end of one run and the claim of the next, together; nothing is taken when the ended run had lost its lease.
CREATE FUNCTION finish_and_claim(
    p_finish jsonb, p_claim jsonb, answers json,
    OUT o_case integer, OUT o_earlier text, OUT o_runid bigint, OUT o_attempt integer, OUT o_deaths integer)
LANGUAGE plpgsql AS $$
DECLARE
    ended record := finish_run(p_finish);
    taken record;
BEGIN
    o_case := ended.o_case;
    o_earlier := ended.o_earlier;
    IF o_case IS NOT NULL THEN
        taken := claim_run(p_claim, answers);
        o_runid := taken.o_runid;
        o_attempt := taken.o_attempt;
        o_deaths := taken.o_deaths;
    END IF;
END $$;

-- What triggers call keeps this search path: a psql session elsewhere may write `myschema.job_status`.
ALTER FUNCTION history_is_append_only SET search_path FROM CURRENT;
ALTER FUNCTION chunk_changed SET search_path FROM CURRENT;
ALTER FUNCTION datastatus_arrives SET search_path FROM CURRENT;
ALTER FUNCTION job_status_changed SET search_path FROM CURRENT;
ALTER FUNCTION job_status_before_insert SET search_path FROM CURRENT;
ALTER FUNCTION registered_by_hand SET search_path FROM CURRENT;
ALTER FUNCTION linked_by_hand SET search_path FROM CURRENT;
ALTER FUNCTION links_changed SET search_path FROM CURRENT;

-- What pipelines leave beside the run itself, and what the checks of a chunk found.

CREATE TABLE pipeline_run (
    runid       bigint PRIMARY KEY,
    project     text COLLATE "C" NOT NULL,
    jobid       text COLLATE "C" NOT NULL,
    engine      text,               -- spark | pandas
    git_commit  text,               -- of the project's folder; NULL outside git
    dirty       integer,            -- 1: the folder differed from that commit
    application text,               -- Spark's name for the session that ran it
    job_runid   bigint,             -- the first run of the Spark job it shared with other chunks
    rows        bigint,
    bytes       bigint,
    plan        text                -- Spark's plan, where it was asked for
);
CREATE INDEX pipeline_run_of ON pipeline_run (project, jobid, runid);

CREATE TABLE transformation (
    runid    bigint NOT NULL,
    position integer NOT NULL,      -- from 1, in the order of project.yml
    name     text NOT NULL,
    digest   text,                  -- sha256 of the code that ran
    status   text NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'RUNNING', 'DONE', 'ERROR')),
    output   text NOT NULL DEFAULT '', -- what it printed, and warnings
    error    text NOT NULL DEFAULT '', -- the traceback, cut to the user's code
    rows     bigint,                -- where `profile: true` asked for it
    seconds  double precision,
    PRIMARY KEY (runid, position)
);
CREATE INDEX transformation_errors ON transformation (runid) WHERE status = 'ERROR';

CREATE FUNCTION run_forgets_pipeline() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM pipeline_run WHERE runid = OLD.runid;
    DELETE FROM transformation WHERE runid = OLD.runid;
    RETURN NULL;
END $$;
CREATE TRIGGER run_forgets_pipeline AFTER DELETE ON run FOR EACH ROW EXECUTE FUNCTION run_forgets_pipeline();

CREATE TABLE data_check (
    project    text COLLATE "C" NOT NULL DEFAULT '',
    datasetid  text COLLATE "C" NOT NULL,
    dataid     text COLLATE "C" NOT NULL,
    position   integer NOT NULL,    -- from 1, in the order in which they are declared
    name       text NOT NULL,
    result     text NOT NULL CHECK (result IN ('passed', 'failed', 'warned', 'quarantined', 'skipped')),
    detail     text NOT NULL DEFAULT '',
    runid      bigint,              -- whose output it was; NULL for data that arrived
    checked_at timestamptz NOT NULL,
    PRIMARY KEY (project, datasetid, dataid, position)
);
ALTER FUNCTION run_forgets_pipeline SET search_path FROM CURRENT;

-- Workers and live limits: how many runs of a job, or over a connection, may be live at once; pauses with an end; who
-- works here; and a word to those who wait for work. What an operator sets by hand (UPDATE job SET scaled_to = 2) is
-- honoured by the next claim and recorded.

ALTER TABLE store
    ADD COLUMN paused_by    text,         -- who holds everything
    ADD COLUMN paused_at    timestamptz,
    ADD COLUMN paused_until timestamptz;  -- NULL: until it is resumed

ALTER TABLE job
    ADD COLUMN scaled_to    integer CHECK (scaled_to >= 0), -- a person's limit, instead of the declared `concurrency`
    ADD COLUMN braked_to    integer CHECK (braked_to >= 0), -- what braking leaves of it
    ADD COLUMN max_runs     integer GENERATED ALWAYS AS (least(coalesce(scaled_to, concurrency), braked_to)) STORED,
    ADD COLUMN paused_until timestamptz;

-- A dataset that is in a database counts for the limit of its connection.
ALTER TABLE dataset
    ADD COLUMN connection text GENERATED ALWAYS AS (
        coalesce(hostname || '/' || database, hostname, database,
                 substring(definition FROM '"url_env": "([^"]*)"'))) STORED;

CREATE TABLE connection_limit (
    name      text COLLATE "C" PRIMARY KEY,   -- host/database, or the variable that holds the address
    declared  integer CHECK (declared >= 0),
    project   text COLLATE "C",               -- that declares it
    scaled_to integer CHECK (scaled_to >= 0), -- a person's, instead of the declared one
    max_runs  integer GENERATED ALWAYS AS (coalesce(scaled_to, declared)) STORED
);

CREATE VIEW job_connection AS
SELECT l.project, l.jobid, d.connection AS name, l.datasetid
FROM job_dataset l JOIN dataset d ON d.project = l.dataset_project AND d.datasetid = l.datasetid
WHERE d.connection IS NOT NULL;

-- What stands between a job and its next run, whichever dataid: pauses, and for how many more runs there is room.
CREATE VIEW job_gate AS
SELECT j.project, j.jobid, j.strict, j.shared_waiting, j.paused_by, j.paused_until,
       t.paused_by AS all_paused_by, t.paused_until AS all_paused_until,
       least(CASE WHEN j.max_runs IS NULL THEN 1000000000 ELSE
                 j.max_runs - (SELECT count(*) FROM job_status s
                               WHERE s.project = j.project AND s.jobid = j.jobid AND s.status = 'RUNNING') END,
             (SELECT min(c.max_runs - (SELECT count(*) FROM job_status s
                                       WHERE s.status = 'RUNNING'
                                         AND EXISTS (SELECT 1 FROM job_connection u
                                                     WHERE u.project = s.project AND u.jobid = s.jobid
                                                       AND u.name = c.name)))
              FROM connection_limit c
              WHERE c.max_runs IS NOT NULL
                AND EXISTS (SELECT 1 FROM job_connection u
                            WHERE u.project = j.project AND u.jobid = j.jobid AND u.name = c.name OFFSET 0)))::integer
           AS room
FROM job j CROSS JOIN store t WHERE t.one = 1;

CREATE TABLE limit_history (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    project    text COLLATE "C" NOT NULL DEFAULT '',
    jobid      text COLLATE "C" NOT NULL DEFAULT '', -- '' with no connection: everything
    connection text COLLATE "C" NOT NULL DEFAULT '',
    what       text NOT NULL,                        -- concurrency (as declared), scale, brake or pause
    was        text,
    becomes    text,                                 -- NULL: none any more
    reason     text NOT NULL DEFAULT '',
    actor      text NOT NULL
);
CREATE INDEX limit_history_of ON limit_history (project, jobid, connection, id);
CREATE TRIGGER limit_history_is_append_only BEFORE UPDATE OR DELETE ON limit_history
FOR EACH ROW EXECUTE FUNCTION history_is_append_only();

CREATE TABLE worker (
    name        text PRIMARY KEY,   -- user@host:pid
    host        text NOT NULL,
    pid         bigint NOT NULL,
    pid_started bigint NOT NULL,
    slots       integer NOT NULL,
    jobs        text NOT NULL DEFAULT '', -- separated by spaces; '': all
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    running     integer NOT NULL DEFAULT 0,
    is_idle     integer NOT NULL DEFAULT 0 -- 1: it wants to be told of new work
);
CREATE INDEX worker_idle ON worker (is_idle) WHERE is_idle = 1;

CREATE FUNCTION current_reason() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT coalesce(current_setting('dataflow.reason', true), '')
$$;

-- Changes of limits and pauses are rare, so everybody is told.
CREATE FUNCTION record_limit(p_project text, p_jobid text, p_connection text, p_what text, p_was text, p_becomes text,
                             p_reason text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO limit_history (project, jobid, connection, what, was, becomes, reason, actor)
    VALUES (p_project, p_jobid, p_connection, p_what, p_was, p_becomes, p_reason, current_actor());
    PERFORM pg_notify('dataflow', '');
END $$;

CREATE FUNCTION pause_text(paused_by text, paused_until timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN paused_by IS NOT NULL THEN coalesce('until ' || utc_text(paused_until), 'until resumed') END
$$;

CREATE FUNCTION job_limit_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.concurrency IS DISTINCT FROM OLD.concurrency THEN
        PERFORM record_limit(NEW.project, NEW.jobid, '', 'concurrency', OLD.concurrency::text, NEW.concurrency::text,
                             current_reason());
    END IF;
    IF NEW.scaled_to IS DISTINCT FROM OLD.scaled_to THEN
        PERFORM record_limit(NEW.project, NEW.jobid, '', 'scale', OLD.scaled_to::text, NEW.scaled_to::text,
                             current_reason());
    END IF;
    IF NEW.braked_to IS DISTINCT FROM OLD.braked_to THEN
        PERFORM record_limit(NEW.project, NEW.jobid, '', 'brake', OLD.braked_to::text, NEW.braked_to::text,
                             current_reason());
    END IF;
    IF (NEW.paused_by, NEW.paused_until) IS DISTINCT FROM (OLD.paused_by, OLD.paused_until) THEN
        PERFORM record_limit(NEW.project, NEW.jobid, '', 'pause', pause_text(OLD.paused_by, OLD.paused_until),
                             pause_text(NEW.paused_by, NEW.paused_until), coalesce(NEW.paused_by, ''));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER job_limit_changed AFTER UPDATE OF concurrency, scaled_to, braked_to, paused_by, paused_until ON job
FOR EACH ROW EXECUTE FUNCTION job_limit_changed();

CREATE FUNCTION all_paused() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.paused_by, NEW.paused_until) IS DISTINCT FROM (OLD.paused_by, OLD.paused_until) THEN
        PERFORM record_limit('', '', '', 'pause', pause_text(OLD.paused_by, OLD.paused_until),
                             pause_text(NEW.paused_by, NEW.paused_until), coalesce(NEW.paused_by, ''));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER all_paused AFTER UPDATE OF paused_by, paused_until ON store
FOR EACH ROW EXECUTE FUNCTION all_paused();

CREATE FUNCTION connection_limit_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was connection_limit := CASE WHEN TG_OP <> 'INSERT' THEN OLD END;
    now_is connection_limit := CASE WHEN TG_OP <> 'DELETE' THEN NEW END;
    name text := coalesce(now_is.name, was.name);
BEGIN
    IF now_is.declared IS DISTINCT FROM was.declared THEN
        PERFORM record_limit('', '', name, 'concurrency', was.declared::text, now_is.declared::text, current_reason());
    END IF;
    IF now_is.scaled_to IS DISTINCT FROM was.scaled_to THEN
        PERFORM record_limit('', '', name, 'scale', was.scaled_to::text, now_is.scaled_to::text, current_reason());
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER connection_limit_changed AFTER INSERT OR UPDATE OR DELETE ON connection_limit
FOR EACH ROW EXECUTE FUNCTION connection_limit_changed();

-- New work is told to workers that wait for it; with none waiting nothing is sent, as a NOTIFY takes a lock of the whole
-- server when it commits. A publish tells them when its run ends.
CREATE FUNCTION tell_idle_workers() RETURNS void LANGUAGE sql AS $$
    SELECT pg_notify('dataflow', '') FROM (SELECT 1 FROM worker WHERE is_idle = 1 LIMIT 1) w
$$;

CREATE OR REPLACE FUNCTION chunk_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was text := CASE WHEN TG_OP <> 'INSERT' THEN OLD.status END;
    now_is text := CASE WHEN TG_OP <> 'DELETE' THEN NEW.status END;
    c datastatus := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    IF c.locktype <> 'OUT' OR was IS NOT DISTINCT FROM now_is AND OLD.version IS NOT DISTINCT FROM NEW.version THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'INSERT' AND coalesce(current_setting('dataflow.actor', true), '') = '' THEN
        PERFORM assert_chunk_known(c);
    END IF;
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    VALUES ('chunk', c.project, c.datasetid, c.dataid, was, now_is, c.version, current_actor());
    IF now_is = 'READY' AND was IS DISTINCT FROM 'READY' THEN
        PERFORM chunk_opens(c);
        IF was IS DISTINCT FROM 'RUNNING' THEN -- a publish goes from RUNNING to READY and ends the job itself
            PERFORM chunk_asserted(c.project, c.datasetid, c.dataid);
            PERFORM tell_idle_workers();
        END IF;
    ELSIF was = 'READY' AND now_is IS DISTINCT FROM 'READY' THEN
        PERFORM chunk_closes(c);
    END IF;
    IF now_is = 'RESUBMIT' AND was IN ('READY', 'FAILED') THEN
        UPDATE job_status SET status = 'RESUBMIT'
        WHERE dataid = c.dataid AND status IN ('COMPLETE', 'FAILED') AND (project, jobid) IN
            (SELECT l.project, l.jobid FROM job_dataset l
             WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'OUT');
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION job_status_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
        VALUES ('job', OLD.project, OLD.jobid, OLD.dataid, OLD.status, NULL, OLD.runid, current_actor());
        RETURN NULL;
    ELSIF TG_OP = 'UPDATE' AND NEW.status = OLD.status THEN
        RETURN NULL;
    END IF;
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    VALUES ('job', NEW.project, NEW.jobid, NEW.dataid, CASE WHEN TG_OP = 'UPDATE' THEN OLD.status END, NEW.status,
            NEW.runid, current_actor());
    IF NEW.status = 'RESUBMIT' AND TG_OP = 'UPDATE' THEN
        UPDATE datastatus SET status = 'RESUBMIT', modified = clock_timestamp()
        WHERE dataid = NEW.dataid AND locktype = 'OUT' AND reader = '' AND status IN ('READY', 'FAILED', 'RUNNING')
          AND (project, datasetid) IN
              (SELECT l.dataset_project, l.datasetid FROM job_dataset l
               WHERE l.project = NEW.project AND l.jobid = NEW.jobid AND l.itemtype = 'OUT');
    END IF;
    IF NEW.status = 'RESUBMIT' OR NEW.status = 'PENDING' THEN
        PERFORM tell_idle_workers();
    END IF;
    RETURN NULL;
END $$;

-- LIMIT 1 makes it a seek for each row. Left to choose, on a table that was never analyzed, the planner reads all chunks
-- there are, once for every candidate.
CREATE OR REPLACE FUNCTION chunk_facts(p_project text, p_jobid text, p_dataid text) RETURNS TABLE (facts json)
LANGUAGE sql STABLE AS $$
    SELECT json_agg(json_build_array(
        l.itemtype, l.dataset_project, l.datasetid, coalesce(e.dataid, p_dataid), c.status, c.version, c.location,
        c.fingerprint, utc_text(c.validated_at), c.problem,
        coalesce(nullif(c.jobid, ''),
                 (SELECT p.jobid FROM job_dataset p
                  WHERE p.dataset_project = l.dataset_project AND p.datasetid = l.datasetid AND p.itemtype = 'OUT'),
                 ''),
        utc_text(c.modified),
        CASE l.itemtype WHEN 'OUT' THEN
            (SELECT string_agg(r.jobid || ' (run ' || r.reader || ')', ', ') FROM datastatus r
             WHERE r.project = l.dataset_project AND r.datasetid = l.datasetid AND r.dataid = p_dataid
               AND r.locktype = 'IN' AND r.status = 'RUNNING') END) ORDER BY l.position, e.position)
    FROM job_dataset l
         LEFT JOIN LATERAL (
             SELECT 'full' AS dataid, 0 AS position WHERE l.map = 'full'
             UNION ALL
             SELECT i.dataid, i.position FROM job_input i
             WHERE l.map NOT IN ('same', 'full') AND i.project = p_project AND i.jobid = p_jobid
               AND i.job_dataid = p_dataid AND i.dataset_project = l.dataset_project AND i.datasetid = l.datasetid) e
             ON true
         LEFT JOIN LATERAL (
             SELECT * FROM datastatus d
             WHERE d.project = l.dataset_project AND d.datasetid = l.datasetid AND d.dataid = coalesce(e.dataid, p_dataid)
               AND d.locktype = 'OUT' AND d.reader = ''
             LIMIT 1) c ON true
    WHERE l.project = p_project AND l.jobid = p_jobid
      AND (l.map IN ('same', 'full') OR e.dataid IS NOT NULL)
$$;

-- The limits are read here, from their rows, and counted under the lock of the row that has them: whoever claims next
-- counts this one.
CREATE OR REPLACE FUNCTION claim_run(p jsonb, answers json, OUT o_runid bigint, OUT o_attempt integer, OUT o_deaths integer)
LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    p_project text := p->>'project';
    p_jobid text := p->>'jobid';
    p_dataid text := p->>'dataid';
    ins jsonb := p->'inputs';   -- [[project, datasetid, dataid, version, fingerprint], …]
    outs jsonb := p->'outputs'; -- [[project, datasetid, dataid], …]
    c_project text;
    c_dataset text;
BEGIN
    -- Nobody waits for a row that another runner is just taking.
    PERFORM 1 FROM job_status s
    WHERE s.project = p_project AND s.jobid = p_jobid AND s.dataid = p_dataid
      AND s.status IN ('PENDING', 'RESUBMIT') AND (s.waiting <= 0 OR p ? 'forced')
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- Most jobs have neither pause nor limit, and pay for one look.
    PERFORM 1 FROM job j
    WHERE j.project = p_project AND j.jobid = p_jobid
      AND (j.paused_by IS NOT NULL OR j.max_runs IS NOT NULL OR EXISTS (SELECT 1 FROM connection_limit c)
           OR EXISTS (SELECT 1 FROM store t WHERE t.paused_by IS NOT NULL));
    IF FOUND AND NOT p ? 'forced' THEN
        IF NOT is_open(p_project, p_jobid, moment) THEN
            RETURN;
        END IF;
    END IF;
    IF p ? 'strict' AND lowest_open(p_project, p_jobid) <> p_dataid THEN
        RETURN;
    END IF;
    -- SHARE: whoever would close an input must wait for this claim, or this claim sees it closed. A row that is
    -- being changed counts as changed: waiting for it while holding the job's row could deadlock.
    FOR i IN 0 .. jsonb_array_length(ins) - 1 LOOP
        PERFORM 1 FROM datastatus c
        WHERE c.project = ins->i->>0 AND c.datasetid = ins->i->>1 AND c.dataid = ins->i->>2
          AND c.locktype = 'OUT' AND c.reader = '' AND c.status = 'READY'
          AND c.version IS NOT DISTINCT FROM (ins->i->>3)::bigint
        FOR SHARE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END LOOP;
    FOR i IN 0 .. jsonb_array_length(outs) - 1 LOOP
        c_project := outs->i->>0;
        c_dataset := outs->i->>1;
        -- A chunk that was there before is locked first and then looked at: no reader can slip in between.
        PERFORM 1 FROM datastatus c
        WHERE c.project = c_project AND c.datasetid = c_dataset AND c.dataid = p_dataid AND c.locktype = 'OUT'
          AND c.reader = ''
        FOR UPDATE;
        IF FOUND THEN
            PERFORM 1 FROM datastatus r
            WHERE r.project = c_project AND r.datasetid = c_dataset AND r.dataid = p_dataid AND r.locktype = 'IN'
              AND r.status = 'RUNNING';
            IF FOUND THEN
                RETURN;
            END IF;
        END IF;
    END LOOP;
    o_runid := nextval('run_token');
    FOR i IN 0 .. jsonb_array_length(outs) - 1 LOOP
        INSERT INTO datastatus AS d (project, datasetid, dataid, locktype, jobid, status, modified)
        VALUES (outs->i->>0, outs->i->>1, p_dataid, 'OUT', p_jobid, 'RUNNING', moment)
        ON CONFLICT (project, datasetid, dataid, locktype, reader)
        DO UPDATE SET status = 'RUNNING', jobid = excluded.jobid, modified = excluded.modified;
    END LOOP;
    UPDATE job_status s
    SET status = 'RUNNING', runid = o_runid, owner = p->>'owner', host = p->>'host',
        lease_until = moment + make_interval(secs => (p->>'lease_seconds')::double precision),
        attempts = s.attempts + 1, again = 0, parked_until = NULL, modified = moment
    WHERE s.project = p_project AND s.jobid = p_jobid AND s.dataid = p_dataid
    RETURNING s.attempts, s.deaths INTO o_attempt, o_deaths;
    INSERT INTO run (runid, project, jobid, dataid, attempt, forced, owner, host, pid, pid_started, guard_pid, guard_started,
                     claimed_at, answers, inputs)
    VALUES (o_runid, p_project, p_jobid, p_dataid, o_attempt, (p ? 'forced')::integer, p->>'owner', p->>'host', (p->>'pid')::bigint,
            (p->>'pid_started')::bigint, (p->>'guard_pid')::bigint, (p->>'guard_started')::bigint, moment,
            claim_run.answers, ins::json);
    FOR i IN 0 .. jsonb_array_length(ins) - 1 LOOP
        INSERT INTO datastatus (project, datasetid, dataid, locktype, reader, jobid, status, modified)
        VALUES (ins->i->>0, ins->i->>1, ins->i->>2, 'IN', o_runid::text, p_jobid, 'RUNNING', moment);
    END LOOP;
END $$;

-- A run that ends opens chunks to their readers and makes room under the limits: workers that wait are told.
CREATE OR REPLACE FUNCTION finish_run(p jsonb, OUT o_case integer, OUT o_earlier text) LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    p_project text := p->>'project';
    p_jobid text := p->>'jobid';
    p_dataid text := p->>'dataid';
    p_runid bigint := (p->>'runid')::bigint;
    e jsonb;
    m jsonb;
    is_awaited boolean;
BEGIN
    -- The token is in the WHERE: a run that outlived its lease must change nothing.
    UPDATE job_status s
    SET status = p->'ends'->s.again->>'status', attempts = (p->'ends'->s.again->>'attempts')::integer,
        deaths = (p->'ends'->s.again->>'deaths')::integer,
        parked_until = moment + make_interval(secs => (p->'ends'->s.again->>'retry_in')::double precision),
        refusals = 0, owner = NULL, host = NULL, lease_until = NULL, modified = moment
    WHERE s.project = p_project AND s.jobid = p_jobid AND s.dataid = p_dataid AND s.runid = p_runid
      AND s.status = 'RUNNING'
    RETURNING s.again INTO o_case;
    IF NOT FOUND THEN
        SELECT r.status INTO o_earlier FROM run r WHERE r.runid = p_runid;
        RETURN;
    ELSIF o_case = 1 THEN
        UPDATE job_status s SET again = 0
        WHERE s.project = p_project AND s.jobid = p_jobid AND s.dataid = p_dataid;
    END IF;
    e := p->'ends'->o_case;
    IF (p->>'complete')::boolean THEN
        FOR i IN 0 .. jsonb_array_length(p->'manifests') - 1 LOOP
            m := p->'manifests'->i;
            UPDATE datastatus d
            SET status = CASE e->>'status' WHEN 'COMPLETE' THEN 'READY' ELSE 'RESUBMIT' END, version = p_runid,
                location = m->>'location', fingerprint = m->>'fingerprint',
                validated_at = CASE WHEN (m->>'validated')::boolean THEN moment END, problem = NULL, modified = moment
            WHERE d.project = m->>'project' AND d.datasetid = m->>'datasetid' AND d.dataid = p_dataid
              AND d.locktype = 'OUT' AND d.reader = '';
            IF m->>'location' IS NOT NULL THEN -- data without a place has nothing to list
                INSERT INTO data_manifest (project, datasetid, dataid, version, location, files, bytes, rows, schema,
                                           fingerprint, validated_at, created_at)
                VALUES (m->>'project', m->>'datasetid', p_dataid, p_runid, m->>'location', (m->>'files')::bigint,
                        (m->>'bytes')::bigint, (m->>'rows')::bigint, m->>'schema', m->>'fingerprint',
                        CASE WHEN (m->>'validated')::boolean THEN moment END, moment);
            END IF;
        END LOOP;
    ELSIF e->>'status' = 'FAILED' THEN
        UPDATE datastatus d SET status = 'FAILED', modified = moment
        WHERE d.dataid = p_dataid AND d.locktype = 'OUT' AND d.reader = '' AND d.status = 'RUNNING'
          AND (d.project, d.datasetid) IN
              (SELECT l.dataset_project, l.datasetid FROM job_dataset l
               WHERE l.project = p_project AND l.jobid = p_jobid AND l.itemtype = 'OUT');
    END IF;
    FOR i IN 0 .. jsonb_array_length(p->'inputs') - 1 LOOP
        m := p->'inputs'->i;
        DELETE FROM datastatus d
        WHERE d.project = m->>0 AND d.datasetid = m->>1 AND d.dataid = m->>2 AND d.locktype = 'IN'
          AND d.reader = p->>'runid';
    END LOOP;
    UPDATE run r
    SET status = e->>'run_status', ended_at = moment, exit_code = (p->>'exit_code')::integer, message = e->>'message',
        log_path = coalesce(p->>'log_path', r.log_path),
        log_tail = CASE p->>'log_tail' WHEN '' THEN r.log_tail ELSE p->>'log_tail' END
    WHERE r.runid = p_runid
    RETURNING EXISTS (SELECT 1 FROM worker w WHERE w.is_idle = 1) INTO is_awaited;
    IF is_awaited THEN
        PERFORM pg_notify('dataflow', '');
    END IF;
END $$;

-- True when nothing is paused and one more run of the job is within every limit; until this transaction ends, nobody else
-- can count.
CREATE FUNCTION is_open(p_project text, p_jobid text, moment timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    n integer;
    most integer;
    of_connection record;
BEGIN
    PERFORM 1 FROM job_gate g
    WHERE g.project = p_project AND g.jobid = p_jobid
      AND (g.paused_by IS NULL OR g.paused_until <= moment) AND (g.all_paused_by IS NULL OR g.all_paused_until <= moment);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT j.max_runs INTO most FROM job j
    WHERE j.project = p_project AND j.jobid = p_jobid AND j.max_runs IS NOT NULL FOR UPDATE;
    IF most IS NOT NULL THEN
        SELECT count(*) INTO n FROM job_status s
        WHERE s.project = p_project AND s.jobid = p_jobid AND s.status = 'RUNNING';
        IF n >= most THEN
            RETURN false;
        END IF;
    END IF;
    FOR of_connection IN
        SELECT c.name, c.max_runs FROM connection_limit c
        WHERE c.max_runs IS NOT NULL
          AND c.name IN (SELECT u.name FROM job_connection u WHERE u.project = p_project AND u.jobid = p_jobid)
        ORDER BY c.name FOR UPDATE OF c
    LOOP
        SELECT count(*) INTO n FROM job_status s
        WHERE s.status = 'RUNNING' AND EXISTS (SELECT 1 FROM job_connection u
                                               WHERE u.project = s.project AND u.jobid = s.jobid
                                                 AND u.name = of_connection.name);
        IF n >= of_connection.max_runs THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END $$;

-- Many ends and many claims, together; each by itself as finish_run and claim_run do it. First rows for the ends, then
-- rows for the claims, in the order given. A claim comes with its answers: [{…}, text].
CREATE FUNCTION finish_and_claim_many(p_ends jsonb, p_claims jsonb)
RETURNS TABLE (o_case integer, o_earlier text, o_runid bigint, o_attempt integer, o_deaths integer)
LANGUAGE plpgsql AS $$
DECLARE
    ended record;
    taken record;
BEGIN
    FOR i IN 0 .. jsonb_array_length(p_ends) - 1 LOOP
        ended := finish_run(p_ends->i);
        o_case := ended.o_case;
        o_earlier := ended.o_earlier;
        RETURN NEXT;
    END LOOP;
    o_case := NULL;
    o_earlier := NULL;
    IF jsonb_array_length(p_claims) > 1 THEN
        -- The rows of all limits, in one order for everybody: two workers that claim for the same jobs wait for each
        -- other, not for ever.
        PERFORM 1 FROM job j
        WHERE j.max_runs IS NOT NULL
          AND (j.project, j.jobid) IN (SELECT w->0->>'project', w->0->>'jobid' FROM jsonb_array_elements(p_claims) w)
        ORDER BY j.project, j.jobid FOR UPDATE;
        PERFORM 1 FROM connection_limit c
        WHERE c.max_runs IS NOT NULL
          AND c.name IN (SELECT u.name FROM jsonb_array_elements(p_claims) w JOIN job_connection u
                             ON u.project = w->0->>'project' AND u.jobid = w->0->>'jobid')
        ORDER BY c.name FOR UPDATE;
    END IF;
    FOR i IN 0 .. jsonb_array_length(p_claims) - 1 LOOP
        taken := claim_run(p_claims->i->0, (p_claims->i->>1)::json);
        o_runid := taken.o_runid;
        o_attempt := taken.o_attempt;
        o_deaths := taken.o_deaths;
        RETURN NEXT;
    END LOOP;
END $$;

ALTER FUNCTION chunk_changed SET search_path FROM CURRENT;
ALTER FUNCTION job_status_changed SET search_path FROM CURRENT;
ALTER FUNCTION job_limit_changed SET search_path FROM CURRENT;
ALTER FUNCTION all_paused SET search_path FROM CURRENT;
ALTER FUNCTION connection_limit_changed SET search_path FROM CURRENT;

-- Quiet cascades: what is produced again has its readers run again only where it came out different from what they read.

-- 1: when this chunk is published, whoever read something else runs again, and what they make is followed in turn.
ALTER TABLE datastatus ADD COLUMN readers_follow integer NOT NULL DEFAULT 0;

-- A fingerprint is `<size and times>/<content>`; a `-` was never looked at.
CREATE FUNCTION content_of(fingerprint text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT nullif(substr(fingerprint, strpos(fingerprint, '/') + 1), '-')
$$;

-- Every job on a dataid that reads a chunk, whichever way its input is mapped, and what its last run read of it: the
-- content part of a fingerprint, as the run recorded it; where that record was cleaned away, of the last version before it.
CREATE VIEW chunk_reader AS
SELECT r.*,
       coalesce((SELECT content_of(i.value->>4) FROM run k CROSS JOIN json_array_elements(k.inputs) i
                 WHERE k.runid = r.runid AND i.value->>0 = r.dataset_project AND i.value->>1 = r.datasetid
                   AND i.value->>2 = r.chunk_dataid),
                (SELECT content_of(m.fingerprint) FROM data_manifest m
                 WHERE m.project = r.dataset_project AND m.datasetid = r.datasetid AND m.dataid = r.chunk_dataid
                   AND m.version < r.runid AND NOT EXISTS (SELECT 1 FROM run k WHERE k.runid = r.runid)
                 ORDER BY m.version DESC LIMIT 1)) AS content_read
FROM (SELECT l.dataset_project, l.datasetid, s.dataid AS chunk_dataid, s.project, s.jobid, s.dataid, s.status, s.runid
      FROM job_dataset l JOIN job_status s ON s.project = l.project AND s.jobid = l.jobid
      WHERE l.itemtype = 'IN' AND l.map = 'same'
      UNION ALL
      SELECT l.dataset_project, l.datasetid, 'full', s.project, s.jobid, s.dataid, s.status, s.runid
      FROM job_dataset l JOIN job_status s ON s.project = l.project AND s.jobid = l.jobid
      WHERE l.itemtype = 'IN' AND l.map = 'full'
      UNION ALL
      SELECT e.dataset_project, e.datasetid, e.dataid, s.project, s.jobid, s.dataid, s.status, s.runid
      FROM job_input e JOIN job_status s ON s.project = e.project AND s.jobid = e.jobid AND s.dataid = e.job_dataid) r;

-- Content that is not known is different. The readers are taken in one order by everybody.
CREATE FUNCTION have_readers_follow(c datastatus) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    me text := coalesce(current_setting('dataflow.actor', true), '');
    published text := content_of(c.fingerprint);
    r record;
    stay integer := 0;
    follow integer := 0;
BEGIN
    UPDATE datastatus d SET readers_follow = 0
    WHERE d.project = c.project AND d.datasetid = c.datasetid AND d.dataid = c.dataid AND d.locktype = 'OUT'
      AND d.reader = '';
    -- Who looks at a reader's history sees why it runs again.
    PERFORM set_config('dataflow.actor',
                       format('%s: cascade: %s/%s came out different', current_actor(), c.datasetid, c.dataid), true);
    FOR r IN SELECT v.project, v.jobid, v.dataid, v.status, v.content_read IS NOT DISTINCT FROM published
                    AND published IS NOT NULL AS is_same
             FROM chunk_reader v
             WHERE v.dataset_project = c.project AND v.datasetid = c.datasetid AND v.chunk_dataid = c.dataid
             ORDER BY v.project, v.jobid, v.dataid LOOP
        stay := stay + (r.is_same AND r.status <> 'PENDING')::integer;
        CONTINUE WHEN r.is_same;
        follow := follow + (r.status <> 'PENDING')::integer;
        UPDATE job_status s SET status = 'RESUBMIT'
        WHERE s.project = r.project AND s.jobid = r.jobid AND s.dataid = r.dataid
          AND s.status IN ('COMPLETE', 'FAILED', 'RUNNING');
        UPDATE datastatus d SET readers_follow = 1
        FROM job_dataset o
        WHERE o.project = r.project AND o.jobid = r.jobid AND o.itemtype = 'OUT'
          AND EXISTS (SELECT 1 FROM job_dataset i
                      WHERE i.dataset_project = o.dataset_project AND i.datasetid = o.datasetid AND i.itemtype = 'IN')
          AND d.project = o.dataset_project AND d.datasetid = o.datasetid AND d.dataid = r.dataid
          AND d.locktype = 'OUT' AND d.reader = '';
    END LOOP;
    PERFORM set_config('dataflow.actor', me, true);
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    VALUES ('chunk', c.project, c.datasetid, c.dataid, 'READY', 'READY', c.version,
            format('%s: cascade: %s readers read the same and stay, %s follow', current_actor(), stay, follow));
END $$;

-- As before, and one comparison more.
CREATE OR REPLACE FUNCTION chunk_opens(c datastatus) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    by_same boolean;
    by_full boolean;
    by_map boolean;
    by_clock boolean;
BEGIN
    SELECT bool_or(l.map = 'same'), bool_or(l.map = 'full'), bool_or(l.map NOT IN ('same', 'full')), bool_or(j.clocked = 1)
    INTO by_same, by_full, by_map, by_clock
    FROM job_dataset l JOIN job j ON j.project = l.project AND j.jobid = l.jobid
    WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'IN';
    IF by_clock THEN
        by_clock := EXISTS (SELECT 1 FROM dataset d
                            WHERE d.project = c.project AND d.datasetid = c.datasetid AND d.clock IS NOT NULL);
        IF NOT by_clock THEN
            UPDATE job_status SET waiting = waiting - 1
            WHERE dataid = c.dataid AND (project, jobid) IN
                (SELECT l.project, l.jobid FROM job_dataset l JOIN job j ON j.project = l.project AND j.jobid = l.jobid
                 WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'IN'
                   AND l.map = 'same' AND j.clocked = 1);
        END IF;
    END IF;
    IF by_same THEN
        INSERT INTO job_status (project, jobid, dataid, waiting, unmapped)
        SELECT l.project, l.jobid, c.dataid, j.same_inputs - 1, (j.mapped_inputs > 0)::integer
        FROM job_dataset l JOIN job j ON j.project = l.project AND j.jobid = l.jobid
        WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'IN' AND l.map = 'same'
          AND (j.clocked = 0 OR by_clock)
        ORDER BY l.project, l.jobid
        ON CONFLICT (project, jobid, dataid) DO UPDATE SET waiting = job_status.waiting - 1;
    END IF;
    IF by_full AND c.dataid = 'full' THEN
        UPDATE job SET shared_waiting = shared_waiting - 1
        WHERE (project, jobid) IN
            (SELECT l.project, l.jobid FROM job_dataset l
             WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'IN' AND l.map = 'full');
    END IF;
    IF by_map THEN
        PERFORM move_mapped(c, -1);
    END IF;
    IF c.readers_follow = 1 THEN
        PERFORM have_readers_follow(c);
    END IF;
END $$;

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

-- Who may look and act over HTTP, and what each of them did. Secrets are kept as hashes only.

CREATE TABLE account (
    username      text COLLATE "C" PRIMARY KEY CHECK (username <> ''),
    password_hash text,                     -- argon2id; NULL: no password was chosen yet
    role          text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_at    timestamptz NOT NULL,
    disabled_at   timestamptz
);

CREATE TABLE web_session (
    session_hash text COLLATE "C" PRIMARY KEY, -- SHA-256 of what the browser holds
    username     text COLLATE "C" NOT NULL,
    address      text NOT NULL DEFAULT '',  -- where it signed in from, and with what
    agent        text NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL,
    seen_at      timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,       -- later with every use,
    ends_at      timestamptz NOT NULL        -- but never after this
);
CREATE INDEX web_session_of ON web_session (username);

CREATE TABLE login_link (
    link_hash  text COLLATE "C" PRIMARY KEY,   -- SHA-256; works once, to choose a password
    kind       text NOT NULL CHECK (kind IN ('first', 'new', 'reset')), -- first: while there is no admin
    username   text COLLATE "C" NOT NULL,      -- empty: whoever opens it chooses
    role       text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz
);

CREATE TABLE login_failure (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text COLLATE "C" NOT NULL,      -- SHA-256 of what is throttled: an account, an address, both, a browser
    expires_at timestamptz NOT NULL          -- when it is forgotten
);
CREATE INDEX login_failure_of ON login_failure (name, expires_at);
CREATE INDEX login_failure_old ON login_failure (expires_at);

CREATE TABLE login_device (
    device_hash text COLLATE "C" PRIMARY KEY,  -- SHA-256 of what a browser keeps that signed in before: others cannot lock it out
    username    text COLLATE "C" NOT NULL,
    expires_at  timestamptz NOT NULL
);
CREATE INDEX login_device_of ON login_device (username);

CREATE TABLE api_token (
    tokenid      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL,
    username     text COLLATE "C" NOT NULL,
    token_hash   text NOT NULL UNIQUE,      -- SHA-256
    scope        text NOT NULL CHECK (scope IN ('viewer', 'operator', 'admin')), -- at most its account's role
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz
);

CREATE INDEX api_token_of ON api_token (username);

CREATE TABLE web_action (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL,
    username text COLLATE "C" NOT NULL,
    action   text NOT NULL,
    target   text NOT NULL,                 -- what it was done to, for people
    detail   text NOT NULL DEFAULT '{}'     -- what was asked for, JSON, without secrets
);
CREATE INDEX web_action_of ON web_action (username, id);

-- What people ask of runs that are under way, and of workers.

-- A live run that its owner is to end. The owner looks here while the run goes on; who ends first is decided by the run's own
-- end, which there is only one of. Rows of runs that have ended mean nothing and are removed by the next who asks.
CREATE TABLE abort_request (
    runid    bigint PRIMARY KEY,
    asked_by text NOT NULL,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Whoever runs something listens on a channel of its own: news of work come by the thousand, and mean nothing to it.
CREATE FUNCTION abort_asked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('dataflow_abort', '');
    RETURN NULL;
END $$;
CREATE TRIGGER abort_asked AFTER INSERT ON abort_request FOR EACH STATEMENT EXECUTE FUNCTION abort_asked();

-- What a child process does for a page, such as validating transformations, and what it said.
CREATE TABLE request (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind      text NOT NULL,
    project   text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL DEFAULT '', -- a job, or empty: all of the project
    status    text NOT NULL DEFAULT 'RUNNING' CHECK (status IN ('RUNNING', 'COMPLETE', 'FAILED')),
    asked_by  text NOT NULL,
    asked_at  timestamptz NOT NULL,
    ended_at  timestamptz,
    exit_code integer,
    output    text NOT NULL DEFAULT ''
);

-- Projects that come from a git repository, and the versions of them that were put in place.
-- What opens a private repository, and what signs a webhook, is encrypted with the passkey (AES-256-GCM).

CREATE TABLE git_project (
    project         text COLLATE "C" PRIMARY KEY,
    url             text NOT NULL,           -- without any credential
    branch          text NOT NULL,
    folder          text NOT NULL,           -- its versions are below it, and what they share
    git_commit      text,                    -- the version in place; NULL: none was ever good
    username        text,
    credential      text,                    -- encrypted: a token, or a private key
    credential_kind text CHECK (credential_kind IN ('token', 'key')),
    hook_secret     text,                    -- encrypted; NULL: no webhook is answered
    added_at        timestamptz NOT NULL,
    added_by        text NOT NULL,
    checked_at      timestamptz,             -- when the repository was last looked at
    refused_commit  text,                    -- the newest commit, while it is not good enough
    refused_subject text,
    refused_at      timestamptz,
    problems        text NOT NULL DEFAULT '[]' -- all that is wrong with it, JSON
);

-- What was in place, one after the other.
CREATE TABLE git_version (
    versionid    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project      text COLLATE "C" NOT NULL,
    git_commit   text NOT NULL,
    author       text NOT NULL,
    subject      text NOT NULL,
    committed_at timestamptz NOT NULL,
    how          text NOT NULL CHECK (how IN ('add', 'pull', 'hook', 'rollback')),
    switched_at  timestamptz NOT NULL,
    switched_by  text NOT NULL,
    left_at      timestamptz                  -- NULL: it is in place
);
CREATE INDEX git_version_of ON git_version (project, versionid);

-- Work on a project's repository: asked for here, done by a process of its own.
CREATE TABLE git_task (
    taskid          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind            text NOT NULL CHECK (kind IN ('add', 'pull', 'hook', 'rollback')),
    project         text COLLATE "C",        -- NULL: not known yet
    url             text,
    branch          text,
    username        text,
    credential      text,                    -- encrypted; only until the project is added
    credential_kind text,
    git_commit      text,                    -- the one that is asked for, or was reached
    state           text NOT NULL DEFAULT 'WAITING'
                    CHECK (state IN ('WAITING', 'RUNNING', 'DONE', 'REFUSED', 'FAILED', 'LOST')),
    step            text NOT NULL DEFAULT '', -- what it does now
    said            text NOT NULL DEFAULT '', -- how it ended
    problems        text NOT NULL DEFAULT '[]',
    asked_at        timestamptz NOT NULL,
    asked_by        text NOT NULL,
    beat_at         timestamptz NOT NULL,    -- its last sign of life
    ended_at        timestamptz,
    host            text,
    pid             integer,
    pid_started     bigint
);
CREATE INDEX git_task_of ON git_task (project, taskid);
CREATE INDEX git_task_open ON git_task (taskid) WHERE state = 'WAITING' OR state = 'RUNNING';

-- The commit of a script's run; a pipeline's is in pipeline_run.
CREATE TABLE run_version (
    runid      bigint PRIMARY KEY,
    git_commit text NOT NULL
);
CREATE FUNCTION run_forgets_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM run_version WHERE runid = OLD.runid;
    RETURN NULL;
END $$;
CREATE TRIGGER run_forgets_version AFTER DELETE ON run FOR EACH ROW EXECUTE FUNCTION run_forgets_version();
ALTER FUNCTION run_forgets_version SET search_path FROM CURRENT;

-- Sources: what people gave to datasets in this store beside project.yml, and how each last answered.

CREATE TABLE source_binding (
    project    text COLLATE "C" NOT NULL,
    datasetid  text COLLATE "C" NOT NULL,
    field      text COLLATE "C" NOT NULL,         -- as project.yml calls it: url, table, path, …
    value      text NOT NULL,                     -- JSON; a credential is encrypted, as project.yml would hold it
    bound_by   text NOT NULL,
    bound_at   timestamptz NOT NULL,
    PRIMARY KEY (project, datasetid, field)
);

CREATE TABLE source_test (
    project    text COLLATE "C" NOT NULL,
    datasetid  text COLLATE "C" NOT NULL,
    tested_at  timestamptz NOT NULL,
    tested_by  text NOT NULL,
    answered   integer NOT NULL CHECK (answered IN (0, 1)),
    said       text NOT NULL,                     -- in words, without secrets
    PRIMARY KEY (project, datasetid)
);

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

-- Whoever does something for a page says again and again that it is there.

ALTER TABLE request ADD COLUMN beat_at timestamptz;

-- Locations below a project's root are relative to it, so that a project can be moved or copied with its data.

ALTER TABLE project ADD COLUMN root_below_home text;  -- the root from the project's folder; NULL: `root` does not move
ALTER TABLE project ADD COLUMN home_below_store text; -- NULL: only the file of a SQLite store moves with a project
ALTER TABLE project ADD COLUMN is_marked integer NOT NULL DEFAULT 0; -- 1: the root has this store's marker

UPDATE project SET root_below_home = CASE root WHEN home THEN '.' ELSE substr(root, length(home) + 2) END
WHERE root = home OR starts_with(root, home || '/');

UPDATE datastatus c
SET location = CASE WHEN starts_with(c.location, 'sqlite:///')
                    THEN 'sqlite:///' || substr(c.location, length(rtrim(p.root, '/')) + 12)
                    ELSE substr(c.location, length(rtrim(p.root, '/')) + 2) END
FROM project p
WHERE p.project = c.project AND c.location NOT LIKE '%..%'
  AND (starts_with(c.location, rtrim(p.root, '/') || '/')
       OR starts_with(c.location, 'sqlite:///' || rtrim(p.root, '/') || '/'));
UPDATE data_manifest c
SET location = CASE WHEN starts_with(c.location, 'sqlite:///')
                    THEN 'sqlite:///' || substr(c.location, length(rtrim(p.root, '/')) + 12)
                    ELSE substr(c.location, length(rtrim(p.root, '/')) + 2) END
FROM project p
WHERE p.project = c.project AND c.location NOT LIKE '%..%'
  AND (starts_with(c.location, rtrim(p.root, '/') || '/')
       OR starts_with(c.location, 'sqlite:///' || rtrim(p.root, '/') || '/'));

-- Every chunk with its whole location, where the store saw the project last.
CREATE VIEW chunk_location AS
SELECT c.project, c.datasetid, c.dataid, c.status, c.version,
       CASE WHEN c.location LIKE 'sqlite:///%' AND substr(c.location, 11, 1) <> '/'
            THEN 'sqlite:///' || rtrim(p.root, '/') || '/' || substr(c.location, 11)
            WHEN c.location LIKE '/%' OR c.location LIKE '%://%' THEN c.location
            WHEN c.location = '.' THEN p.root
            ELSE rtrim(p.root, '/') || '/' || c.location END AS location
FROM datastatus c LEFT JOIN project p ON p.project = c.project
WHERE c.locktype = 'OUT' AND c.reader = '';

-- What each version of a dataset contains that a stream makes as a whole (`returns: dataset`).

CREATE TABLE stream_version (
    project     text COLLATE "C" NOT NULL,
    jobid       text COLLATE "C" NOT NULL,  -- the stream
    runid       bigint NOT NULL,            -- the version's, of the destination; it counts where that is published
    end_offset  bigint NOT NULL,            -- it contains the items before this one
    batch_runid bigint NOT NULL,            -- the run that made it
    PRIMARY KEY (project, jobid, runid)
);

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

-- Stale is visible: what each dataid of a job was made from, and where that is older than what there is now.

-- What a run that published was made by: the digests of its code and of the checks of its outputs.
ALTER TABLE run ADD COLUMN code text;
ALTER TABLE run ADD COLUMN checks text;

-- What was published or declared and is not worked in yet: maintenance does that; a claim and a publish never read it.
CREATE TABLE stale_event (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind          text NOT NULL,                         -- chunk: it has a new version; readers: compare who read it;
                                                         -- dataid: compare this one; job: compare all of its dataids
    project       text COLLATE "C" NOT NULL,
    name          text COLLATE "C" NOT NULL,             -- of the dataset (chunk, readers) or of the job (dataid, job)
    dataid        text COLLATE "C" NOT NULL DEFAULT '',
    after_project text COLLATE "C" NOT NULL DEFAULT '',  -- so far it is done
    after_jobid   text COLLATE "C" NOT NULL DEFAULT '',
    after_dataid  text COLLATE "C" NOT NULL DEFAULT ''
);

-- The run that made what a dataid has published, and with what code; NULL where that is not known.
CREATE TABLE made (
    project    text COLLATE "C" NOT NULL,
    jobid      text COLLATE "C" NOT NULL,
    dataid     text COLLATE "C" NOT NULL,
    runid      bigint NOT NULL,
    code       text,
    checks     text,
    git_commit text,
    PRIMARY KEY (project, jobid, dataid)
);

-- The input chunks that it read: version and content (the second part of a fingerprint).
CREATE TABLE made_from (
    dataset_project text COLLATE "C" NOT NULL,
    datasetid       text COLLATE "C" NOT NULL,
    input_dataid    text COLLATE "C" NOT NULL,
    project         text COLLATE "C" NOT NULL,
    jobid           text COLLATE "C" NOT NULL,
    dataid          text COLLATE "C" NOT NULL,
    version         bigint,
    content         text,
    PRIMARY KEY (dataset_project, datasetid, input_dataid, project, jobid, dataid)
);
CREATE INDEX made_from_of ON made_from (project, jobid, dataid);

-- The code and checks of a job as they are now; with a run: as that run had them, where nobody else can tell.
CREATE TABLE job_code (
    project text COLLATE "C" NOT NULL,
    jobid   text COLLATE "C" NOT NULL,
    code    text,
    checks  text,
    runid   bigint,
    PRIMARY KEY (project, jobid)
);

-- Dataids whose data is older than what it should be made from. Only these have a row.
CREATE TABLE stale (
    project  text COLLATE "C" NOT NULL,
    jobid    text COLLATE "C" NOT NULL,
    dataid   text COLLATE "C" NOT NULL,
    by_input integer NOT NULL, -- 1: an input has other content than was read
    by_code  integer NOT NULL, -- 1: the code or definition of the job is another
    by_check integer NOT NULL, -- 1: the checks of its outputs are others
    upstream integer NOT NULL, -- 1: what makes one of its inputs is stale
    since    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (project, jobid, dataid)
);

-- Numbers of the history are not in the order of the commits: here a publish appends an event.
CREATE FUNCTION chunk_has_new_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO stale_event (kind, project, name, dataid) VALUES ('chunk', NEW.project, NEW.datasetid, NEW.dataid);
    RETURN NULL;
END $$;
ALTER FUNCTION chunk_has_new_version SET search_path FROM CURRENT;
CREATE TRIGGER chunk_is_new AFTER INSERT ON datastatus
FOR EACH ROW WHEN (NEW.locktype = 'OUT' AND NEW.status = 'READY') EXECUTE FUNCTION chunk_has_new_version();
CREATE TRIGGER chunk_is_renewed AFTER UPDATE ON datastatus
FOR EACH ROW WHEN (NEW.locktype = 'OUT' AND NEW.status = 'READY'
                   AND (OLD.status <> 'READY' OR NEW.version IS DISTINCT FROM OLD.version))
EXECUTE FUNCTION chunk_has_new_version();

-- As before, and what it was made by.
CREATE OR REPLACE FUNCTION finish_run(p jsonb, OUT o_case integer, OUT o_earlier text) LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    p_project text := p->>'project';
    p_jobid text := p->>'jobid';
    p_dataid text := p->>'dataid';
    p_runid bigint := (p->>'runid')::bigint;
    e jsonb;
    m jsonb;
    is_awaited boolean;
BEGIN
    -- The token is in the WHERE: a run that outlived its lease must change nothing.
    UPDATE job_status s
    SET status = p->'ends'->s.again->>'status', attempts = (p->'ends'->s.again->>'attempts')::integer,
        deaths = (p->'ends'->s.again->>'deaths')::integer,
        parked_until = moment + make_interval(secs => (p->'ends'->s.again->>'retry_in')::double precision),
        refusals = 0, owner = NULL, host = NULL, lease_until = NULL, modified = moment
    WHERE s.project = p_project AND s.jobid = p_jobid AND s.dataid = p_dataid AND s.runid = p_runid
      AND s.status = 'RUNNING'
    RETURNING s.again INTO o_case;
    IF NOT FOUND THEN
        SELECT r.status INTO o_earlier FROM run r WHERE r.runid = p_runid;
        RETURN;
    ELSIF o_case = 1 THEN
        UPDATE job_status s SET again = 0
        WHERE s.project = p_project AND s.jobid = p_jobid AND s.dataid = p_dataid;
    END IF;
    e := p->'ends'->o_case;
    IF (p->>'complete')::boolean THEN
        FOR i IN 0 .. jsonb_array_length(p->'manifests') - 1 LOOP
            m := p->'manifests'->i;
            UPDATE datastatus d
            SET status = CASE e->>'status' WHEN 'COMPLETE' THEN 'READY' ELSE 'RESUBMIT' END, version = p_runid,
                location = m->>'location', fingerprint = m->>'fingerprint',
                validated_at = CASE WHEN (m->>'validated')::boolean THEN moment END, problem = NULL, modified = moment
            WHERE d.project = m->>'project' AND d.datasetid = m->>'datasetid' AND d.dataid = p_dataid
              AND d.locktype = 'OUT' AND d.reader = '';
            IF m->>'location' IS NOT NULL THEN -- data without a place has nothing to list
                INSERT INTO data_manifest (project, datasetid, dataid, version, location, files, bytes, rows, schema,
                                           fingerprint, validated_at, created_at)
                VALUES (m->>'project', m->>'datasetid', p_dataid, p_runid, m->>'location', (m->>'files')::bigint,
                        (m->>'bytes')::bigint, (m->>'rows')::bigint, m->>'schema', m->>'fingerprint',
                        CASE WHEN (m->>'validated')::boolean THEN moment END, moment);
            END IF;
        END LOOP;
    ELSIF e->>'status' = 'FAILED' THEN
        UPDATE datastatus d SET status = 'FAILED', modified = moment
        WHERE d.dataid = p_dataid AND d.locktype = 'OUT' AND d.reader = '' AND d.status = 'RUNNING'
          AND (d.project, d.datasetid) IN
              (SELECT l.dataset_project, l.datasetid FROM job_dataset l
               WHERE l.project = p_project AND l.jobid = p_jobid AND l.itemtype = 'OUT');
    END IF;
    FOR i IN 0 .. jsonb_array_length(p->'inputs') - 1 LOOP
        m := p->'inputs'->i;
        DELETE FROM datastatus d
        WHERE d.project = m->>0 AND d.datasetid = m->>1 AND d.dataid = m->>2 AND d.locktype = 'IN'
          AND d.reader = p->>'runid';
    END LOOP;
    UPDATE run r
    SET status = e->>'run_status', ended_at = moment, exit_code = (p->>'exit_code')::integer, message = e->>'message',
        log_path = coalesce(p->>'log_path', r.log_path),
        log_tail = CASE p->>'log_tail' WHEN '' THEN r.log_tail ELSE p->>'log_tail' END,
        code = p->>'code', checks = p->>'checks'
    WHERE r.runid = p_runid
    RETURNING EXISTS (SELECT 1 FROM worker w WHERE w.is_idle = 1) INTO is_awaited;
    IF is_awaited THEN
        PERFORM pg_notify('dataflow', '');
    END IF;
END $$;

-- What was published before is worked in as well, from the records of its runs.
INSERT INTO stale_event (kind, project, name, dataid)
SELECT 'chunk', project, datasetid, dataid FROM datastatus
WHERE locktype = 'OUT' AND status = 'READY' AND version IS NOT NULL ORDER BY version;

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

-- Pipelines whose chunks share no Spark job while their code is this, since one came out different than it does alone.

CREATE TABLE unshared (
    project  text NOT NULL,
    jobid    text NOT NULL,
    digest   text NOT NULL,      -- of the project's code then
    runid    bigint NOT NULL,   -- the run that was produced alone
    reason   text NOT NULL,
    noted_at timestamptz NOT NULL,
    PRIMARY KEY (project, jobid)
);
