"""What messages say to do: mistakes in YAML that many make, and nothing that only a checkout has."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import opendataflow
from opendataflow.domain.partitions.scheme import why_no_dataid
from opendataflow.errors import ConfigurationError
from opendataflow.project.schema.shape import read_shape

PACKAGE = Path(opendataflow.__file__).parent
HEAD = "name: b\nenvironments: {dev: {root: data}}\ndatasets:\n"


def problems(folder: Path, text: str) -> str:
    """What is said of a project.yml that holds this text."""
    (folder / "project.yml").write_text(text)
    try:
        return read_shape(str(folder), "dev").problems.text()
    except ConfigurationError as error:
        return str(error)


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        (
            "  orders:\n    path: {dataid}.csv\n", 5,
            'datasets.orders: not valid YAML: `path`: a text with braces is quoted: path: "{dataid}.csv"',
        ),
        (
            "  orders: {format: csv, path: in/{dataid}.csv}\n", 4,
            'datasets.orders: not valid YAML: `path`: a text with braces is quoted: path: "in/{dataid}.csv"',
        ),
        (
            "  orders:\n    path: {dataid}\n", 5,
            'datasets.orders.path: should be a text, not a mapping; `{` begins a mapping in YAML, so quote the text: '
            '"{dataid}"',
        ),
        (
            "  orders: {}\njobs:\n  load:\n    inputs: [orders]\n   outputs: [out]\n", 8,
            "jobs: not valid YAML: indented by 3 blanks, like no other key (`jobs` by 0, `load` by 2)",
        ),
        (
            "  orders:\n    format: csv\n     path: x\n", 6,
            "datasets.orders: not valid YAML: indented by 5 blanks, like no other key",
        ),
        ("  orders: {}\n out: {}\n", 5, "not valid YAML: indented by 1 blank, like no other key (`datasets` by 0)"),
        (
            '  orders:\n  path: "orders/{dataid}.csv"\n', 5,
            "datasets.path: is a key of datasets.orders: indent it further than `orders`",
        ),
        (
            "  out: {}\njobs:\n  load:\n  outputs: [out]\n", 7,
            "jobs.outputs: is a key of jobs.load: indent it further than `load`",
        ),
    ],
)  # fmt: skip
def test_a_common_mistake_in_yaml_is_named_with_its_line_and_key(
    tmp_path: Path, text: str, line: int, told: str
) -> None:
    assert f"project.yml:{line}: {told}" in problems(tmp_path, HEAD + text)


@pytest.mark.parametrize("name", ["path", "format", "schema"])
def test_a_dataset_may_be_called_like_a_key(tmp_path: Path, name: str) -> None:
    assert problems(tmp_path, f"{HEAD}  orders: {{}}\n  {name}: {{format: csv}}\n") == ""


@pytest.mark.parametrize(
    ("partitions", "given", "meant"),
    [
        ('{"daily": "2025-01-01"}', "20251101", "2025-11-01"), ('{"daily": "2025-01-01"}', "2025/11/1", ""),
        ('{"daily": "2025-01-01"}', "2025_11_01", "2025-11-01"), ('{"daily": "2025-01-01"}', "20251301", ""),
        ('{"hourly": "2025-01-01"}', "2025110107", "2025-11-01T07"), ('{"monthly": "2025-01"}', "202511", "2025-11"),
        ('{"shards": "001..100"}', "7", "007"), ('{"shards": "1..100"}', "007", "7"),
        ('{"values": ["eu"]}', "us", ""), ('"none"', "20251101", ""),
    ],
)  # fmt: skip
def test_a_dataid_written_otherwise_is_no_dataid_and_the_right_one_is_suggested(
    partitions: str, given: str, meant: str
) -> None:
    told = why_no_dataid("orders", partitions, given)
    assert told.startswith(f"{given!r} is not a dataid of orders")
    assert told.endswith(f"; did you mean {meant!r}?") if meant else "did you mean" not in told


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module that people may see: all but docstrings."""
    tree = ast.parse(path.read_text())
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.lineno, node.value


def test_no_message_names_a_page_that_an_installed_user_does_not_have() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in texts(path)
        if re.search(r"\bdocs/[a-z]|how-to/|reference/[a-z-]+\.md", text)
    ]
    assert found == []
