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
