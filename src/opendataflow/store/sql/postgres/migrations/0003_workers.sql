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
