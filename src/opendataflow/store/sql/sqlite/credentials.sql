-- Credentials of a project's datasets on SQLite.

-- name: credentials_of
SELECT datasetid, encryptedpass FROM dataset
WHERE project = :project AND encryptedpass IS NOT NULL AND encryptedpass <> '' ORDER BY datasetid

-- name: set_credential
-- Only if it is still the one that was read.
UPDATE dataset SET encryptedpass = :new, modified = :now
WHERE project = :project AND datasetid = :datasetid AND encryptedpass = :old

-- name: bound_credentials_of
SELECT datasetid, field, value FROM source_binding
WHERE project = :project AND field IN ('password', 'encryptedpass') ORDER BY datasetid, field

-- name: set_bound_credential
-- Who bound it, and when, stays: the credential is the same.
UPDATE source_binding SET value = :new
WHERE project = :project AND datasetid = :datasetid AND field = :field AND value = :old
