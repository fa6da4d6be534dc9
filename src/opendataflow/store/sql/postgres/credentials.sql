-- Credentials of a project's datasets on PostgreSQL.

-- name: credentials_of
SELECT datasetid, encryptedpass FROM dataset
WHERE project = %(project)s AND encryptedpass IS NOT NULL AND encryptedpass <> '' ORDER BY datasetid

-- name: set_credential
-- Only if it is still the one that was read.
UPDATE dataset SET encryptedpass = %(new)s, modified = from_now(%(now)s)
WHERE project = %(project)s AND datasetid = %(datasetid)s AND encryptedpass = %(old)s

-- name: bound_credentials_of
SELECT datasetid, field, value FROM source_binding
WHERE project = %(project)s AND field IN ('password', 'encryptedpass') ORDER BY datasetid, field

-- name: set_bound_credential
-- Who bound it, and when, stays: the credential is the same.
UPDATE source_binding SET value = %(new)s
WHERE project = %(project)s AND datasetid = %(datasetid)s AND field = %(field)s AND value = %(old)s
