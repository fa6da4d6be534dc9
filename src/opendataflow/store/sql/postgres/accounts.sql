-- Accounts on PostgreSQL: who may look and act, sessions, links, tokens, and what was done.

-- name: count_accounts
SELECT count(*) FROM account

-- name: find_account
SELECT username, role, password_hash, created_at, disabled_at FROM account WHERE username = %(username)s

-- name: add_account
INSERT INTO account (username, password_hash, role, created_at) VALUES (%(username)s, %(password_hash)s, %(role)s, from_now(%(now)s))
ON CONFLICT (username) DO NOTHING

-- name: add_session
INSERT INTO web_session (session_hash, username, csrf, created_at, seen_at, expires_at)
VALUES (%(session_hash)s, %(username)s, %(csrf)s, from_now(%(now)s), from_now(%(now)s), from_now(%(expires_at)s))

-- name: find_session
SELECT a.username, a.role, s.csrf, s.seen_at FROM web_session s JOIN account a ON a.username = s.username
WHERE s.session_hash = %(session_hash)s AND s.expires_at > from_now(%(now)s) AND a.disabled_at IS NULL

-- name: delete_session
DELETE FROM web_session WHERE session_hash = %(session_hash)s

-- name: find_token
SELECT a.username, a.role, t.scope, t.tokenid, t.last_used_at
FROM api_token t JOIN account a ON a.username = t.username
WHERE t.token_hash = %(token_hash)s AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > from_now(%(now)s))
  AND a.disabled_at IS NULL

-- name: add_token
INSERT INTO api_token (name, username, token_hash, scope, created_at, expires_at)
VALUES (%(name)s, %(username)s, %(token_hash)s, %(scope)s, from_now(%(now)s), from_now(%(expires_at)s))

-- name: record_action
INSERT INTO web_action (at, username, action, target, detail) VALUES (from_now(%(now)s), %(username)s, %(action)s, %(target)s, %(detail)s)
