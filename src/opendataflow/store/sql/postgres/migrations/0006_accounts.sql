-- Who may look and act over HTTP, and what each of them did. Secrets are kept as hashes only.

CREATE TABLE account (
    username      text COLLATE "C" PRIMARY KEY CHECK (username <> ''),
    password_hash text,                     -- argon2id; NULL: no password was chosen yet
    role          text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_at    timestamptz NOT NULL,
    disabled_at   timestamptz
);

CREATE TABLE web_session (
    session_hash text COLLATE "C" PRIMARY KEY, -- SHA-256 of what the browser holds
    username     text COLLATE "C" NOT NULL,
    address      text NOT NULL DEFAULT '',  -- where it signed in from, and with what
    agent        text NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL,
    seen_at      timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,       -- later with every use,
    ends_at      timestamptz NOT NULL        -- but never after this
);
CREATE INDEX web_session_of ON web_session (username);

CREATE TABLE login_link (
    link_hash  text COLLATE "C" PRIMARY KEY,   -- SHA-256; works once, to choose a password
    kind       text NOT NULL CHECK (kind IN ('first', 'new', 'reset')), -- first: while there is no admin
    username   text COLLATE "C" NOT NULL,      -- empty: whoever opens it chooses
    role       text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz
);

CREATE TABLE login_failure (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text COLLATE "C" NOT NULL,      -- SHA-256 of what is throttled: an account, an address, both, a browser
    expires_at timestamptz NOT NULL          -- when it is forgotten
);
CREATE INDEX login_failure_of ON login_failure (name, expires_at);
CREATE INDEX login_failure_old ON login_failure (expires_at);

CREATE TABLE login_device (
    device_hash text COLLATE "C" PRIMARY KEY,  -- SHA-256 of what a browser keeps that signed in before: others cannot lock it out
    username    text COLLATE "C" NOT NULL,
    expires_at  timestamptz NOT NULL
);
CREATE INDEX login_device_of ON login_device (username);

CREATE TABLE api_token (
    tokenid      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL,
    username     text COLLATE "C" NOT NULL,
    token_hash   text NOT NULL UNIQUE,      -- SHA-256
    scope        text NOT NULL CHECK (scope IN ('viewer', 'operator', 'admin')), -- at most its account's role
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz
);

CREATE INDEX api_token_of ON api_token (username);

CREATE TABLE web_action (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL,
    username text COLLATE "C" NOT NULL,
    action   text NOT NULL,
    target   text NOT NULL,                 -- what it was done to, for people
    detail   text NOT NULL DEFAULT '{}'     -- what was asked for, JSON, without secrets
);
CREATE INDEX web_action_of ON web_action (username, id);
