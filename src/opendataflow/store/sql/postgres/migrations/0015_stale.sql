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
