-- What people ask of runs that are under way, and of workers.

-- A live run that its owner is to end. The owner looks here while the run goes on; who ends first is decided by the run's own
-- end, which there is only one of. Rows of runs that have ended mean nothing and are removed by the next who asks.
CREATE TABLE abort_request (
    runid    INTEGER PRIMARY KEY,
    asked_by TEXT NOT NULL,
    asked_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- What a child process does for a page, such as validating transformations, and what it said.
CREATE TABLE request (
    id        INTEGER PRIMARY KEY,
    kind      TEXT NOT NULL,
    project   TEXT NOT NULL,
    name      TEXT NOT NULL DEFAULT '',     -- a job, or empty: all of the project
    status    TEXT NOT NULL DEFAULT 'RUNNING' CHECK (status IN ('RUNNING', 'COMPLETE', 'FAILED')),
    asked_by  TEXT NOT NULL,
    asked_at  TEXT NOT NULL,
    ended_at  TEXT,
    exit_code INTEGER,
    output    TEXT NOT NULL DEFAULT ''
);
