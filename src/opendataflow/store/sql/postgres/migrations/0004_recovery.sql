-- Quiet cascades: what is produced again has its readers run again only where it came out different from what they read.

-- 1: when this chunk is published, whoever read something else runs again, and what they make is followed in turn.
ALTER TABLE datastatus ADD COLUMN readers_follow integer NOT NULL DEFAULT 0;

-- A fingerprint is `<size and times>/<content>`; a `-` was never looked at.
CREATE FUNCTION content_of(fingerprint text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT nullif(substr(fingerprint, strpos(fingerprint, '/') + 1), '-')
$$;

-- Every job on a dataid that reads a chunk, whichever way its input is mapped, and what its last run read of it: the
-- content part of a fingerprint, as the run recorded it; where that record was cleaned away, of the last version before it.
CREATE VIEW chunk_reader AS
SELECT r.*,
       coalesce((SELECT content_of(i.value->>4) FROM run k CROSS JOIN json_array_elements(k.inputs) i
                 WHERE k.runid = r.runid AND i.value->>0 = r.dataset_project AND i.value->>1 = r.datasetid
                   AND i.value->>2 = r.chunk_dataid),
                (SELECT content_of(m.fingerprint) FROM data_manifest m
                 WHERE m.project = r.dataset_project AND m.datasetid = r.datasetid AND m.dataid = r.chunk_dataid
                   AND m.version < r.runid AND NOT EXISTS (SELECT 1 FROM run k WHERE k.runid = r.runid)
                 ORDER BY m.version DESC LIMIT 1)) AS content_read
FROM (SELECT l.dataset_project, l.datasetid, s.dataid AS chunk_dataid, s.project, s.jobid, s.dataid, s.status, s.runid
      FROM job_dataset l JOIN job_status s ON s.project = l.project AND s.jobid = l.jobid
      WHERE l.itemtype = 'IN' AND l.map = 'same'
      UNION ALL
      SELECT l.dataset_project, l.datasetid, 'full', s.project, s.jobid, s.dataid, s.status, s.runid
      FROM job_dataset l JOIN job_status s ON s.project = l.project AND s.jobid = l.jobid
      WHERE l.itemtype = 'IN' AND l.map = 'full'
      UNION ALL
      SELECT e.dataset_project, e.datasetid, e.dataid, s.project, s.jobid, s.dataid, s.status, s.runid
      FROM job_input e JOIN job_status s ON s.project = e.project AND s.jobid = e.jobid AND s.dataid = e.job_dataid) r;

-- Content that is not known is different. The readers are taken in one order by everybody.
CREATE FUNCTION have_readers_follow(c datastatus) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    me text := coalesce(current_setting('dataflow.actor', true), '');
    published text := content_of(c.fingerprint);
    r record;
    stay integer := 0;
    follow integer := 0;
BEGIN
    UPDATE datastatus d SET readers_follow = 0
    WHERE d.project = c.project AND d.datasetid = c.datasetid AND d.dataid = c.dataid AND d.locktype = 'OUT'
      AND d.reader = '';
    -- Who looks at a reader's history sees why it runs again.
    PERFORM set_config('dataflow.actor',
                       format('%s: cascade: %s/%s came out different', current_actor(), c.datasetid, c.dataid), true);
    FOR r IN SELECT v.project, v.jobid, v.dataid, v.status, v.content_read IS NOT DISTINCT FROM published
                    AND published IS NOT NULL AS is_same
             FROM chunk_reader v
             WHERE v.dataset_project = c.project AND v.datasetid = c.datasetid AND v.chunk_dataid = c.dataid
             ORDER BY v.project, v.jobid, v.dataid LOOP
        stay := stay + (r.is_same AND r.status <> 'PENDING')::integer;
        CONTINUE WHEN r.is_same;
        follow := follow + (r.status <> 'PENDING')::integer;
        UPDATE job_status s SET status = 'RESUBMIT'
        WHERE s.project = r.project AND s.jobid = r.jobid AND s.dataid = r.dataid
          AND s.status IN ('COMPLETE', 'FAILED', 'RUNNING');
        UPDATE datastatus d SET readers_follow = 1
        FROM job_dataset o
        WHERE o.project = r.project AND o.jobid = r.jobid AND o.itemtype = 'OUT'
          AND EXISTS (SELECT 1 FROM job_dataset i
                      WHERE i.dataset_project = o.dataset_project AND i.datasetid = o.datasetid AND i.itemtype = 'IN')
          AND d.project = o.dataset_project AND d.datasetid = o.datasetid AND d.dataid = r.dataid
          AND d.locktype = 'OUT' AND d.reader = '';
    END LOOP;
    PERFORM set_config('dataflow.actor', me, true);
    INSERT INTO history (kind, project, name, dataid, old_status, new_status, runid, actor)
    VALUES ('chunk', c.project, c.datasetid, c.dataid, 'READY', 'READY', c.version,
            format('%s: cascade: %s readers read the same and stay, %s follow', current_actor(), stay, follow));
END $$;

-- As before, and one comparison more.
CREATE OR REPLACE FUNCTION chunk_opens(c datastatus) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    by_same boolean;
    by_full boolean;
    by_map boolean;
    by_clock boolean;
BEGIN
    SELECT bool_or(l.map = 'same'), bool_or(l.map = 'full'), bool_or(l.map NOT IN ('same', 'full')), bool_or(j.clocked = 1)
    INTO by_same, by_full, by_map, by_clock
    FROM job_dataset l JOIN job j ON j.project = l.project AND j.jobid = l.jobid
    WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'IN';
    IF by_clock THEN
        by_clock := EXISTS (SELECT 1 FROM dataset d
                            WHERE d.project = c.project AND d.datasetid = c.datasetid AND d.clock IS NOT NULL);
        IF NOT by_clock THEN
            UPDATE job_status SET waiting = waiting - 1
            WHERE dataid = c.dataid AND (project, jobid) IN
                (SELECT l.project, l.jobid FROM job_dataset l JOIN job j ON j.project = l.project AND j.jobid = l.jobid
                 WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'IN'
                   AND l.map = 'same' AND j.clocked = 1);
        END IF;
    END IF;
    IF by_same THEN
        INSERT INTO job_status (project, jobid, dataid, waiting, unmapped)
        SELECT l.project, l.jobid, c.dataid, j.same_inputs - 1, (j.mapped_inputs > 0)::integer
        FROM job_dataset l JOIN job j ON j.project = l.project AND j.jobid = l.jobid
        WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'IN' AND l.map = 'same'
          AND (j.clocked = 0 OR by_clock)
        ORDER BY l.project, l.jobid
        ON CONFLICT (project, jobid, dataid) DO UPDATE SET waiting = job_status.waiting - 1;
    END IF;
    IF by_full AND c.dataid = 'full' THEN
        UPDATE job SET shared_waiting = shared_waiting - 1
        WHERE (project, jobid) IN
            (SELECT l.project, l.jobid FROM job_dataset l
             WHERE l.dataset_project = c.project AND l.datasetid = c.datasetid AND l.itemtype = 'IN' AND l.map = 'full');
    END IF;
    IF by_map THEN
        PERFORM move_mapped(c, -1);
    END IF;
    IF c.readers_follow = 1 THEN
        PERFORM have_readers_follow(c);
    END IF;
END $$;
