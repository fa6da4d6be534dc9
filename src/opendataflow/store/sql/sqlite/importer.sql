-- What an import looks at before it declares chunks READY.

-- name: ready_chunks
SELECT project, datasetid, dataid FROM datastatus WHERE locktype = 'OUT' AND reader = '' AND status = 'READY'
