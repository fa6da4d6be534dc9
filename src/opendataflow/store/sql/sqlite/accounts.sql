-- Accounts on SQLite: who may look and act, sessions, links, tokens, and what was done.

-- name: count_accounts
SELECT count(*) FROM account

-- name: find_account
SELECT username, role, password_hash, created_at, disabled_at FROM account WHERE username = :username

-- name: add_account
INSERT INTO account (username, password_hash, role, created_at) VALUES (:username, :password_hash, :role, :now)
ON CONFLICT (username) DO NOTHING

-- name: add_session
INSERT INTO web_session (session_hash, username, csrf, created_at, seen_at, expires_at)
VALUES (:session_hash, :username, :csrf, :now, :now, :expires_at)

-- name: find_session
SELECT a.username, a.role, s.csrf, s.seen_at FROM web_session s JOIN account a ON a.username = s.username
WHERE s.session_hash = :session_hash AND s.expires_at > :now AND a.disabled_at IS NULL

-- name: delete_session
DELETE FROM web_session WHERE session_hash = :session_hash

-- name: find_token
SELECT a.username, a.role, t.scope, t.tokenid, t.last_used_at
FROM api_token t JOIN account a ON a.username = t.username
WHERE t.token_hash = :token_hash AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > :now)
  AND a.disabled_at IS NULL

-- name: add_token
INSERT INTO api_token (name, username, token_hash, scope, created_at, expires_at)
VALUES (:name, :username, :token_hash, :scope, :now, :expires_at)

-- name: record_action
INSERT INTO web_action (at, username, action, target, detail) VALUES (:now, :username, :action, :target, :detail)
