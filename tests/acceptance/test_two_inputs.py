"""A job with two inputs runs exactly on the dataids for which both have arrived."""

import threading

import pytest

from support.jobs import history, job_status, lines, publishes
from support.projects import Project

TWO_FEEDS = """\
name: Two feeds
environments:
  dev: {root: ./data}
datasets:
  orders: {path: "orders/{dataid}.csv", partitions: {daily: 2025-11-01..2025-11-06}}
  rates: {path: "rates/{dataid}.csv", partitions: {daily: 2025-11-01..2025-11-06}}
  countries: {path: countries.csv, partitions: none}
  priced: {path: "priced/{dataid}.csv"}
jobs:
  price:
    script: jobs/price.sh
    inputs: [orders, rates, countries: {map: full}]
    outputs: [priced]
"""
DAYS = [f"2025-11-{day:02}" for day in range(1, 7)]


def deliver(project: Project, dataset: str, day: str) -> None:
    project.write(f"data/{dataset}/{day}.csv", f"{dataset} of {day}\n")
    done = project.dataflow("ready", dataset, day)
    assert done.returncode == 0, done.stderr


def test_days_run_when_both_feeds_and_the_shared_table_are_there(project: Project) -> None:
    project.apply(TWO_FEEDS)
    script = project.script(
        "jobs/price.sh",
        'echo "$dataid" >> ran; cat "$orders_location" "$rates_location" "$countries_location" > "$priced_location"',
    )
    deliver(project, "orders", DAYS[0])
    deliver(project, "orders", DAYS[1])
    deliver(project, "rates", DAYS[1])
    waiting = project.runjob("--drain", script)
    assert waiting.returncode == 10
    assert lines(project.folder / "ran") == [], "the shared table has not arrived"
    project.write("data/countries.csv", "countries\n")
    assert project.dataflow("ready", "countries", "full").returncode == 0
    second = project.runjob("--drain", script)
    assert second.returncode == 10
    assert f"price/{DAYS[0]}: DATA_NOT_READY: rates/{DAYS[0]} is not there yet" in second.stderr
    assert lines(project.folder / "ran") == [DAYS[1]]
    deliver(project, "rates", DAYS[0])
    assert project.runjob(script).returncode == 0
    assert lines(project.folder / "ran") == [DAYS[1], DAYS[0]]
    made = (project.folder / f"data/priced/{DAYS[0]}.csv").read_text()
    assert made == f"orders of {DAYS[0]}\nrates of {DAYS[0]}\ncountries\n"


@pytest.mark.both_stores
def test_no_day_is_forgotten_when_its_two_feeds_arrive_at_the_same_moment(project: Project) -> None:
    project.apply(TWO_FEEDS)
    script = project.script("jobs/price.sh", 'echo "$dataid" >> ran; touch "$priced_location"')
    project.write("data/countries.csv", "countries\n")
    assert project.dataflow("ready", "countries", "full").returncode == 0
    barrier = threading.Barrier(2)
    failures: list[BaseException] = []

    def arrive(dataset: str) -> None:
        try:
            for day in DAYS:
                project.write(f"data/{dataset}/{day}.csv", dataset)
                barrier.wait(30)
                project.sql(
                    f"INSERT INTO datastatus (datasetid, dataid, status) VALUES ('{dataset}', '{day}', 'READY')"
                )
        except BaseException as error:
            failures.append(error)
            barrier.abort()
            raise

    feeds = [threading.Thread(target=arrive, args=(dataset,)) for dataset in ("orders", "rates")]
    for feed in feeds:
        feed.start()
    for feed in feeds:
        feed.join()
    assert failures == []
    drained = project.runjob("--drain", script)
    assert drained.returncode == 0, drained.stderr
    assert lines(project.folder / "ran") == DAYS
    assert job_status(project, "price") == dict.fromkeys(DAYS, "COMPLETE")


def test_an_input_that_is_closed_again_closes_the_days_that_have_not_run(project: Project) -> None:
    project.apply(TWO_FEEDS)
    script = project.script("jobs/price.sh", 'touch "$priced_location"')
    project.write("data/countries.csv", "countries\n")
    assert project.dataflow("ready", "countries", "full").returncode == 0
    for day in DAYS[:2]:
        deliver(project, "orders", day)
        deliver(project, "rates", day)
    project.sql(f"UPDATE datastatus SET status = 'HOLD' WHERE datasetid = 'rates' AND dataid = '{DAYS[0]}'")
    assert project.runjob(script).returncode == 0
    assert publishes(project, "priced") == {DAYS[1]: 1}
    refused = project.runjob("--dataid", DAYS[0], script)
    assert refused.returncode == 10
    assert f"rates/{DAYS[0]} is HOLD" in refused.stderr
    project.sql(f"UPDATE datastatus SET status = 'READY' WHERE datasetid = 'rates' AND dataid = '{DAYS[0]}'")
    assert project.runjob(script).returncode == 0
    assert history(project, "job", "price")[-1] == (DAYS[0], "RUNNING", "COMPLETE")
