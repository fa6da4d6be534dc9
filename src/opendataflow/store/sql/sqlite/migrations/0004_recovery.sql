-- Quiet cascades: what is produced again has its readers run again only where it came out different from what they read.

-- 1: when this chunk is published, whoever read something else runs again, and what they make is followed in turn.
ALTER TABLE datastatus ADD COLUMN readers_follow INTEGER NOT NULL DEFAULT 0;

-- Every job on a dataid that reads a chunk, whichever way its input is mapped, and what its last run read of it: the
-- content part of a fingerprint (`<size and times>/<content>`; a `-` was never looked at and is NULL here), as the run
-- recorded it; where that record was cleaned away, of the last version before it.
CREATE VIEW chunk_reader AS
SELECT r.*,
       coalesce((SELECT nullif(substr(json_extract(i.value, '$[4]'), instr(json_extract(i.value, '$[4]'), '/') + 1), '-')
                 FROM run k, json_each(k.inputs) i
                 WHERE k.runid = r.runid AND json_extract(i.value, '$[0]') = r.dataset_project
                   AND json_extract(i.value, '$[1]') = r.datasetid AND json_extract(i.value, '$[2]') = r.chunk_dataid),
                (SELECT nullif(substr(m.fingerprint, instr(m.fingerprint, '/') + 1), '-') FROM data_manifest m
                 WHERE m.project = r.dataset_project AND m.datasetid = r.datasetid AND m.dataid = r.chunk_dataid
                   AND m.version < r.runid AND NOT EXISTS (SELECT 1 FROM run k WHERE k.runid = r.runid)
                 ORDER BY m.version DESC LIMIT 1)) AS content_read
FROM (SELECT l.dataset_project, l.datasetid, s.dataid AS chunk_dataid, s.project, s.jobid, s.dataid, s.status, s.runid
      FROM job_dataset l CROSS JOIN job_status s
      WHERE l.itemtype = 'IN' AND l.map = 'same' AND s.project = l.project AND s.jobid = l.jobid
      UNION ALL
      SELECT l.dataset_project, l.datasetid, 'full', s.project, s.jobid, s.dataid, s.status, s.runid
      FROM job_dataset l CROSS JOIN job_status s
      WHERE l.itemtype = 'IN' AND l.map = 'full' AND s.project = l.project AND s.jobid = l.jobid
      UNION ALL
      SELECT e.dataset_project, e.datasetid, e.dataid, s.project, s.jobid, s.dataid, s.status, s.runid
      FROM job_input e CROSS JOIN job_status s
      WHERE s.project = e.project AND s.jobid = e.jobid AND s.dataid = e.job_dataid) r;

-- Inserting into this view is how the publish of such a chunk calls what follows. Content that is not known is different.
CREATE VIEW chunk_followed AS SELECT '' AS project, '' AS datasetid, '' AS dataid, 0 AS version, '' AS content;
CREATE TRIGGER chunk_followed_by INSTEAD OF INSERT ON chunk_followed
BEGIN
    UPDATE datastatus SET readers_follow = 0
    WHERE project = NEW.project AND datasetid = NEW.datasetid AND dataid = NEW.dataid AND locktype = 'OUT' AND reader = '';
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    SELECT 'chunk', NEW.project, NEW.datasetid, NEW.dataid, 'READY', 'READY', NEW.version,
           (SELECT actor FROM store) || ': cascade: ' || count(CASE WHEN r.content_read = NEW.content THEN 1 END)
           || ' readers read the same and stay, '
           || (count(*) - count(CASE WHEN r.content_read = NEW.content THEN 1 END)) || ' follow'
    FROM chunk_reader r
    WHERE r.dataset_project = NEW.project AND r.datasetid = NEW.datasetid AND r.chunk_dataid = NEW.dataid
      AND r.status <> 'PENDING';
    UPDATE datastatus SET readers_follow = 1
    WHERE locktype = 'OUT' AND reader = '' AND (project, datasetid, dataid) IN
        (SELECT o.dataset_project, o.datasetid, r.dataid
         FROM chunk_reader r CROSS JOIN job_dataset o
         WHERE r.dataset_project = NEW.project AND r.datasetid = NEW.datasetid AND r.chunk_dataid = NEW.dataid
           AND NOT coalesce(r.content_read = NEW.content, 0)
           AND o.project = r.project AND o.jobid = r.jobid AND o.itemtype = 'OUT'
           AND EXISTS (SELECT 1 FROM job_dataset i
                       WHERE i.dataset_project = o.dataset_project AND i.datasetid = o.datasetid AND i.itemtype = 'IN'));
    -- Who looks at a reader's history sees why it runs again.
    UPDATE store SET actor = actor || ': cascade: ' || NEW.datasetid || '/' || NEW.dataid || ' came out different';
    UPDATE job_status SET status = 'RESUBMIT'
    WHERE status IN ('COMPLETE', 'FAILED', 'RUNNING') AND (project, jobid, dataid) IN
        (SELECT r.project, r.jobid, r.dataid FROM chunk_reader r
         WHERE r.dataset_project = NEW.project AND r.datasetid = NEW.datasetid AND r.chunk_dataid = NEW.dataid
           AND NOT coalesce(r.content_read = NEW.content, 0));
    UPDATE store
    SET actor = substr(actor, 1, length(actor)
                       - length(': cascade: ' || NEW.datasetid || '/' || NEW.dataid || ' came out different'));
END;

-- As before, and one comparison more.
DROP TRIGGER chunk_opens;
CREATE TRIGGER chunk_opens AFTER UPDATE OF status ON datastatus
WHEN NEW.status = 'READY' AND OLD.status <> 'READY' AND NEW.locktype = 'OUT'
     AND EXISTS (SELECT 1 FROM job_dataset
                 WHERE dataset_project = NEW.project AND datasetid = NEW.datasetid AND itemtype = 'IN')
BEGIN
    INSERT INTO chunk_opened VALUES (NEW.project, NEW.datasetid, NEW.dataid);
    INSERT INTO chunk_followed
    SELECT NEW.project, NEW.datasetid, NEW.dataid, NEW.version,
           nullif(substr(NEW.fingerprint, instr(NEW.fingerprint, '/') + 1), '-')
    WHERE NEW.readers_follow = 1;
END;
