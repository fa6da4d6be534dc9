-- Stale is visible: what each dataid of a job was made from, and where that is older than what there is now.

-- What a run that published was made by: the digests of its code and of the checks of its outputs.
ALTER TABLE run ADD COLUMN code TEXT;
ALTER TABLE run ADD COLUMN checks TEXT;

-- Appended when a chunk is published or declared, and worked in by maintenance: a claim and a publish never read it.
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

-- As before, and the event.
DROP TRIGGER chunk_history_insert;
CREATE TRIGGER chunk_history_insert AFTER INSERT ON datastatus WHEN NEW.locktype = 'OUT'
BEGIN
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    VALUES ('chunk', NEW.project, NEW.datasetid, NEW.dataid, NULL, NEW.status, NEW.version, (SELECT actor FROM store));
    INSERT INTO stale_event (kind, project, name, dataid)
    SELECT 'chunk', NEW.project, NEW.datasetid, NEW.dataid WHERE NEW.status = 'READY';
END;
DROP TRIGGER chunk_history_update;
CREATE TRIGGER chunk_history_update AFTER UPDATE OF status ON datastatus
WHEN NEW.locktype = 'OUT' AND (NEW.status <> OLD.status OR NEW.version IS NOT OLD.version)
BEGIN
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    VALUES ('chunk', NEW.project, NEW.datasetid, NEW.dataid, OLD.status, NEW.status, NEW.version,
            (SELECT actor FROM store));
    INSERT INTO stale_event (kind, project, name, dataid)
    SELECT 'chunk', NEW.project, NEW.datasetid, NEW.dataid WHERE NEW.status = 'READY';
END;

-- What was published before is worked in as well, from the records of its runs.
INSERT INTO stale_event (kind, project, name, dataid)
SELECT 'chunk', project, datasetid, dataid FROM datastatus
WHERE locktype = 'OUT' AND status = 'READY' AND version IS NOT NULL ORDER BY version;
