-- Workers and live limits: how many runs of a job, or over a connection, may be live at once; pauses with an end; and who
-- works here. What an operator sets by hand (UPDATE job SET scaled_to = 2) is honoured by the next claim and recorded.

ALTER TABLE store ADD COLUMN reason TEXT NOT NULL DEFAULT ''; -- why the open transaction changes a limit, as `actor` is who
ALTER TABLE store ADD COLUMN paused_by TEXT;     -- who holds everything
ALTER TABLE store ADD COLUMN paused_at TEXT;
ALTER TABLE store ADD COLUMN paused_until TEXT;  -- NULL: until it is resumed

ALTER TABLE job ADD COLUMN scaled_to INTEGER CHECK (scaled_to >= 0); -- a person's limit, instead of the declared `concurrency`
ALTER TABLE job ADD COLUMN braked_to INTEGER CHECK (braked_to >= 0); -- what braking leaves of it
ALTER TABLE job ADD COLUMN max_runs INTEGER GENERATED ALWAYS AS (
    CASE WHEN braked_to < coalesce(scaled_to, concurrency) OR coalesce(scaled_to, concurrency) IS NULL THEN braked_to
         ELSE coalesce(scaled_to, concurrency) END) VIRTUAL;
ALTER TABLE job ADD COLUMN paused_until TEXT;

-- A dataset that is in a database counts for the limit of its connection.
ALTER TABLE dataset ADD COLUMN connection TEXT GENERATED ALWAYS AS (
    coalesce(hostname || '/' || database, hostname, database,
             CASE WHEN json_valid(definition) THEN json_extract(definition, '$.url_env') END)) VIRTUAL;

CREATE TABLE connection_limit (
    name      TEXT PRIMARY KEY,               -- host/database, or the variable that holds the address
    declared  INTEGER CHECK (declared >= 0),
    project   TEXT,                           -- that declares it
    scaled_to INTEGER CHECK (scaled_to >= 0), -- a person's, instead of the declared one
    max_runs  INTEGER GENERATED ALWAYS AS (coalesce(scaled_to, declared)) VIRTUAL
) WITHOUT ROWID;

CREATE VIEW job_connection AS
SELECT l.project, l.jobid, d.connection AS name, l.datasetid
FROM job_dataset l JOIN dataset d ON d.project = l.dataset_project AND d.datasetid = l.datasetid
WHERE d.connection IS NOT NULL;

-- What stands between a job and its next run, whichever dataid: pauses, and for how many more runs there is room.
CREATE VIEW job_gate AS
SELECT j.project, j.jobid, j.strict, j.shared_waiting, j.paused_by, j.paused_until,
       t.paused_by AS all_paused_by, t.paused_until AS all_paused_until,
       min(CASE WHEN j.max_runs IS NULL THEN 1000000000 ELSE
               j.max_runs - (SELECT count(*) FROM job_status s INDEXED BY job_status_running
                             WHERE s.project = j.project AND s.jobid = j.jobid AND s.status = 'RUNNING') END,
           coalesce((SELECT min(c.max_runs - (SELECT count(*) FROM job_status s
                                              WHERE s.status = 'RUNNING'
                                                AND EXISTS (SELECT 1 FROM job_connection u
                                                            WHERE u.project = s.project AND u.jobid = s.jobid
                                                              AND u.name = c.name)))
                     FROM connection_limit c
                     WHERE c.max_runs IS NOT NULL
                       AND EXISTS (SELECT 1 FROM job_connection u
                                   WHERE u.project = j.project AND u.jobid = j.jobid AND u.name = c.name)),
                    1000000000)) AS room
FROM job j CROSS JOIN store t WHERE t.one = 1;

CREATE TABLE limit_history (
    id         INTEGER PRIMARY KEY,
    at         TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    project    TEXT NOT NULL DEFAULT '',
    jobid      TEXT NOT NULL DEFAULT '', -- '' with no connection: everything
    connection TEXT NOT NULL DEFAULT '',
    what       TEXT NOT NULL,            -- concurrency (as declared), scale, brake or pause
    was        TEXT,
    becomes    TEXT,                     -- NULL: none any more
    reason     TEXT NOT NULL DEFAULT '',
    actor      TEXT NOT NULL
);
CREATE INDEX limit_history_of ON limit_history (project, jobid, connection, id);
CREATE TRIGGER limit_history_is_append_only_1 BEFORE UPDATE ON limit_history
BEGIN
    SELECT RAISE(ABORT, 'history is append-only');
END;
CREATE TRIGGER limit_history_is_append_only_2 BEFORE DELETE ON limit_history
WHEN (SELECT actor FROM store) NOT LIKE 'history clean%'
BEGIN
    SELECT RAISE(ABORT, 'history is append-only; see dataflow history clean');
END;

