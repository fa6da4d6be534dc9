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
