-- Accounts on PostgreSQL: who may look and act, sessions, links, tokens, and what was done.

-- name: hold_accounts
-- Whoever changes accounts waits here for the other; who reads does not.
LOCK TABLE account IN SHARE ROW EXCLUSIVE MODE

-- name: hold_logins
LOCK TABLE login_failure IN SHARE ROW EXCLUSIVE MODE

-- name: sign
SELECT set_config('dataflow.actor', %(actor)s, false)

-- name: has_admin
SELECT 1 FROM account WHERE role = 'admin' AND disabled_at IS NULL LIMIT 1

-- name: other_admins
SELECT count(*) FROM account WHERE role = 'admin' AND disabled_at IS NULL AND username <> %(username)s

-- name: find_account
SELECT username, role, password_hash, created_at, disabled_at FROM account WHERE username = %(username)s

-- name: accounts
SELECT a.username, a.role, a.created_at, a.disabled_at,
       (SELECT max(s.seen_at) FROM web_session s WHERE s.username = a.username) AS seen_at,
       (SELECT count(*) FROM web_session s WHERE s.username = a.username AND s.expires_at > from_now(%(now)s)),
       (SELECT count(*) FROM api_token t
        WHERE t.username = a.username AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > from_now(%(now)s)))
FROM account a WHERE a.username > %(after)s ORDER BY a.username LIMIT %(limit)s

-- name: add_account
INSERT INTO account (username, password_hash, role, created_at) VALUES (%(username)s, %(password_hash)s, %(role)s, from_now(%(now)s))
ON CONFLICT (username) DO NOTHING

-- name: set_password
UPDATE account SET password_hash = %(password_hash)s WHERE username = %(username)s AND disabled_at IS NULL

-- name: replace_password
-- Only where it is still the one that was proved.
UPDATE account SET password_hash = %(password_hash)s
WHERE username = %(username)s AND disabled_at IS NULL AND password_hash = %(was)s

-- name: set_role
UPDATE account SET role = %(role)s WHERE username = %(username)s

-- name: disable
UPDATE account SET disabled_at = from_now(%(now)s) WHERE username = %(username)s AND disabled_at IS NULL

-- name: enable
UPDATE account SET disabled_at = NULL WHERE username = %(username)s AND disabled_at IS NOT NULL

-- Links -------------------------------------------------------------------------------------------------------------
-- name: add_link
INSERT INTO login_link (link_hash, kind, username, role, created_by, created_at, expires_at)
VALUES (%(link_hash)s, %(kind)s, %(username)s, %(role)s, %(by)s, from_now(%(now)s), from_now(%(expires_at)s))

-- name: find_link
SELECT kind, username, role FROM login_link WHERE link_hash = %(link_hash)s AND used_at IS NULL AND expires_at > from_now(%(now)s)

-- name: open_links
SELECT kind, username, role, created_by, created_at, expires_at FROM login_link
WHERE used_at IS NULL AND expires_at > from_now(%(now)s) ORDER BY created_at DESC

-- name: use_link
UPDATE login_link SET used_at = from_now(%(now)s) WHERE link_hash = %(link_hash)s AND used_at IS NULL

-- name: void_links
DELETE FROM login_link WHERE used_at IS NULL AND username = %(username)s

-- name: forget_links
DELETE FROM login_link WHERE expires_at < from_now(%(before)s)

-- Sessions ----------------------------------------------------------------------------------------------------------
-- name: add_session
INSERT INTO web_session (session_hash, username, address, agent, created_at, seen_at, expires_at, ends_at)
SELECT %(session_hash)s, username, %(address)s, %(agent)s, from_now(%(now)s), from_now(%(now)s), from_now(%(expires_at)s), from_now(%(ends_at)s) FROM account
WHERE username = %(username)s AND disabled_at IS NULL AND (%(password_hash)s::text IS NULL OR password_hash = %(password_hash)s)

-- name: find_session
SELECT a.username, a.role, s.seen_at < from_now(%(stale)s) FROM web_session s JOIN account a ON a.username = s.username
WHERE s.session_hash = %(session_hash)s AND s.expires_at > from_now(%(now)s) AND a.disabled_at IS NULL

-- name: touch_session
UPDATE web_session SET seen_at = from_now(%(now)s), expires_at = least(ends_at, from_now(%(expires_at)s))
WHERE session_hash = %(session_hash)s AND seen_at < from_now(%(stale)s) AND expires_at > from_now(%(now)s)

