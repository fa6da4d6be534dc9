-- Alerts on SQLite: what was looked at, what somebody must be told, and the messages that tell it.

-- name: watch
-- How far the last look came, where the history ends, and how many seconds are left until the next look, until the next
-- message is due, and since slots were looked at.
SELECT w.history_upto, coalesce((SELECT max(id) FROM history), 0),
       (julianday(w.next_look_at) - julianday(:now)) * 86400.0, (julianday(:now) - julianday(w.late_upto)) * 86400.0,
       (SELECT (julianday(min(CASE state WHEN 'SENDING' THEN sender_until ELSE due_at END)) - julianday(:now)) * 86400.0
        FROM alert_message INDEXED BY alert_message_due WHERE state IN ('GATHERING', 'SENDING', 'WAITING'))
FROM alert_watch w

-- name: begin_watch
INSERT INTO alert_watch (one, history_upto, next_look_at, late_upto)
SELECT 1, coalesce(max(id), 0), :now, :now FROM history WHERE true ON CONFLICT (one) DO NOTHING

-- name: take_look
UPDATE alert_watch SET next_look_at = :next WHERE one = 1 AND next_look_at <= :now

-- name: history_end
SELECT coalesce(max(id), 0) FROM history

-- name: move_watch
-- Whoever was overtaken by another look changes nothing.
UPDATE alert_watch SET history_upto = :upto, late_upto = CASE WHEN :looked_late THEN :late ELSE late_upto END
WHERE one = 1 AND history_upto = :was

-- name: notified_jobs
SELECT project, jobid, definition, partitions,
       paused_by IS NOT NULL AND (paused_until IS NULL OR paused_until > :now)
FROM job WHERE definition LIKE '%"notify": {%' ORDER BY project, jobid

-- What happened -----------------------------------------------------------------------------------------------------
-- name: newly_failed
-- Of the changes in between: what is FAILED now, with no retry left.
SELECT h.id, s.project, s.jobid, s.dataid, s.runid, coalesce(r.message, '')
FROM history h CROSS JOIN job_status s LEFT JOIN run r ON r.runid = s.runid
WHERE h.id > :after AND h.id <= :upto AND h.kind = 'job' AND h.new_status = 'FAILED'
  AND s.project = h.project AND s.jobid = h.name AND s.dataid = h.dataid
  AND s.status = 'FAILED' AND s.parked_until IS NULL
ORDER BY h.id LIMIT :limit

-- name: last_complete
-- How long the last run of each job took that ended well in between.
SELECT r.project, r.jobid, (julianday(r.ended_at) - julianday(r.claimed_at)) * 86400.0
FROM (SELECT max(runid) AS runid FROM history
      WHERE id > :after AND id <= :upto AND kind = 'job' AND new_status = 'COMPLETE' GROUP BY project, name) h
     CROSS JOIN run r
WHERE r.runid = h.runid AND r.status = 'COMPLETE' AND r.ended_at IS NOT NULL

-- name: paces
SELECT project, jobid, seconds, runs FROM alert_pace

-- name: set_pace
INSERT INTO alert_pace (project, jobid, seconds, runs) VALUES (:project, :jobid, :seconds, :runs)
ON CONFLICT (project, jobid) DO UPDATE SET seconds = excluded.seconds, runs = excluded.runs

-- name: live_runs
SELECT s.project, s.jobid, s.dataid, s.runid, coalesce(s.owner, ''),
       (julianday(:now) - julianday(r.claimed_at)) * 86400.0, (julianday(:now) - julianday(s.lease_until)) * 86400.0
FROM job_status s LEFT JOIN run r ON r.runid = s.runid WHERE s.status = 'RUNNING'

-- name: refused_rows
-- What the questions refuse again and again.
SELECT project, jobid, dataid, refusal FROM job_status INDEXED BY job_status_parked
WHERE parked_until IS NOT NULL AND status IN ('PENDING', 'RESUBMIT') AND refusal IS NOT NULL AND waiting <= 0
ORDER BY parked_until LIMIT :limit

