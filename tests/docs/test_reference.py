"""What of the reference is made from the code is as the code is; what is written by hand misses nothing."""

import os
import re
import subprocess
import sys
from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Between processes of one run, and for tests: nothing that a person would set.
OWN = {
    "DATAFLOW_CODE", "DATAFLOW_WITH_PARENT", "DATAFLOW_LINEAGE_URL", "DATAFLOW_FAULT_POINT",
    "DATAFLOW_CHILD_FAULT_POINT", "DATAFLOW_GIT_FILES", "DATAFLOW_GIT_HOST",
}  # fmt: skip


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    found = util.spec_from_file_location("reference", ROOT / "scripts/reference.py")
    assert found is not None
    assert found.loader is not None
    module = util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_made_pages_are_as_the_code_is(reference: ModuleType) -> None:
    stale = [page.name for page, text in reference.pages().items() if page.read_text() != text]
    assert stale == [], "make reference"


def test_every_command_has_an_example_of_itself(reference: ModuleType) -> None:
    for name, command in reference.commands():
        _, found, examples = (command.help or "").partition("Example")
        assert found, f"{name} --help shows no example"
        assert name in re.sub(r"\s+", " ", examples), f"the example of {name} is of something else"


def test_every_argument_and_option_says_what_it_is(reference: ModuleType) -> None:
    for name, command in reference.commands():
        silent = [one.name for one in command.params if not one.hidden and not one.help and one.name != "ctx"]
        assert silent == [], name


def test_every_listing_command_has_json(reference: ModuleType) -> None:
    listings = re.compile(r" (list|show|status|failed|runs|gaps|plan|workers|checks|why|lineage|impact|doctor)$")
    for name, command in reference.commands():
        if listings.search(name):
            assert any("--json" in one.opts for one in command.params), name


def test_every_variable_that_the_code_reads_is_documented() -> None:
    text = (DOCS / "reference/environment-variables.md").read_text()
    read = {
        name
        for file in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"\bDATAFLOW_[A-Z_]*[A-Z]\b", file.read_text())
    }
    assert sorted(name for name in read - OWN if f"`{name}`" not in text) == []


def test_every_table_is_described(reference: ModuleType) -> None:
    listed = re.findall(r"^\| `(\w+)` \|", reference.columns(), flags=re.MULTILINE)
    text = (DOCS / "reference/tables.md").read_text()
    by_hand = text[: text.index("## Columns")]
    assert {"job_status", "datastatus", "data_manifest", "run"} <= set(listed)
    for name in ("job_status", "datastatus", "data_manifest", "run", "history"):
        assert f"`{name}`" in by_hand


# The site -------------------------------------------------------------------------------------------------------------
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(list(DOCS.rglob("*.md"))) - 1
    for page in pages:
        loaded = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text())
        assert [address for address in loaded if "example" not in address] == [], page.name


def test_every_page_is_in_the_navigation() -> None:
    told = (ROOT / "mkdocs.yml").read_text()
    missing = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if str(page.relative_to(DOCS)) not in told]
    assert missing == []


def test_nothing_is_misspelt() -> None:
    argv = ["docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples"]
    done = subprocess.run([sys.executable, "-m", "codespell_lib", *argv], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
