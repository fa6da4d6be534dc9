-- Sources: what people gave to datasets in this store beside project.yml, and how each last answered.

CREATE TABLE source_binding (
    project    text COLLATE "C" NOT NULL,
    datasetid  text COLLATE "C" NOT NULL,
    field      text COLLATE "C" NOT NULL,         -- as project.yml calls it: url, table, path, …
    value      text NOT NULL,                     -- JSON; a credential is encrypted, as project.yml would hold it
    bound_by   text NOT NULL,
    bound_at   timestamptz NOT NULL,
    PRIMARY KEY (project, datasetid, field)
);

CREATE TABLE source_test (
    project    text COLLATE "C" NOT NULL,
    datasetid  text COLLATE "C" NOT NULL,
    tested_at  timestamptz NOT NULL,
    tested_by  text NOT NULL,
    answered   integer NOT NULL CHECK (answered IN (0, 1)),
    said       text NOT NULL,                     -- in words, without secrets
    PRIMARY KEY (project, datasetid)
);
