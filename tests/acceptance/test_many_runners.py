"""Eight runners over five hundred chunks: each exactly once, none left."""

from collections import Counter

import pytest

from support.jobs import ends_of, job_status, lines, one_job, processes_of, publishes, runs
from support.projects import RUNJOB, Project

CHUNKS = [str(number) for number in range(1, 501)]


@pytest.mark.both_stores
def test_eight_runners_make_each_of_500_chunks_exactly_once(project: Project) -> None:
    script = one_job(project, 'echo "$dataid" >> journal', partitions="{shards: 1..500}")
    runners = [project.start(RUNJOB, "--drain", script) for _ in range(8)]
    for code, out, err in ends_of(runners):
        assert (code, out) == (0, ""), err[-2000:]
        assert "Traceback" not in err
        assert "is locked" not in err
    assert Counter(lines(project.folder / "journal")) == dict.fromkeys(CHUNKS, 1)
    assert publishes(project, "out") == dict.fromkeys(CHUNKS, 1)
    assert job_status(project) == dict.fromkeys(CHUNKS, "COMPLETE")
    made_by = Counter(owner for (owner,) in runs(project, "owner"))
    assert sum(made_by.values()) == 500
    assert len(made_by) == 8, "every runner had its share"
    assert processes_of(project) == []
    sound = project.dataflow("db", "check")
    assert sound.returncode == 0, sound.stderr


@pytest.mark.both_stores
def test_a_concurrency_limit_holds_over_many_runners(project: Project) -> None:
    script = one_job(
        project,
        'mkdir -p live; touch "live/$dataid"; ls live | wc -l >> widths; sleep 0.05; rm "live/$dataid"',
        partitions="{shards: 1..12}",
        settings="concurrency: 2",
    )
    runners = [project.start(RUNJOB, "--drain", "--wait", "30", script) for _ in range(4)]
    for code, _, err in ends_of(runners):
        assert code == 0, err
    assert set(job_status(project).values()) == {"COMPLETE"}
    widths = [int(width) for width in lines(project.folder / "widths")]
    assert len(widths) == 12
    assert max(widths) == 2
