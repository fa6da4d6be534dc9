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