-- name: open_stuck
SELECT alertid, messageid, project, place, owner, name, dataid, coalesce(runid, 0),
       (julianday(:now) - julianday(at)) * 86400.0
FROM alert WHERE is_open = 1 AND event = 'stuck'

-- name: clock_links
-- The clocks that jobs read.
SELECT l.project, l.jobid, d.clock
FROM job_dataset l JOIN dataset d ON d.project = l.dataset_project AND d.datasetid = l.datasetid
WHERE l.itemtype = 'IN' AND d.clock IS NOT NULL

-- name: row_status
SELECT status, waiting, parked_until, owner FROM job_status
WHERE project = :project AND jobid = :jobid AND dataid = :dataid

-- name: over_alerts
-- Open ones that are no longer so.
SELECT a.alertid, a.messageid, a.project, a.place, a.event, a.owner, a.name, a.dataid, s.status,
       coalesce(m.state, 'GATHERING'), a.was_told
FROM alert a LEFT JOIN alert_message m ON m.messageid = a.messageid
     LEFT JOIN job_status s ON s.project = a.owner AND s.jobid = a.name AND s.dataid = a.dataid
WHERE a.is_open = 1 AND a.subject = 'job' AND a.event IN ('failed', 'late')
  AND (s.status IS NULL OR s.status = 'COMPLETE' OR (a.event = 'late' AND s.status IN ('FAILED', 'HOLD')))
UNION ALL
SELECT a.alertid, a.messageid, a.project, a.place, a.event, a.owner, a.name, a.dataid, c.status,
       coalesce(m.state, 'GATHERING'), a.was_told
FROM alert a LEFT JOIN alert_message m ON m.messageid = a.messageid
     JOIN datastatus c ON c.project = a.owner AND c.datasetid = a.name AND c.dataid = a.dataid
                          AND c.locktype = 'OUT' AND c.reader = ''
WHERE a.is_open = 1 AND a.subject = 'dataset' AND c.status = 'READY'
LIMIT :limit

-- Telling -----------------------------------------------------------------------------------------------------------
-- name: open_message
SELECT messageid, state, events, (julianday(:now) - julianday(created_at)) * 86400.0,
       (julianday(due_at) - julianday(:now)) * 86400.0
FROM alert_message INDEXED BY alert_message_open
WHERE project = :project AND place = :place AND state IN ('GATHERING', 'SENDING', 'WAITING') AND state <> 'SENDING'
ORDER BY messageid LIMIT 1

-- name: told_messages
SELECT events, CASE state WHEN 'SENDING' THEN 0.0 ELSE (julianday(:now) - julianday(sent_at)) * 86400.0 END
FROM alert_message
WHERE project = :project AND place = :place AND state IN ('SENDING', 'SENT') ORDER BY messageid DESC LIMIT 20

-- name: add_message
INSERT INTO alert_message (project, place, events, created_at, due_at) VALUES (:project, :place, :events, :now, :due)
RETURNING messageid

-- name: change_message
UPDATE alert_message SET events = :events, due_at = CASE state WHEN 'GATHERING' THEN :due ELSE due_at END
WHERE messageid = :messageid

-- name: put_alert
-- What failed once more, and what has been so for long enough, is told in the message that is gathered now.
INSERT INTO alert (messageid, project, place, event, subject, owner, name, dataid, runid, reason, at, is_open)
VALUES (:messageid, :project, :place, :event, :subject, :owner, :name, :dataid, :runid, :reason, :now, :is_open)
ON CONFLICT (project, place, event, subject, owner, name, dataid) WHERE is_open = 1 DO UPDATE
SET messageid = excluded.messageid, runid = excluded.runid, reason = excluded.reason, at = excluded.at
WHERE alert.runid IS NOT excluded.runid OR alert.messageid = 0

-- name: close_alert
UPDATE alert SET is_open = 0 WHERE alertid = :alertid

-- name: drop_alert
DELETE FROM alert WHERE alertid = :alertid

-- name: drop_empty
DELETE FROM alert_message
WHERE messageid = :messageid AND state IN ('GATHERING', 'WAITING')
  AND NOT EXISTS (SELECT 1 FROM alert a WHERE a.messageid = alert_message.messageid)

