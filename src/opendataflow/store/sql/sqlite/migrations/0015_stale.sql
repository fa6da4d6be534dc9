-- Stale is visible: what each dataid of a job was made from, and where that is older than what there is now.

-- What a run that published was made by: the digests of its code and of the checks of its outputs.
ALTER TABLE run ADD COLUMN code TEXT;
ALTER TABLE run ADD COLUMN checks TEXT;

-- What was published or declared and is not worked in yet: maintenance does that; a claim and a publish never read it.
CREATE TABLE stale_event (
    id            INTEGER PRIMARY KEY,
    kind          TEXT NOT NULL,            -- chunk: it has a new version; readers: compare who read it;
                                            -- dataid: compare this one; job: compare all of its dataids
    project       TEXT NOT NULL,
    name          TEXT NOT NULL,            -- of the dataset (chunk, readers) or of the job (dataid, job)
    dataid        TEXT NOT NULL DEFAULT '',
    after_project TEXT NOT NULL DEFAULT '', -- so far it is done
    after_jobid   TEXT NOT NULL DEFAULT '',
    after_dataid  TEXT NOT NULL DEFAULT ''
);

-- The run that made what a dataid has published, and with what code; NULL where that is not known.
CREATE TABLE made (
    project    TEXT NOT NULL,
    jobid      TEXT NOT NULL,
    dataid     TEXT NOT NULL,
    runid      INTEGER NOT NULL,
    code       TEXT,
    checks     TEXT,
    git_commit TEXT,
    PRIMARY KEY (project, jobid, dataid)
) WITHOUT ROWID;

-- The input chunks that it read: version and content (the second part of a fingerprint).
CREATE TABLE made_from (
    dataset_project TEXT NOT NULL,
    datasetid       TEXT NOT NULL,
    input_dataid    TEXT NOT NULL,
    project         TEXT NOT NULL,
    jobid           TEXT NOT NULL,
    dataid          TEXT NOT NULL,
    version         INTEGER,
    content         TEXT,
    PRIMARY KEY (dataset_project, datasetid, input_dataid, project, jobid, dataid)
) WITHOUT ROWID;
CREATE INDEX made_from_of ON made_from (project, jobid, dataid);

-- The code and checks of a job as they are now; with a run: as that run had them, where nobody else can tell.
CREATE TABLE job_code (
    project TEXT NOT NULL,
    jobid   TEXT NOT NULL,
    code    TEXT,
    checks  TEXT,
    runid   INTEGER,
    PRIMARY KEY (project, jobid)
) WITHOUT ROWID;

-- Dataids whose data is older than what it should be made from. Only these have a row.
CREATE TABLE stale (
    project  TEXT NOT NULL,
    jobid    TEXT NOT NULL,
    dataid   TEXT NOT NULL,
    by_input INTEGER NOT NULL, -- 1: an input has other content than was read
    by_code  INTEGER NOT NULL, -- 1: the code or definition of the job is another
    by_check INTEGER NOT NULL, -- 1: the checks of its outputs are others
    upstream INTEGER NOT NULL, -- 1: what makes one of its inputs is stale
    since    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    PRIMARY KEY (project, jobid, dataid)
) WITHOUT ROWID;

-- Here the history has what was published, in the order of the commits: no publish pays for it twice. The event 0 says up to
-- which row of the history (`dataid`) its chunks have become events.
INSERT INTO stale_event (id, kind, project, name, dataid) SELECT 0, 'upto', '', '', coalesce(max(id), 0) FROM history;

-- What was published before is worked in as well, from the records of its runs.
INSERT INTO stale_event (kind, project, name, dataid)
SELECT 'chunk', project, datasetid, dataid FROM datastatus
WHERE locktype = 'OUT' AND status = 'READY' AND version IS NOT NULL ORDER BY version;
