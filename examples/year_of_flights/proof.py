"""Did the story end well? Asked of the state store itself, and of the files that were published."""

import csv
from typing import Any

from stage import Stage

# A run that began before a chunk that it reads was READY; `chunk_reader` knows who reads what, through every map.
TOO_EARLY = """
SELECT r.jobid, r.dataid, r.datasetid, r.chunk_dataid FROM chunk_reader r
JOIN (SELECT name, dataid, max(id) AS id FROM history WHERE kind = 'job' AND new_status = 'RUNNING' GROUP BY 1, 2) h
  ON h.name = r.jobid AND h.dataid = r.dataid
LEFT JOIN (SELECT name, dataid, min(id) AS id FROM history WHERE kind = 'chunk' AND new_status = 'READY'
           GROUP BY 1, 2) c
  ON c.name = r.datasetid AND c.dataid = r.chunk_dataid
WHERE c.id IS NULL OR c.id > h.id
"""
ROWS = """
SELECT d.datasetid, count(*), coalesce(sum(m.rows), 0) FROM datastatus d
JOIN data_manifest m USING (project, datasetid, dataid, version)
WHERE d.locktype = 'OUT' AND d.status = 'READY' GROUP BY 1
"""
# What seals the stream's hours waits for the hour to be over.
OPEN = "SELECT jobid, dataid, status FROM job_status WHERE status <> 'COMPLETE' AND jobid <> 'live_board_seal'"
TWICE = """
SELECT name, dataid, count(*) FROM history
WHERE kind = 'chunk' AND old_status <> 'READY' AND new_status = 'READY' AND name IN ('clean_flights', 'monthly_delays')
GROUP BY 1, 2 HAVING count(*) > 1
"""


def prove(stage: Stage, facts: dict[str, Any], months: int) -> None:
    """Say what was counted and what was expected, or end the demo with what differs."""
    chunks = {name: (count, rows) for name, count, rows in stage.query(ROWS)}
    summed = sum(_flights(stage, month) for (month,) in stage.query(_MONTHS))
    days = facts["days"]
    told: list[tuple[str, int, int]] = [
        ("days of `flights` READY", chunks["flights"][0], days),
        ("flights in them, as in the package", chunks["flights"][1], facts["flights"]),
        ("days of `clean_flights` COMPLETE", stage.count("clean_flights", "COMPLETE"), days),
        ("flights in them: those that departed", chunks["clean_flights"][1], facts["departed"]),
        ("months of `monthly_delays` COMPLETE", stage.count("monthly_delays", "COMPLETE"), months),
        ("flights summed up in them", summed, facts["departed"]),
        ("live departures, each once", chunks["departures_live"][1], facts["live"]),
        ("dataids of any job that are not COMPLETE", len(stage.query(OPEN)), 0),
        ("runs that began before their data was READY", len(stage.query(TOO_EARLY)), 0),
        ("days or months that were published twice", len(stage.query(TWICE)), 0),
    ]
    for what, found, expected in told:
        mark = "ok" if found == expected else f"NOT OK: {expected:,} were expected"
        stage.say(f"  {found:>9,}  {what:<46} {mark}")
    if any(found != expected for _, found, expected in told):
        stage.fail("it does not add up, see above")


_MONTHS = "SELECT dataid FROM datastatus WHERE datasetid = 'monthly_delays' AND locktype = 'OUT' AND status = 'READY'"


def _flights(stage: Stage, month: str) -> int:
    with open(stage.work / "data" / "monthly_delays" / f"{month}.csv", encoding="utf-8", newline="") as file:
        return sum(int(row["flights"]) for row in csv.DictReader(file))
