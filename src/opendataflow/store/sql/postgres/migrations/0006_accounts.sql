-- Who may look and act over HTTP, and what each of them did. Secrets are kept as hashes only.

CREATE TABLE account (
    username      text COLLATE "C" PRIMARY KEY CHECK (username <> ''),
    password_hash text,                     -- argon2id; NULL: no password was chosen yet
    role          text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_at    timestamptz NOT NULL,
    disabled_at   timestamptz
);

CREATE TABLE web_session (
    session_hash text COLLATE "C" PRIMARY KEY,          -- SHA-256 of what the browser holds
    username     text COLLATE "C" NOT NULL,
    csrf         text NOT NULL,
    created_at   timestamptz NOT NULL,
    seen_at      timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL
);

CREATE TABLE login_link (
    link_hash  text COLLATE "C" PRIMARY KEY,            -- SHA-256; works once, to choose a password
    username   text COLLATE "C" NOT NULL,
    role       text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz
);

CREATE TABLE login_failure (
    id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,                     -- the account or the address that is throttled
    at   timestamptz NOT NULL
);
CREATE INDEX login_failure_of ON login_failure (name, at);

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

CREATE TABLE web_action (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL,
    username text COLLATE "C" NOT NULL,
    action   text NOT NULL,
    target   text NOT NULL,                 -- what it was done to, for people
    detail   text NOT NULL DEFAULT '{}'     -- what was asked for, JSON, without secrets
);
