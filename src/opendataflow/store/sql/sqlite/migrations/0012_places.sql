-- Locations below a project's root are relative to it, so that a project can be moved or copied with its data.

ALTER TABLE project ADD COLUMN root_below_home TEXT;  -- the root from the project's folder; NULL: `root` does not move
ALTER TABLE project ADD COLUMN home_below_store TEXT; -- the folder from that of the store's file; NULL: they move apart
ALTER TABLE project ADD COLUMN is_marked INTEGER NOT NULL DEFAULT 0; -- 1: the root has this store's marker

UPDATE project SET root_below_home = CASE root WHEN home THEN '.' ELSE substr(root, length(home) + 2) END
WHERE root = home OR substr(root, 1, length(home) + 1) = home || '/';

UPDATE datastatus
SET location = (SELECT CASE WHEN substr(datastatus.location, 1, 10) = 'sqlite:///'
                       THEN 'sqlite:///' || substr(datastatus.location, length(rtrim(p.root, '/')) + 12)
                       ELSE substr(datastatus.location, length(rtrim(p.root, '/')) + 2) END
                FROM project p WHERE p.project = datastatus.project)
WHERE location NOT LIKE '%..%' AND EXISTS (
    SELECT 1 FROM project p
    WHERE p.project = datastatus.project
      AND (substr(location, 1, length(rtrim(p.root, '/')) + 1) = rtrim(p.root, '/') || '/'
           OR substr(location, 1, length(rtrim(p.root, '/')) + 11) = 'sqlite:///' || rtrim(p.root, '/') || '/'));
UPDATE data_manifest
SET location = (SELECT CASE WHEN substr(data_manifest.location, 1, 10) = 'sqlite:///'
                       THEN 'sqlite:///' || substr(data_manifest.location, length(rtrim(p.root, '/')) + 12)
                       ELSE substr(data_manifest.location, length(rtrim(p.root, '/')) + 2) END
                FROM project p WHERE p.project = data_manifest.project)
WHERE location NOT LIKE '%..%' AND EXISTS (
    SELECT 1 FROM project p
    WHERE p.project = data_manifest.project
      AND (substr(location, 1, length(rtrim(p.root, '/')) + 1) = rtrim(p.root, '/') || '/'
           OR substr(location, 1, length(rtrim(p.root, '/')) + 11) = 'sqlite:///' || rtrim(p.root, '/') || '/'));

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