CREATE TABLE worker (
    name        TEXT PRIMARY KEY,    -- user@host:pid
    host        TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    pid_started INTEGER NOT NULL,
    slots       INTEGER NOT NULL,
    jobs        TEXT NOT NULL DEFAULT '', -- separated by spaces; '': all
    started_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    seen_at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    running     INTEGER NOT NULL DEFAULT 0,
    is_idle     INTEGER NOT NULL DEFAULT 0 -- 1: it wants to be told of new work (here it looks at the file instead)
) WITHOUT ROWID;

CREATE TRIGGER job_limit_changed AFTER UPDATE OF concurrency, scaled_to, braked_to ON job
WHEN NEW.concurrency IS NOT OLD.concurrency OR NEW.scaled_to IS NOT OLD.scaled_to OR NEW.braked_to IS NOT OLD.braked_to
BEGIN
    INSERT INTO limit_history (project, jobid, what, was, becomes, reason, actor)
    SELECT NEW.project, NEW.jobid, 'concurrency', OLD.concurrency, NEW.concurrency, reason, actor FROM store
    WHERE NEW.concurrency IS NOT OLD.concurrency;
    INSERT INTO limit_history (project, jobid, what, was, becomes, reason, actor)
    SELECT NEW.project, NEW.jobid, 'scale', OLD.scaled_to, NEW.scaled_to, reason, actor FROM store
    WHERE NEW.scaled_to IS NOT OLD.scaled_to;
    INSERT INTO limit_history (project, jobid, what, was, becomes, reason, actor)
    SELECT NEW.project, NEW.jobid, 'brake', OLD.braked_to, NEW.braked_to, reason, actor FROM store
    WHERE NEW.braked_to IS NOT OLD.braked_to;
END;
CREATE TRIGGER job_paused AFTER UPDATE OF paused_by, paused_until ON job
WHEN NEW.paused_by IS NOT OLD.paused_by OR NEW.paused_until IS NOT OLD.paused_until
BEGIN
    INSERT INTO limit_history (project, jobid, what, was, becomes, reason, actor)
    SELECT NEW.project, NEW.jobid, 'pause',
           CASE WHEN OLD.paused_by IS NOT NULL THEN coalesce('until ' || OLD.paused_until, 'until resumed') END,
           CASE WHEN NEW.paused_by IS NOT NULL THEN coalesce('until ' || NEW.paused_until, 'until resumed') END,
           coalesce(NEW.paused_by, ''), actor
    FROM store;
END;
CREATE TRIGGER all_paused AFTER UPDATE OF paused_by, paused_until ON store
WHEN NEW.paused_by IS NOT OLD.paused_by OR NEW.paused_until IS NOT OLD.paused_until
BEGIN
    INSERT INTO limit_history (what, was, becomes, reason, actor)
    VALUES ('pause',
            CASE WHEN OLD.paused_by IS NOT NULL THEN coalesce('until ' || OLD.paused_until, 'until resumed') END,
            CASE WHEN NEW.paused_by IS NOT NULL THEN coalesce('until ' || NEW.paused_until, 'until resumed') END,
            coalesce(NEW.paused_by, ''), NEW.actor);
END;
CREATE TRIGGER connection_limit_made AFTER INSERT ON connection_limit
BEGIN
    INSERT INTO limit_history (connection, what, was, becomes, reason, actor)
    SELECT NEW.name, 'concurrency', NULL, NEW.declared, reason, actor FROM store WHERE NEW.declared IS NOT NULL;
    INSERT INTO limit_history (connection, what, was, becomes, reason, actor)
    SELECT NEW.name, 'scale', NULL, NEW.scaled_to, reason, actor FROM store WHERE NEW.scaled_to IS NOT NULL;
END;
CREATE TRIGGER connection_limit_changed AFTER UPDATE ON connection_limit
BEGIN
    INSERT INTO limit_history (connection, what, was, becomes, reason, actor)
    SELECT NEW.name, 'concurrency', OLD.declared, NEW.declared, reason, actor FROM store
    WHERE NEW.declared IS NOT OLD.declared;
    INSERT INTO limit_history (connection, what, was, becomes, reason, actor)
    SELECT NEW.name, 'scale', OLD.scaled_to, NEW.scaled_to, reason, actor FROM store
    WHERE NEW.scaled_to IS NOT OLD.scaled_to;
END;
CREATE TRIGGER connection_limit_gone AFTER DELETE ON connection_limit
BEGIN
    INSERT INTO limit_history (connection, what, was, becomes, reason, actor)
    SELECT OLD.name, 'concurrency', OLD.declared, NULL, reason, actor FROM store WHERE OLD.declared IS NOT NULL;
    INSERT INTO limit_history (connection, what, was, becomes, reason, actor)
    SELECT OLD.name, 'scale', OLD.scaled_to, NULL, reason, actor FROM store WHERE OLD.scaled_to IS NOT NULL;
END;
