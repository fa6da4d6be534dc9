-- Accounts on SQLite: who may look and act, sessions, links, tokens, and what was done.

-- name: hold_accounts
-- A transaction holds the whole file here.
SELECT 1

-- name: hold_logins
SELECT 1

-- name: sign
-- Each transaction signs by itself here.
SELECT :actor

-- name: has_admin
SELECT 1 FROM account WHERE role = 'admin' AND disabled_at IS NULL LIMIT 1

-- name: other_admins
SELECT count(*) FROM account WHERE role = 'admin' AND disabled_at IS NULL AND username <> :username

-- name: find_account
SELECT username, role, password_hash, created_at, disabled_at FROM account WHERE username = :username

-- name: accounts
SELECT a.username, a.role, a.created_at, a.disabled_at,
       (SELECT max(s.seen_at) FROM web_session s WHERE s.username = a.username) AS seen_at,
       (SELECT count(*) FROM web_session s WHERE s.username = a.username AND s.expires_at > :now),
       (SELECT count(*) FROM api_token t
        WHERE t.username = a.username AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > :now))
FROM account a WHERE a.username > :after ORDER BY a.username LIMIT :limit

-- name: add_account
INSERT INTO account (username, password_hash, role, created_at) VALUES (:username, :password_hash, :role, :now)
ON CONFLICT (username) DO NOTHING

-- name: set_password
UPDATE account SET password_hash = :password_hash WHERE username = :username AND disabled_at IS NULL

-- name: replace_password
-- Only where it is still the one that was proved.
UPDATE account SET password_hash = :password_hash
WHERE username = :username AND disabled_at IS NULL AND password_hash = :was

-- name: set_role
UPDATE account SET role = :role WHERE username = :username

-- name: disable
UPDATE account SET disabled_at = :now WHERE username = :username AND disabled_at IS NULL

-- name: enable
UPDATE account SET disabled_at = NULL WHERE username = :username AND disabled_at IS NOT NULL

-- Links -------------------------------------------------------------------------------------------------------------
-- name: add_link
INSERT INTO login_link (link_hash, kind, username, role, created_by, created_at, expires_at)
VALUES (:link_hash, :kind, :username, :role, :by, :now, :expires_at)

-- name: find_link
SELECT kind, username, role FROM login_link WHERE link_hash = :link_hash AND used_at IS NULL AND expires_at > :now

-- name: open_links
SELECT kind, username, role, created_by, created_at, expires_at FROM login_link
WHERE used_at IS NULL AND expires_at > :now ORDER BY created_at DESC

-- name: use_link
UPDATE login_link SET used_at = :now WHERE link_hash = :link_hash AND used_at IS NULL

-- name: void_links
DELETE FROM login_link WHERE used_at IS NULL AND username = :username

-- name: forget_links
DELETE FROM login_link WHERE expires_at < :before

-- Sessions ----------------------------------------------------------------------------------------------------------
-- name: add_session
INSERT INTO web_session (session_hash, username, address, agent, created_at, seen_at, expires_at, ends_at)
SELECT :session_hash, username, :address, :agent, :now, :now, :expires_at, :ends_at FROM account
WHERE username = :username AND disabled_at IS NULL AND (:password_hash IS NULL OR password_hash = :password_hash)

-- name: find_session
SELECT a.username, a.role, s.seen_at < :stale FROM web_session s JOIN account a ON a.username = s.username
WHERE s.session_hash = :session_hash AND s.expires_at > :now AND a.disabled_at IS NULL

-- name: touch_session
UPDATE web_session SET seen_at = :now, expires_at = min(ends_at, :expires_at)
WHERE session_hash = :session_hash AND seen_at < :stale AND expires_at > :now

-- name: sessions
SELECT session_hash, address, agent, created_at, seen_at, expires_at FROM web_session
WHERE username = :username AND expires_at > :now ORDER BY seen_at DESC, session_hash

-- name: delete_session
DELETE FROM web_session WHERE session_hash = :session_hash

-- name: delete_sessions
DELETE FROM web_session WHERE username = :username AND session_hash <> :keep

-- name: end_session
DELETE FROM web_session WHERE username = :username AND substr(session_hash, 1, 16) = :id

-- name: forget_sessions
DELETE FROM web_session WHERE expires_at < :now

-- Throttling --------------------------------------------------------------------------------------------------------
-- name: failures
SELECT count(*), (julianday(min(expires_at)) - julianday(:now)) * 86400.0 FROM login_failure
WHERE name = :name AND expires_at > :now

-- name: add_failure
INSERT INTO login_failure (name, expires_at) VALUES (:name, :expires_at)

-- name: clear_failures
DELETE FROM login_failure WHERE name = :name

-- name: take_back_failure
DELETE FROM login_failure
WHERE id = (SELECT id FROM login_failure WHERE name = :name ORDER BY expires_at DESC LIMIT 1)

-- name: forget_failures
DELETE FROM login_failure WHERE expires_at <= :now

-- name: find_device
SELECT 1 FROM login_device WHERE device_hash = :device_hash AND username = :username AND expires_at > :now

-- name: add_device
INSERT INTO login_device (device_hash, username, expires_at) VALUES (:device_hash, :username, :expires_at)

-- name: forget_device
DELETE FROM login_device WHERE device_hash = :device_hash OR expires_at <= :now

-- name: delete_devices
DELETE FROM login_device WHERE username = :username

-- Tokens ------------------------------------------------------------------------------------------------------------
-- name: find_token
SELECT a.username, a.role, t.scope, t.tokenid, t.last_used_at IS NULL OR t.last_used_at < :stale
FROM api_token t JOIN account a ON a.username = t.username
WHERE t.token_hash = :token_hash AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > :now)
  AND a.disabled_at IS NULL

-- name: touch_token
UPDATE api_token SET last_used_at = :now WHERE tokenid = :tokenid

-- name: add_token
INSERT INTO api_token (name, username, token_hash, scope, created_at, expires_at)
SELECT :name, username, :token_hash, :scope, :now, :expires_at FROM account
WHERE username = :username AND disabled_at IS NULL

-- name: tokens
SELECT t.tokenid, t.name, t.username, t.scope, t.created_at, t.expires_at, t.last_used_at, t.revoked_at,
       t.expires_at IS NOT NULL AND t.expires_at <= :now
FROM api_token t
WHERE (:username IS NULL OR t.username = :username) AND (:all = 1 OR t.revoked_at IS NULL) AND t.tokenid > :after
ORDER BY t.tokenid LIMIT :limit

-- name: find_token_of
SELECT username, name FROM api_token WHERE tokenid = :tokenid AND revoked_at IS NULL

-- name: revoke_token
UPDATE api_token SET revoked_at = :now WHERE tokenid = :tokenid AND revoked_at IS NULL

-- name: revoke_tokens_of
UPDATE api_token SET revoked_at = :now WHERE username = :username AND revoked_at IS NULL

-- What was done -----------------------------------------------------------------------------------------------------
-- name: record_action
INSERT INTO web_action (at, username, action, target, detail) VALUES (:now, :username, :action, :target, :detail)

-- name: actions
SELECT id, at, username, action, target, detail FROM web_action WHERE id < :before ORDER BY id DESC LIMIT :limit

-- name: actions_of
SELECT id, at, username, action, target, detail FROM web_action
WHERE username = :username AND id < :before ORDER BY id DESC LIMIT :limit
