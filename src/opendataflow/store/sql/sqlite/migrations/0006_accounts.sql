-- Who may look and act over HTTP, and what each of them did. Secrets are kept as hashes only.

CREATE TABLE account (
    username      TEXT PRIMARY KEY CHECK (username <> ''),
    password_hash TEXT,                     -- argon2id; NULL: no password was chosen yet
    role          TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_at    TEXT NOT NULL,
    disabled_at   TEXT
) WITHOUT ROWID;

CREATE TABLE web_session (
    session_hash TEXT PRIMARY KEY,          -- SHA-256 of what the browser holds
    username     TEXT NOT NULL,
    csrf         TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    seen_at      TEXT NOT NULL,
    expires_at   TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE login_link (
    link_hash  TEXT PRIMARY KEY,            -- SHA-256; works once, to choose a password
    username   TEXT NOT NULL,
    role       TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    used_at    TEXT
) WITHOUT ROWID;

CREATE TABLE login_failure (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL,                     -- the account or the address that is throttled
    at   TEXT NOT NULL
);
CREATE INDEX login_failure_of ON login_failure (name, at);

CREATE TABLE api_token (
    tokenid      INTEGER PRIMARY KEY,
    name         TEXT NOT NULL,
    username     TEXT NOT NULL,
    token_hash   TEXT NOT NULL UNIQUE,      -- SHA-256
    scope        TEXT NOT NULL CHECK (scope IN ('viewer', 'operator', 'admin')), -- at most its account's role
    created_at   TEXT NOT NULL,
    expires_at   TEXT,
    last_used_at TEXT,
    revoked_at   TEXT
);

CREATE TABLE web_action (
    id       INTEGER PRIMARY KEY,
    at       TEXT NOT NULL,
    username TEXT NOT NULL,
    action   TEXT NOT NULL,
    target   TEXT NOT NULL,                 -- what it was done to, for people
    detail   TEXT NOT NULL DEFAULT '{}'     -- what was asked for, JSON, without secrets
);
