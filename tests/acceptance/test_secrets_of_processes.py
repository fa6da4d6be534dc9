"""What a script can read, as the same user, of the processes that started it: no passkey, address or token."""

import os
from collections.abc import Sequence

import pytest

from support.jobs import job_status, one_job
from support.projects import DATAFLOW, RUNJOB, Project

SECRETS = {
    "DATAFLOW_PASSKEY": "the-passkey-of-this-test",
    "DATAFLOW_STREAM_TOKEN": "the-token-of-this-test",
    "DATAFLOW_LINEAGE_URL": "http://user:the-backend-of-this-test@127.0.0.1:9",
}
READ = """
p=$PPID
while [ "$p" -gt 1 ] && [ "$p" != "$STOP_AT" ]; do
  tr '\\0' ' ' < /proc/$p/cmdline >> cmdlines; echo >> cmdlines
  { cat /proc/$p/environ; cat /proc/$p/task/*/environ; } >> environments 2>> refusals
  grep -c . /proc/$p/maps > count 2>> refusals && cat count >> maps
  p=$(awk '/^PPid:/ {print $2}' /proc/$p/status)
done
"""
# Root may read every process; without capabilities it may read what any user may: its own that are not protected.
ORDINARY = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 else []
COMMANDS = {
    "RunJob": [RUNJOB, "jobs/work.sh"], "run": [DATAFLOW, "run", "work"], "tick": [DATAFLOW, "tick"],
    "worker": [DATAFLOW, "worker", "--once"],
}  # fmt: skip


def read_by_a_script(project: Project, command: Sequence[str]) -> dict[str, str]:
    one_job(project, READ)
    done = project.run(*command, env={**SECRETS, "STOP_AT": str(os.getpid())})
    assert done.returncode == 0, done.stderr
    assert job_status(project) == {"1": "COMPLETE"}
    files = {name: project.folder / name for name in ("cmdlines", "environments", "maps", "refusals")}
    return {name: file.read_text(errors="replace") if file.exists() else "" for name, file in files.items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_script_reads_nothing_of_the_processes_above_it(sqlite_project: Project, name: str) -> None:
    found = read_by_a_script(sqlite_project, [*ORDINARY, *COMMANDS[name]])
    assert len(found["cmdlines"].splitlines()) >= 2, "its guard, and who started that"
    assert found["environments"] == found["maps"] == ""
    assert "ermission denied" in found["refusals"]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_secret_stays_where_root_would_see_it_first(sqlite_project: Project, name: str) -> None:
    found = read_by_a_script(sqlite_project, COMMANDS[name])
    for secret in ("of-this-test", sqlite_project.store):
        assert secret not in found["environments"]
    if os.getuid() == 0:
        assert "PATH=" in found["environments"], "it could read them"


def test_a_protected_process_goes_on_as_before(sqlite_project: Project) -> None:
    """It finds its own variables, opens its own files by their descriptors, and gives its children what they need."""
    sqlite_project.write(
        "try.py",
        "import os, subprocess, sys\n"
        "from opendataflow.own_process import protect\n"
        "protect(lambda name: name == 'HIDDEN')\n"
        "file = open('try.py')\n"
        "assert os.path.realpath(f'/proc/self/fd/{file.fileno()}').endswith('try.py')\n"
        "assert open(f'/proc/self/fd/{file.fileno()}').read() == file.read()\n"
        "assert os.environ['HIDDEN'] == 'x' * 9\n"
        "shown = subprocess.run(['cat', '/proc/self/environ'], capture_output=True, check=True).stdout\n"
        "assert b'HIDDEN=xxxxxxxxx' in shown, 'a child that is given the variable has it'\n"
        "of_mine = subprocess.run(['cat', f'/proc/{os.getpid()}/environ'], capture_output=True).stdout\n"
        "assert b'xxxxxxxxx' not in of_mine\n",
    )
    for prefix in ([], ORDINARY):
        done = sqlite_project.run(*prefix, "python", "try.py", env={"HIDDEN": "x" * 9})
        assert done.returncode == 0, done.stderr
