-- Whoever does something for a page says again and again that it is there.

ALTER TABLE request ADD COLUMN beat_at timestamptz;
