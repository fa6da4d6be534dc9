-- Schedules that were set on this server, what somebody must be told, and what was told.

-- Schedules
-- What a person set instead of what project.yml declares. Such a job goes by a clock of its own, the dataset
-- `every slot of JOB`: changing it moves nobody else, and slots that were opened before stay slots.
CREATE TABLE schedule (
    project  TEXT NOT NULL,
    jobid    TEXT NOT NULL,
    clock    TEXT,                    -- every 30m, cron 0 3 * * * @Europe/Berlin; NULL: as declared, once more
    declared TEXT NOT NULL,           -- JSON: the job's clock, links and partitions by project.yml
    set_by   TEXT NOT NULL,
    set_at   TEXT NOT NULL,
    reason   TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (project, jobid)
) WITHOUT ROWID;
