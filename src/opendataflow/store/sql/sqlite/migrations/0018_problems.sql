-- What arrived and was rejected, or changed after it was READY, is found without a look at all chunks.

CREATE INDEX datastatus_problem ON datastatus (project, datasetid, dataid) WHERE problem IS NOT NULL;
