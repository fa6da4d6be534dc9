-- Locations below a project's root are relative to it, so that a project can be moved or copied with its data.

ALTER TABLE project ADD COLUMN root_below_home text;  -- the root from the project's folder; NULL: `root` does not move
ALTER TABLE project ADD COLUMN home_below_store text; -- NULL: only the file of a SQLite store moves with a project
ALTER TABLE project ADD COLUMN is_marked integer NOT NULL DEFAULT 0; -- 1: the root has this store's marker

UPDATE project SET root_below_home = CASE root WHEN home THEN '.' ELSE substr(root, length(home) + 2) END
WHERE root = home OR starts_with(root, home || '/');

UPDATE datastatus c
SET location = CASE WHEN starts_with(c.location, 'sqlite:///')
                    THEN 'sqlite:///' || substr(c.location, length(rtrim(p.root, '/')) + 12)
                    ELSE substr(c.location, length(rtrim(p.root, '/')) + 2) END
FROM project p
WHERE p.project = c.project AND c.location NOT LIKE '%..%'
  AND (starts_with(c.location, rtrim(p.root, '/') || '/')
       OR starts_with(c.location, 'sqlite:///' || rtrim(p.root, '/') || '/'));
UPDATE data_manifest c
SET location = CASE WHEN starts_with(c.location, 'sqlite:///')
                    THEN 'sqlite:///' || substr(c.location, length(rtrim(p.root, '/')) + 12)
                    ELSE substr(c.location, length(rtrim(p.root, '/')) + 2) END
FROM project p
WHERE p.project = c.project AND c.location NOT LIKE '%..%'
  AND (starts_with(c.location, rtrim(p.root, '/') || '/')
       OR starts_with(c.location, 'sqlite:///' || rtrim(p.root, '/') || '/'));

-- Every chunk with its whole location, where the store saw the project last.
CREATE VIEW chunk_location AS
SELECT c.project, c.datasetid, c.dataid, c.status, c.version,
       CASE WHEN c.location LIKE 'sqlite:///%' AND substr(c.location, 11, 1) <> '/'
            THEN 'sqlite:///' || rtrim(p.root, '/') || '/' || substr(c.location, 11)
            WHEN c.location LIKE '/%' OR c.location LIKE '%://%' THEN c.location
            WHEN c.location = '.' THEN p.root
            ELSE rtrim(p.root, '/') || '/' || c.location END AS location
FROM datastatus c LEFT JOIN project p ON p.project = c.project
WHERE c.locktype = 'OUT' AND c.reader = '';
