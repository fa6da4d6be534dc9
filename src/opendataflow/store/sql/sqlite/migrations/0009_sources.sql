-- Sources: what people gave to datasets in this store beside project.yml, and how each last answered.

CREATE TABLE source_binding (
    project    TEXT NOT NULL,
    datasetid  TEXT NOT NULL,
    field      TEXT NOT NULL,                     -- as project.yml calls it: url, table, path, …
    value      TEXT NOT NULL,                     -- JSON; a credential is encrypted, as project.yml would hold it
    bound_by   TEXT NOT NULL,
    bound_at   TEXT NOT NULL,
    PRIMARY KEY (project, datasetid, field)
) WITHOUT ROWID;

CREATE TABLE source_test (
    project    TEXT NOT NULL,
    datasetid  TEXT NOT NULL,
    tested_at  TEXT NOT NULL,
    tested_by  TEXT NOT NULL,
    answered   INTEGER NOT NULL CHECK (answered IN (0, 1)),
    said       TEXT NOT NULL,                     -- in words, without secrets
    PRIMARY KEY (project, datasetid)
) WITHOUT ROWID;
