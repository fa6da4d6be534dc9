-- Credentials of a project's datasets on SQLite.

-- name: credentials_of
SELECT datasetid, encryptedpass FROM dataset
WHERE project = :project AND encryptedpass IS NOT NULL AND encryptedpass <> '' ORDER BY datasetid

-- name: set_credential
-- Only if it is still the one that was read.
UPDATE dataset SET encryptedpass = :new, modified = :now
WHERE project = :project AND datasetid = :datasetid AND encryptedpass = :old
