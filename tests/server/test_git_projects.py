"""Projects from real git repositories, by the commands: add, pull, roll back, remove; runs, workers, kills."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from support.gits import SCRIPTS, SUM_UP, Origin
from support.processes import wait_for
from support.projects import DATAFLOW, Project


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin(tmp_path / "origin")


@pytest.fixture
def ops(sqlite_project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A folder without a project of its own: the store is named by the environment."""
    monkeypatch.setattr(sqlite_project, "env", _with_home(sqlite_project, tmp_path / "work"))
    return sqlite_project


def _with_home(project: Project, work: Path) -> Any:
    plain = project.env
    return lambda **extra: plain(**{"DATAFLOW_HOME": str(work), **extra})


def add(ops: Project, origin: Origin, *more: str) -> None:
    done = ops.dataflow("project", "add", origin.url, *more)
    assert done.returncode == 0, done.stderr + done.stdout


def shown(ops: Project) -> dict[str, Any]:
    return dict(ops.json("project", "show", "shop"))


def commits(ops: Project) -> list[str]:
    return [one["commit"] for one in shown(ops)["versions"]]


def home(ops: Project) -> Path:
    return Path(ops.sql("SELECT home FROM project WHERE project = 'shop'")[0][0])


def test_add_registers_the_project_from_a_folder_of_its_commit(ops: Project, origin: Origin) -> None:
    commit = origin.shop()
    add(ops, origin)
    assert home(ops).name == commit
    assert (home(ops) / "jobs" / "sum_up.sh").read_text() == SUM_UP
    assert not (home(ops) / ".git").exists()
    (listed,) = ops.json("project", "list")
    assert (listed["project"], listed["branch"], listed["commit"]) == ("shop", "main", commit)
    (version,) = shown(ops)["versions"]
    assert (version["author"], version["subject"], version["how"]) == ("Anna", "the shop", "add")


def test_data_is_in_one_place_for_all_versions(ops: Project, origin: Origin) -> None:
    origin.shop()
    add(ops, origin)
    root = Path(ops.sql("SELECT root FROM project")[0][0])
    assert root == home(ops).parent / "shared" / "data"
    assert (root / "orders" / "1.csv").read_text() == "a\n1\n", "a source that the repository holds is where data is"
    (root / "orders" / "own.txt").write_text("not of the repository")
    before = (root / "orders" / "2.csv").stat().st_mtime_ns
    origin.write("data/orders/1.csv", "a\n100\n")
    origin.push()
    assert ops.dataflow("project", "pull", "shop").returncode == 0
    assert Path(ops.sql("SELECT root FROM project")[0][0]) == root
    assert (root / "orders" / "1.csv").read_text() == "a\n100\n"
    assert (root / "orders" / "2.csv").stat().st_mtime_ns == before, "what is the same stays as it is"
    assert (root / "orders" / "own.txt").exists()


def test_pull_follows_the_branch_and_keeps_what_it_had(ops: Project, origin: Origin) -> None:
    first = origin.shop()
    add(ops, origin)
    origin.write("jobs/sum_up.sh", SUM_UP + "# more\n", executable=True)
    second = origin.push("more")
    done = ops.dataflow("project", "pull")
    assert done.returncode == 0, done.stderr
    assert commits(ops) == [second, first]
    assert home(ops).name == second
    assert (home(ops).parent / first / "project.yml").exists(), "the old version's folder stays for what runs in it"
    again = ops.dataflow("project", "pull", "shop")
    assert "in place already" in again.stderr
    assert commits(ops) == [second, first]


