-- The three tables of the original OpenDataFlow, as they are; the search path names their schema.

-- name: datasets
SELECT datasetid, hostname, database, schemaname, tablename, username, encryptedpass
FROM dataset WHERE datasetid IS NOT NULL ORDER BY datasetid

-- name: items
-- An input or output of a job (itemtype IN or OUT), or an environment item (itemtype is its name).
SELECT jobid, itemtype, datasetid, itemvalue
FROM job WHERE jobid IS NOT NULL AND itemtype IS NOT NULL ORDER BY jobid, itemtype, datasetid

-- name: statuses
SELECT datasetid, jobid, dataid, locktype, status
FROM datastatus ORDER BY datasetid, dataid, jobid