-- Sending -----------------------------------------------------------------------------------------------------------
-- name: claim_message
UPDATE alert_message
SET state = 'SENDING', sender = :sender, sender_until = :until, attempts = attempts + 1,
    deaths = deaths + (state = 'SENDING')
WHERE messageid = (SELECT messageid FROM alert_message INDEXED BY alert_message_due
                   WHERE state IN ('GATHERING', 'SENDING', 'WAITING') AND due_at <= :now
                     AND (state <> 'SENDING' OR sender_until < :now)
                     AND (:project IS NULL OR project = :project OR due_at <= :overdue)
                   ORDER BY due_at, messageid LIMIT 1)
RETURNING messageid, project, place, attempts, deaths, (julianday(:now) - julianday(created_at)) * 86400.0

-- name: message_counts
SELECT event, count(*) FROM alert WHERE messageid = :messageid GROUP BY event

-- name: message_alerts
SELECT event, subject, owner, name, dataid, reason, at FROM alert
WHERE messageid = :messageid AND event = :event ORDER BY alertid LIMIT :limit

-- name: name_counts
-- How many of each job or dataset a message tells, most first.
SELECT event, subject, owner, name, count(*), min(dataid), max(dataid), min(reason) FROM alert
WHERE messageid = :messageid GROUP BY event, subject, owner, name ORDER BY count(*) DESC, name LIMIT :limit

-- name: mark_sent
UPDATE alert_message
SET state = 'SENT', events = :events, sent_at = :now, error = '', title = :title, body = :body, sender_until = NULL
WHERE messageid = :messageid AND state = 'SENDING' AND sender = :sender

-- name: mark_told
UPDATE alert SET was_told = 1 WHERE messageid = :messageid

-- name: mark_failed
UPDATE alert_message
SET state = :state, due_at = :due, error = :error, title = :title, body = :body, sender_until = NULL
WHERE messageid = :messageid AND state = 'SENDING' AND sender = :sender

-- Looking -----------------------------------------------------------------------------------------------------------
-- name: messages
SELECT messageid, project, place, state, events, created_at, due_at, attempts, sent_at, error, title
FROM alert_message WHERE (:project IS NULL OR project = :project) AND (:before IS NULL OR messageid < :before)
ORDER BY messageid DESC LIMIT :limit

-- name: message
SELECT messageid, project, place, state, events, created_at, due_at, attempts, sent_at, error, title, body
FROM alert_message WHERE messageid = :messageid

-- name: open_alerts
-- What is wrong, each once, with the places of all addresses that are told.
SELECT max(a.alertid), a.project, group_concat(a.place, char(10)), a.event, a.subject, a.owner, a.name, a.dataid, max(a.reason), min(a.at),
       max(m.state)
FROM alert a JOIN alert_message m ON m.messageid = a.messageid
WHERE a.is_open = 1 AND (:project IS NULL OR a.project = :project)
GROUP BY a.project, a.event, a.subject, a.owner, a.name, a.dataid
HAVING (:before IS NULL OR max(a.alertid) < :before)
ORDER BY 1 DESC LIMIT :limit

-- name: undelivered
SELECT count(*) FROM alert_message WHERE state IN ('GATHERING', 'SENDING', 'WAITING') AND state = 'WAITING'

-- name: open_counts
SELECT project, event, count(*)
FROM (SELECT DISTINCT project, event, subject, owner, name, dataid FROM alert WHERE is_open = 1 AND messageid > 0) a
GROUP BY project, event

-- name: clean_alerts
DELETE FROM alert WHERE is_open = 0 AND messageid IN
    (SELECT messageid FROM alert_message WHERE created_at < :before AND state IN ('SENT', 'GIVEN_UP')
     ORDER BY messageid LIMIT 200)

-- name: clean_messages
DELETE FROM alert_message WHERE messageid IN
    (SELECT messageid FROM alert_message m WHERE m.created_at < :before AND m.state IN ('SENT', 'GIVEN_UP')
       AND NOT EXISTS (SELECT 1 FROM alert a WHERE a.messageid = m.messageid) ORDER BY messageid LIMIT 200)