def test_a_commit_may_have_any_bytes_in_its_subject_and_author(ops: Project, origin: Origin, tmp_path: Path) -> None:
    """Git's own command corrects them; other tools that write commits do not."""
    first = origin.shop()
    add(ops, origin)
    tree, me = origin.git("rev-parse", "HEAD^{tree}").strip().encode(), b"Andr\xe9 <a@example.com> 1762905600 +0000"
    (tmp_path / "commit").write_bytes(
        b"tree %b\nparent %b\nauthor %b\ncommitter %b\n\ncaf\xe9\n" % (tree, first.encode(), me, me)
    )
    second = origin.git("hash-object", "-t", "commit", "-w", str(tmp_path / "commit")).strip()
    origin.git("push", "-q", "origin", f"{second}:main")
    done = ops.dataflow("project", "pull")
    assert done.returncode == 0, done.stderr
    assert [(one["commit"], one["author"], one["subject"]) for one in shown(ops)["versions"]] == [
        (second, "Andr\\udce9", "caf\\udce9"), (first, "Anna", "the shop"),
    ]  # fmt: skip


def test_a_file_that_is_refused_may_have_any_bytes_in_its_name(ops: Project, origin: Origin) -> None:
    origin.shop()
    add(ops, origin)
    os.symlink("/etc/hostname", os.path.join(os.fsencode(origin.tree), b"caf\xe9"))
    origin.push("a link")
    done = ops.dataflow("project", "pull")
    assert done.returncode == 1, done.stderr
    assert "caf\\udce9" in done.stdout + done.stderr
    assert "is a link that leads out of the project" in done.stdout + done.stderr
    assert "was refused" in ops.dataflow("project", "pull").stderr


def test_another_branch_is_followed_when_asked(ops: Project, origin: Origin) -> None:
    origin.shop()
    other = origin.push("for production", branch="live")
    origin.write("README", "only on main")
    origin.push("main goes on")
    add(ops, origin, "--branch", "live")
    assert ops.dataflow("project", "pull").returncode == 0
    assert commits(ops) == [other]


def test_rollback_takes_the_version_before_and_then_the_one_before_that(ops: Project, origin: Origin) -> None:
    first = origin.shop()
    add(ops, origin)
    versions = [first]
    for number in (2, 3):
        origin.write("note", str(number))
        versions.append(origin.push(f"number {number}"))
        assert ops.dataflow("project", "pull").returncode == 0
    assert ops.dataflow("project", "rollback", "shop").returncode == 0
    assert home(ops).name == versions[1]
    assert ops.dataflow("project", "rollback", "shop").returncode == 0
    assert home(ops).name == versions[0]
    none = ops.dataflow("project", "rollback", "shop")
    assert none.returncode == 1
    assert "no earlier version" in none.stderr
    assert ops.dataflow("project", "rollback", "shop", versions[2][:9]).returncode == 0
    assert home(ops).name == versions[2]
    wrong = ops.dataflow("project", "rollback", "shop", "feedc0ffee")
    assert wrong.returncode == 1
    assert "no commit 'feedc0ffee'" in wrong.stderr


def test_remove_leaves_data_and_history(ops: Project, origin: Origin) -> None:
    origin.shop()
    add(ops, origin)
    folder = home(ops).parent
    for number in "123":
        assert ops.dataflow("ready", "orders", number).returncode == 0
    assert ops.dataflow("worker", "--once").returncode == 0
    done = ops.dataflow("project", "remove", "shop", "--yes")
    assert done.returncode == 0, done.stderr
    assert ops.json("project", "list") == []
    assert sorted(path.name for path in folder.iterdir()) == ["shared"]
    assert (folder / "shared" / "data" / "totals" / "1.csv").exists()
    assert ops.sql("SELECT count(*) FROM run")[0][0] == 3
    add(ops, origin)
    assert ops.statuses("sum_up") == {"1": "COMPLETE", "2": "COMPLETE", "3": "COMPLETE"}, "what was done is done"


def test_runs_of_scripts_record_their_commit(ops: Project, origin: Origin) -> None:
    first = origin.shop()
    add(ops, origin)
    ops.dataflow("ready", "orders", "1")
    assert ops.dataflow("worker", "--once").returncode == 10, "the others are not there yet"
    origin.write("note", "2")
    second = origin.push()
    assert ops.dataflow("project", "pull").returncode == 0
    ops.dataflow("ready", "orders", "2")
    assert ops.dataflow("run", "sum_up").returncode == 0
    assert [(one["dataid"], one["commit"]) for one in ops.json("runs")] == [("2", second), ("1", first)]


