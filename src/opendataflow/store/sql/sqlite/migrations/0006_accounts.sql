-- Who may look and act over HTTP, and what each of them did. Secrets are kept as hashes only.

CREATE TABLE account (
    username      TEXT PRIMARY KEY CHECK (username <> ''),
    password_hash TEXT,                     -- argon2id; NULL: no password was chosen yet
    role          TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_at    TEXT NOT NULL,
    disabled_at   TEXT
) WITHOUT ROWID;

CREATE TABLE web_session (
    session_hash TEXT PRIMARY KEY, -- SHA-256 of what the browser holds
    username     TEXT NOT NULL,
    address      TEXT NOT NULL DEFAULT '',  -- where it signed in from, and with what
    agent        TEXT NOT NULL DEFAULT '',
    created_at   TEXT NOT NULL,
    seen_at      TEXT NOT NULL,
    expires_at   TEXT NOT NULL,       -- later with every use,
    ends_at      TEXT NOT NULL        -- but never after this
) WITHOUT ROWID;
CREATE INDEX web_session_of ON web_session (username);

CREATE TABLE login_link (
    link_hash  TEXT PRIMARY KEY,   -- SHA-256; works once, to choose a password
    kind       TEXT NOT NULL CHECK (kind IN ('first', 'new', 'reset')), -- first: while there is no admin
    username   TEXT NOT NULL,      -- empty: whoever opens it chooses
    role       TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    used_at    TEXT
) WITHOUT ROWID;

CREATE TABLE login_failure (
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,      -- SHA-256 of what is throttled: an account, an address, both, a browser
    expires_at TEXT NOT NULL          -- when it is forgotten
);
CREATE INDEX login_failure_of ON login_failure (name, expires_at);
CREATE INDEX login_failure_old ON login_failure (expires_at);

CREATE TABLE login_device (
    device_hash TEXT PRIMARY KEY,  -- SHA-256 of what a browser keeps that signed in before: others cannot lock it out
    username    TEXT NOT NULL,
    expires_at  TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX login_device_of ON login_device (username);

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

CREATE INDEX api_token_of ON api_token (username);

CREATE TABLE web_action (
    id       INTEGER PRIMARY KEY,
    at       TEXT NOT NULL,
    username TEXT NOT NULL,
    action   TEXT NOT NULL,
    target   TEXT NOT NULL,                 -- what it was done to, for people
    detail   TEXT NOT NULL DEFAULT '{}'     -- what was asked for, JSON, without secrets
);
CREATE INDEX web_action_of ON web_action (username, id);