-- name: sessions
SELECT session_hash, address, agent, created_at, seen_at, expires_at FROM web_session
WHERE username = %(username)s AND expires_at > from_now(%(now)s) ORDER BY seen_at DESC, session_hash

-- name: delete_session
DELETE FROM web_session WHERE session_hash = %(session_hash)s

-- name: delete_sessions
DELETE FROM web_session WHERE username = %(username)s AND session_hash <> %(keep)s

-- name: end_session
DELETE FROM web_session WHERE username = %(username)s AND substr(session_hash, 1, 16) = %(id)s

-- name: forget_sessions
DELETE FROM web_session WHERE expires_at < from_now(%(now)s)

-- Throttling --------------------------------------------------------------------------------------------------------
-- name: failures
SELECT count(*), extract(epoch FROM min(expires_at) - from_now(%(now)s))::double precision FROM login_failure
WHERE name = %(name)s AND expires_at > from_now(%(now)s)

-- name: add_failure
INSERT INTO login_failure (name, expires_at) VALUES (%(name)s, from_now(%(expires_at)s))

-- name: clear_failures
DELETE FROM login_failure WHERE name = %(name)s

-- name: take_back_failure
DELETE FROM login_failure
WHERE id = (SELECT id FROM login_failure WHERE name = %(name)s ORDER BY expires_at DESC LIMIT 1)

-- name: forget_failures
DELETE FROM login_failure WHERE expires_at <= from_now(%(now)s)

-- name: find_device
SELECT 1 FROM login_device WHERE device_hash = %(device_hash)s AND username = %(username)s AND expires_at > from_now(%(now)s)

-- name: add_device
INSERT INTO login_device (device_hash, username, expires_at) VALUES (%(device_hash)s, %(username)s, from_now(%(expires_at)s))

-- name: forget_device
DELETE FROM login_device WHERE device_hash = %(device_hash)s OR expires_at <= from_now(%(now)s)

-- name: delete_devices
DELETE FROM login_device WHERE username = %(username)s

-- Tokens ------------------------------------------------------------------------------------------------------------
-- name: find_token
SELECT a.username, a.role, t.scope, t.tokenid, t.last_used_at IS NULL OR t.last_used_at < from_now(%(stale)s)
FROM api_token t JOIN account a ON a.username = t.username
WHERE t.token_hash = %(token_hash)s AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > from_now(%(now)s))
  AND a.disabled_at IS NULL

-- name: touch_token
UPDATE api_token SET last_used_at = from_now(%(now)s) WHERE tokenid = %(tokenid)s

-- name: add_token
INSERT INTO api_token (name, username, token_hash, scope, created_at, expires_at)
SELECT %(name)s, username, %(token_hash)s, %(scope)s, from_now(%(now)s), from_now(%(expires_at)s) FROM account
WHERE username = %(username)s AND disabled_at IS NULL

-- name: tokens
SELECT t.tokenid, t.name, t.username, t.scope, t.created_at, t.expires_at, t.last_used_at, t.revoked_at,
       t.expires_at IS NOT NULL AND t.expires_at <= from_now(%(now)s)
FROM api_token t
WHERE (%(username)s::text IS NULL OR t.username = %(username)s) AND (%(all)s = 1 OR t.revoked_at IS NULL) AND t.tokenid > %(after)s
ORDER BY t.tokenid LIMIT %(limit)s

-- name: find_token_of
SELECT username, name FROM api_token WHERE tokenid = %(tokenid)s AND revoked_at IS NULL

-- name: revoke_token
UPDATE api_token SET revoked_at = from_now(%(now)s) WHERE tokenid = %(tokenid)s AND revoked_at IS NULL

-- name: revoke_tokens_of
UPDATE api_token SET revoked_at = from_now(%(now)s) WHERE username = %(username)s AND revoked_at IS NULL

-- What was done -----------------------------------------------------------------------------------------------------
-- name: record_action
INSERT INTO web_action (at, username, action, target, detail) VALUES (from_now(%(now)s), %(username)s, %(action)s, %(target)s, %(detail)s)

-- name: actions
SELECT id, at, username, action, target, detail FROM web_action WHERE id < %(before)s ORDER BY id DESC LIMIT %(limit)s

-- name: actions_of
SELECT id, at, username, action, target, detail FROM web_action
WHERE username = %(username)s AND id < %(before)s ORDER BY id DESC LIMIT %(limit)s