def test_a_worker_goes_on_with_the_new_version_and_a_running_run_keeps_its_own(
    ops: Project, origin: Origin, tmp_path: Path
) -> None:
    """One run is in the middle of the old version when the new one is put in place, and again at a rollback."""
    body = "mkdir -p $(dirname $totals_location)\necho {0} $(basename $PWD) > $totals_location\n"
    wait = f"touch {tmp_path}/begun-$dataid\nwhile [ ! -e {tmp_path}/go-$dataid ]; do sleep 0.05; done\n"
    origin.shop()
    origin.write("jobs/sum_up.sh", "#!/bin/bash\n" + wait + body.format("old"), executable=True)
    first = origin.push("waits")
    add(ops, origin)
    ops.dataflow("ready", "orders", "1")
    worker = ops.start(DATAFLOW, "worker", "--slots", "1")
    totals = home(ops).parent / "shared" / "data" / "totals"
    try:
        wait_for((tmp_path / "begun-1").exists, "the first run")
        origin.write("jobs/sum_up.sh", "#!/bin/bash\n" + wait + body.format("new"), executable=True)
        second = origin.push("new")
        assert ops.dataflow("project", "pull").returncode == 0
        (tmp_path / "go-1").touch()
        wait_for(lambda: ops.statuses("sum_up").get("1") == "COMPLETE", "its end")
        assert (totals / "1.csv").read_text() == f"old {first}\n"
        ops.dataflow("ready", "orders", "2")
        wait_for((tmp_path / "begun-2").exists, "the second run", seconds=60)
        done = ops.dataflow("project", "rollback", "shop")
        assert done.returncode == 0, done.stderr
        (tmp_path / "go-2").touch()
        wait_for(lambda: ops.statuses("sum_up").get("2") == "COMPLETE", "its end")
        ran = {one["dataid"]: one["commit"] for one in ops.json("runs")}
        assert ran["1"] == first
        assert (totals / "2.csv").read_text() in (f"new {second}\n", f"old {first}\n")
        assert ran["2"] == (totals / "2.csv").read_text().split()[1]
        ops.sql("UPDATE job_status SET modified = modified")  # news
        ops.dataflow("ready", "orders", "3")
        (tmp_path / "go-3").touch()
        wait_for(lambda: ops.statuses("sum_up").get("3") == "COMPLETE", "the third", seconds=60)
    finally:
        worker.terminate()
        worker.communicate(timeout=60)


def test_folders_of_old_versions_go_but_not_those_that_something_runs_on(ops: Project, origin: Origin) -> None:
    from opendataflow.deploy.folders import prune
    from opendataflow.store.records.git import Change

    origin.shop()
    add(ops, origin)
    folder = home(ops).parent
    names = [f"{number:040x}" for number in range(10)]
    for name in names:
        (folder / name).mkdir()
    at = [f"2025-01-01T{hour:02d}:00:00.000Z" for hour in range(11)]
    versions = [
        Change(n, name, "a", "s", at[0], "pull", at[n], "x", at[n + 1] if n < 9 else None)
        for n, name in enumerate(names)
    ][::-1]
    now = 1_800_000_000.0
    gone = prune(str(folder), versions, now=now, oldest_running="2025-01-01T03:30:00.000Z")
    assert gone == [*names[:3], home(ops).name], "a run of 03:30 may be of the version that was left at 04:00"
    assert prune(str(folder), versions, now=now, oldest_running=None) == names[3:5], "the last five stay"


