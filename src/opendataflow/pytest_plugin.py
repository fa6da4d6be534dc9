"""The cases of `dataflow validate` as tests of pytest: `pytest --dataflow`, or `dataflow = true` in pytest's settings.

Without that it does nothing at all. With it, each transformation that project.yml names is an item of its file,
`pipelines/clean/drop_cancelled.py::clean.drop_cancelled`. The code runs in a process of its own, with one Spark session
for all of them, as it does for the command.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # nothing of ours is loaded into the tests of people who do not ask for it
    from opendataflow.spark.cases import Case
    from opendataflow.spark.outcome import Outcome
    from opendataflow.spark.validate import Validation

_SETTING = "dataflow"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dataflow", "OpenDataFlow")
    group.addoption(
        "--dataflow",
        action="store_true",
        default=False,
        help="test every transformation of project.yml on its expected_inputs; as an ini setting: dataflow = true",
    )
    group.addoption(
        "--dataflow-timeout", type=float, default=None, metavar="S", help="seconds for each transformation (300)"
    )
    parser.addini(_SETTING, "test every transformation of project.yml on its expected_inputs", "bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    if not (config.getoption("--dataflow") or config.getini(_SETTING)):
        return
    from opendataflow.errors import DataflowError

    try:
        project = _Project(config)
    except DataflowError as error:
        raise pytest.UsageError(f"--dataflow: {error}") from error
    config.pluginmanager.register(project, "dataflow-project")


class CaseFailed(Exception):
    """What a failed case raises; pytest shows its outcome instead of a traceback."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


class _Project:
    """The project that is tested, and the process that its cases run in."""

    def __init__(self, config: pytest.Config) -> None:
        import os

        from opendataflow.errors import ConfigurationError
        from opendataflow.project import PROJECT_FILE
        from opendataflow.project.address import find_project_folder
        from opendataflow.spark.cases import find_cases

        named = [one.partition("::")[0] for one in config.args]
        starts = (str(config.rootpath), str(config.invocation_params.dir), *named)
        home = find_project_folder(*starts)
        if home is None:
            raise ConfigurationError(f"found no {PROJECT_FILE} in {starts[0]} or above")
        self._cases: dict[Path, list[Case]] = {}
        for case in find_cases(home, environment=os.environ.get("DATAFLOW_ENV")):
            self._cases.setdefault(Path(home, case.file).resolve(), []).append(case)
        self._timeout: float | None = config.getoption("--dataflow-timeout")
        self._validation: Validation | None = None

    def run(self, case: Case) -> Outcome:
        from opendataflow.spark.validate import TIMEOUT_SECONDS, Validation

        if self._validation is None:
            self._validation = Validation(timeout_seconds=self._timeout or TIMEOUT_SECONDS)
        return self._validation.run(case)

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        cases = self._cases.get(file_path.resolve())
        return CaseFile.of(parent, file_path, cases, self) if cases else None

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Keeps pytest from importing a transformation that is named on its command line."""
        cases = self._cases.get(module_path.resolve())
        return CaseFile.of(parent, module_path, [], self) if cases else None

    def pytest_unconfigure(self) -> None:
        if self._validation is not None:
            self._validation.__exit__(None)
            self._validation = None


class CaseFile(pytest.File):
    """A transformation's file."""

    cases: list[Case]
    project: _Project

    @classmethod
    def of(cls, parent: pytest.Collector, path: Path, cases: list[Case], project: _Project) -> CaseFile:
        made: CaseFile = cls.from_parent(parent, path=path)
        made.cases, made.project = cases, project
        return made

    def collect(self) -> Iterator[CaseItem]:
        for case in self.cases:
            yield CaseItem.of(self, case)


class CaseItem(pytest.Item):
    """A transformation on its expected inputs."""

    case: Case
    project: _Project

    @classmethod
    def of(cls, parent: CaseFile, case: Case) -> CaseItem:
        made: CaseItem = cls.from_parent(parent, name=case.id)
        made.case, made.project = case, parent.project
        return made

    def runtest(self) -> None:
        outcome = self.project.run(self.case)
        if outcome.output:
            self.add_report_section("call", "stdout", outcome.output)
        if not outcome.is_ok:
            raise CaseFailed(outcome)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CaseFailed):
            return "\n".join(excinfo.value.outcome.details())
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name