@pytest.mark.parametrize("at", ["version_exported", "before_switch", "after_switch"])
def test_a_pull_that_is_killed_leaves_a_whole_version_and_the_next_one_works(
    ops: Project, origin: Origin, tmp_path: Path, at: str
) -> None:
    first = origin.shop()
    add(ops, origin)
    origin.write("data/orders/1.csv", "a\n100\n")
    second = origin.push()
    marker = tmp_path / "marker"
    pull = ops.start(DATAFLOW, "project", "pull", "shop", env={"DATAFLOW_FAULT_POINT": f"{at}:{marker}"})
    wait_for(marker.exists, "the pull at its point")
    (task,) = [one for one in shown(ops)["tasks"] if one["state"] == "RUNNING"]
    os.kill(pull.pid, signal.SIGKILL)
    pull.communicate(timeout=90)
    marker.unlink()
    assert task["kind"] == "pull"
    there = home(ops)
    assert there.name == (second if at == "after_switch" else first)
    assert (there / "project.yml").read_text() == SCRIPTS
    assert commits(ops)[0] == there.name
    ops.dataflow("ready", "orders", "1")
    assert ops.dataflow("run", "sum_up").returncode == 0, "what is in place runs"
    done = ops.dataflow("project", "pull", "shop")
    assert done.returncode == 0, done.stderr
    assert home(ops).name == second
    assert (home(ops).parent / "shared" / "data" / "orders" / "1.csv").read_text() == "a\n100\n"
    assert not [name for name in os.listdir(home(ops).parent) if name.startswith(".new-")]
    assert [one["state"] for one in shown(ops)["tasks"]] == ["DONE", "LOST", "DONE"]


def test_a_project_whose_pull_was_killed_can_be_removed(ops: Project, origin: Origin, tmp_path: Path) -> None:
    origin.shop()
    add(ops, origin)
    origin.write("note", "2")
    origin.push()
    marker = tmp_path / "marker"
    pull = ops.start(DATAFLOW, "project", "pull", "shop", env={"DATAFLOW_FAULT_POINT": f"before_switch:{marker}"})
    wait_for(marker.exists, "the pull at its point")
    os.kill(pull.pid, signal.SIGKILL)
    pull.communicate(timeout=90)
    done = ops.dataflow("project", "remove", "shop", "--yes")
    assert done.returncode == 0, done.stderr
    assert ops.json("project", "list") == []


def test_two_pulls_at_once_one_waits_and_says_so(ops: Project, origin: Origin, tmp_path: Path) -> None:
    origin.shop()
    add(ops, origin)
    origin.write("note", "2")
    second = origin.push()
    marker = tmp_path / "marker"
    pulls = [ops.start(DATAFLOW, "project", "pull", env={"DATAFLOW_FAULT_POINT": f"before_switch:{marker}"})]
    wait_for(marker.exists, "the first pull at its point")
    pulls.append(ops.start(DATAFLOW, "project", "pull"))
    wait_for(lambda: any("waits" in one["step"] for one in shown(ops)["tasks"]), "the second one to wait")
    busy = ops.dataflow("project", "remove", "shop", "--yes")
    assert busy.returncode == 2
    assert "goes on" in busy.stderr
    marker.unlink()
    said = [pull.communicate(timeout=60)[1] for pull in pulls]
    assert [pull.returncode for pull in pulls] == [0, 0], said
    assert "waiting" in said[1]
    assert "in place already" in said[1]
    assert commits(ops)[0] == second


def test_the_folder_of_a_version_knows_its_store(ops: Project, origin: Origin) -> None:
    """Where nothing names the store: as a person sees it who goes there to look."""
    origin.shop()
    add(ops, origin)
    env = {**ops.env(), "DATAFLOW_STORE": "", "DATAFLOW_HOME": ""}
    done = ops.run(DATAFLOW, "job", "list", "--json", cwd=home(ops), env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["jobid"] == "sum_up"
    plan = ops.run(DATAFLOW, "apply", "--dry-run", cwd=home(ops), env=env)
    assert "0 changes" in plan.stderr, "what is relative stays where it is"


def test_another_host_fetches_the_version_that_is_in_place(ops: Project, origin: Origin) -> None:
    """The folder is gone, as on a host that never had it: the worker brings it and works."""
    import shutil

    origin.shop()
    add(ops, origin)
    there = home(ops)
    shutil.rmtree(there)
    shutil.rmtree(there.parent / "repository.git")
    ops.dataflow("ready", "orders", "1")
    tick = ops.dataflow("tick")
    assert "`dataflow project sync`" in tick.stdout + tick.stderr
    worker = ops.start(DATAFLOW, "worker", "--slots", "1")
    try:
        wait_for(lambda: ops.statuses("sum_up").get("1") == "COMPLETE", "the run", seconds=60)
    finally:
        worker.terminate()
        said = worker.communicate(timeout=60)[1]
    assert "is not on this host" in said
    assert (there / "project.yml").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ext::sh -c touch% /tmp/pwned", "could run any command"),
        ("--upload-pack=touch /tmp/pwned", "no address"),
        ("git://example.com/x.git", "not taken"),
        ("ftp://example.com/x.git", "not taken"),
        ("http://example.com/x.git", "not encrypted"),
        ("https://anna:secret@example.com/x.git", "holds a password"),
        ("https://-oProxyCommand=x/y", "names no host"),
        ("ssh://-oProxyCommand=touch/x", "names no host"),
        ("/no/such/folder", "there is no folder"),
        ("https://example.com/x.git?a=b", "has a query"),
    ],
)
def test_addresses_that_are_not_taken(ops: Project, url: str, words: str) -> None:
    done = ops.dataflow("project", "add", url) if not url.startswith("-") else ops.dataflow("project", "add", "--", url)
    assert done.returncode == 2
    assert words in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize("branch", ["--upload-pack=x", "a..b", "a b", "x.lock", "@{-1}"])
def test_branches_that_are_none(ops: Project, origin: Origin, branch: str) -> None:
    origin.shop()
    done = ops.dataflow("project", "add", origin.url, f"--branch={branch}")
    assert done.returncode == 2
    assert "no name of a branch" in done.stderr


def test_what_git_cannot_do_is_told_and_recorded(ops: Project, origin: Origin, tmp_path: Path) -> None:
    origin.shop()
    missing = ops.dataflow("project", "add", origin.url, "--branch", "other")
    assert missing.returncode == 1
    assert "has no branch 'other'" in missing.stderr
    empty = Origin(tmp_path / "empty")
    done = ops.dataflow("project", "add", empty.url)
    assert done.returncode == 1
    assert "has no commit yet" in done.stderr
    assert ops.json("project", "list") == []
    assert os.listdir(tmp_path / "work" / "projects") == []


def test_hooks_and_attributes_of_a_repository_run_nothing(ops: Project, origin: Origin, tmp_path: Path) -> None:
    origin.shop()
    origin.write(".gitattributes", "* filter=evil\nproject.yml export-ignore\n")
    origin.write(".git-hooks/post-checkout", f"#!/bin/sh\ntouch {tmp_path}/pwned\n", executable=True)
    origin.push()
    config = tmp_path / "gitconfig"
    config.write_text(f"[core]\nhooksPath = .git-hooks\n[init]\ntemplateDir = {tmp_path}\n")
    done = ops.dataflow("project", "add", origin.url, env={"GIT_CONFIG_GLOBAL": str(config), "HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "pwned").exists()
    assert (home(ops) / "project.yml").exists(), "a version is whole"


def test_the_whole_way_on_postgresql(
    postgres_project: Project, origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = postgres_project
    monkeypatch.setattr(ops, "env", _with_home(ops, tmp_path / "work"))
    first = origin.shop()
    add(ops, origin)
    ops.dataflow("ready", "orders", "1")
    assert ops.dataflow("worker", "--once").returncode == 10
    origin.write("note", "2")
    second = origin.push()
    pulls = [ops.start(DATAFLOW, "project", "pull") for _ in range(3)]
    said = [pull.communicate(timeout=120)[1] for pull in pulls]
    assert [pull.returncode for pull in pulls] == [0, 0, 0], said
    assert commits(ops) == [second, first], "only one of them put it in place"
    assert ops.dataflow("project", "rollback", "shop").returncode == 0
    assert home(ops).name == first
    assert [one["commit"] for one in ops.json("runs")] == [first]
    refused = ops.dataflow("project", "pull", env={"DATAFLOW_ENV": "prod"})
    assert refused.returncode == 2
    assert "belongs to environment 'dev'" in refused.stderr
    assert ops.dataflow("project", "remove", "shop", "--yes").returncode == 0
    assert ops.sql("SELECT count(*) FROM git_version")[0][0] == 0


SSH = """#!/bin/sh
# Stands where ssh stands: notes its arguments and the key, then does here what the other side would.
printf '%s\n' "$@" > {notes}
while [ "$1" != "git@example.com" ]; do
  if [ "$1" = -i ]; then cp "$2" {notes}.key; stat -c %a "$2" > {notes}.mode; fi
  shift
done
shift
exec sh -c "$1"
"""


def test_a_key_reaches_ssh_in_a_file_that_nobody_else_can_read(ops: Project, origin: Origin, tmp_path: Path) -> None:
    origin.shop()
    notes, fake = tmp_path / "notes", tmp_path / "bin" / "ssh"
    fake.parent.mkdir()
    fake.write_text(SSH.format(notes=notes))
    fake.chmod(0o755)
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nnobody may see this\n-----END OPENSSH PRIVATE KEY-----\n"
    (tmp_path / "deploy").write_text(key)
    env = {"PATH": f"{fake.parent}:{os.environ['PATH']}", "DATAFLOW_PASSKEY": "pass", "TMPDIR": str(tmp_path)}
    url = f"git@example.com:{origin.bare}"
    done = ops.dataflow("project", "add", url, "--ssh-key", str(tmp_path / "deploy"), env=env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "notes.key").read_text() == key
    assert (tmp_path / "notes.mode").read_text() == "600\n"
    told = notes.read_text()
    assert "BatchMode=yes" in told
    assert "StrictHostKeyChecking=accept-new" in told
    assert "nobody may see" not in told
    state = b"".join(path.read_bytes() for path in (tmp_path / "state").iterdir())
    assert b"nobody may see" not in state
    assert shown(ops)["credential_kind"] == "key"
    assert not list(tmp_path.glob("dataflow-git-*"))
    without = ops.dataflow("project", "pull", env={**env, "DATAFLOW_PASSKEY": ""})
    assert without.returncode == 1
    assert "no passkey is given" in without.stderr


# Where its data may be ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("told", ["/", "~/data", "../../../..", "link"])
def test_a_git_project_has_its_data_below_its_own_folder_or_where_the_operator_says(
    ops: Project, origin: Origin, tmp_path: Path, told: str
) -> None:
    commit = origin.shop()
    add(ops, origin)
    outside = tmp_path / "outside"
    outside.mkdir()
    (home(ops).parent / "shared" / "link").symlink_to(tmp_path)
    origin.write("project.yml", SCRIPTS.replace("root: ./data", f"root: {told}"))
    origin.push()
    refused = ops.dataflow("project", "pull", env={"HOME": str(tmp_path)})
    assert refused.returncode == 1
    assert "which git projects may not use here" in refused.stdout + refused.stderr
    assert home(ops).name == commit, "what was there stays"
    origin.write("project.yml", SCRIPTS.replace("root: ./data", f"root: {outside}"))
    allowed = origin.push()
    done = ops.dataflow("project", "pull", env={"DATAFLOW_GIT_ROOTS": f"/nowhere:{outside}"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert home(ops).name == allowed


def test_a_git_project_reads_no_database_file_of_others(ops: Project, origin: Origin, tmp_path: Path) -> None:
    """The store's own holds the hashes of passwords."""
    commit = origin.shop()
    add(ops, origin)
    store = ops.store.removeprefix("sqlite:///")
    for url in (f"sqlite:///{store}", f"sqlite:///{store}?mode=ro"):
        declared = f'datasets:\n  users: {{url: "{url}", table: account}}\n'
        origin.write("project.yml", SCRIPTS.replace("datasets:\n", declared))
        origin.push()
        refused = ops.dataflow("project", "pull")
        assert refused.returncode == 1
        assert "names" in refused.stdout + refused.stderr
        assert "which git projects may not use here" in refused.stdout + refused.stderr
        assert home(ops).name == commit
