"""The pytest plugin: the cases of `dataflow validate` as tests, and nothing at all for those who do not ask."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = "name: shop\npipelines:\n  - {slug: clean, sources: [a], destination: b, transformations: [good, bad]}\n"
GOOD = (
    'import pandas as pd\n\nexpected_inputs = [{"n": 1}]\nexpected_output = [{"n": 2}]\n\n\n'
    'def run(df):\n    print("working")\n    df["n"] = df["n"] * 2\n    return df\n'
)
SPARK = (
    'from pyspark.sql import functions as F\n\nexpected_inputs = [{"n": 1}]\nexpected_output = [{"n": 2}]\n\n\n'
    "def run(df):\n    print(df.sparkSession.sparkContext.applicationId)\n"
    '    return df.withColumn("n", F.col("n") * 2)\n'
)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    write(tmp_path, "project.yml", PROJECT)
    write(tmp_path, "pipelines/clean/good.py", GOOD)
    write(tmp_path, "pipelines/clean/bad.py", GOOD.replace('"n": 2', '"n": 3'))
    write(tmp_path, "tests/test_own.py", "def test_own():\n    pass\n")
    return tmp_path


def write(folder: Path, path: str, text: str) -> None:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def run_pytest(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    # The plugins of others take most of the time until pytest begins.
    others = [f"-pno:{name}" for name in ("cacheprovider", "schemathesis", "hypothesispytest", "xdist", "timeout")]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *others, "-W", "error", *argv],
        cwd=folder, capture_output=True, text=True, timeout=200,
    )  # fmt: skip


def collected(folder: Path, *argv: str) -> list[str]:
    done = run_pytest(folder, "--collect-only", "-q", *argv)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "::" in line]


ALL = ["pipelines/clean/bad.py::clean.bad", "pipelines/clean/good.py::clean.good"]


def test_cases_are_items_of_their_files(shop: Path) -> None:
    assert collected(shop, "--dataflow") == [*ALL, "tests/test_own.py::test_own"]
    assert collected(shop, "--dataflow", "pipelines") == ALL
    assert collected(shop, "--dataflow", "-k", "good") == [ALL[1]]
    assert collected(shop, "--dataflow", ALL[0]) == [ALL[0]]
    assert [line.removeprefix(f"{shop.name}/") for line in collected(shop.parent, "--dataflow", str(shop))][:2] == ALL


def test_a_transformation_that_is_named_is_not_imported_by_pytest(shop: Path) -> None:
    write(shop, "pipelines/clean/bad.py", "raise RuntimeError('imported')\n")
    assert collected(shop, "--dataflow", "pipelines/clean/bad.py") == [ALL[0]]
    assert collected(shop, "--dataflow", "-o", "python_files=*.py")[:2] == ALL


def test_nothing_is_collected_or_loaded_without_asking(shop: Path) -> None:
    write(
        shop,
        "tests/test_own.py",
        "import sys\n\ndef test_own():\n"
        "    ours = [name for name in sys.modules if name.startswith('opendataflow.')]\n"
        "    assert ours == ['opendataflow.pytest_plugin']\n"
        "    assert not {'pyspark', 'pandas'} & set(sys.modules)\n",
    )
    assert collected(shop) == ["tests/test_own.py::test_own"]
    assert run_pytest(shop).returncode == 0


def test_a_setting_asks_as_the_option_does(shop: Path) -> None:
    write(shop, "pytest.ini", "[pytest]\ndataflow = true\n")
    assert collected(shop, "pipelines") == ALL


def test_a_failure_shows_the_differences_and_no_traceback_of_ours(shop: Path) -> None:
    done = run_pytest(shop, "--dataflow", "pipelines")
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "pipelines/clean/bad.py: the output is not what was expected: 1 difference" in done.stdout
    assert "row 1, column n: expected 3, got 2" in done.stdout
    assert "Captured stdout call" in done.stdout
    assert done.stdout.count("working") == 1  # of the one that failed
    assert "pytest_plugin" not in done.stdout


def test_an_error_shows_the_users_lines_alone(shop: Path) -> None:
    write(shop, "pipelines/clean/bad.py", GOOD.replace('df["n"] * 2', 'df["m"]'))
    done = run_pytest(shop, "--dataflow", "pipelines")
    assert 'File "pipelines/clean/bad.py", line 9, in run' in done.stdout
    assert "site-packages" not in done.stdout


def test_code_that_hangs_fails_in_the_time_that_is_given(shop: Path) -> None:
    write(shop, "pipelines/clean/bad.py", GOOD.replace('    print("working")', "    while True:\n        pass"))
    done = run_pytest(shop, "--dataflow", "--dataflow-timeout", "2", "pipelines")
    assert "did not end within 2 s" in done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_a_project_that_is_not_right_is_a_usage_error(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    write(shop, "project.yml", "name: x\npipelines: 7\n")
    done = run_pytest(shop, "--dataflow")
    assert done.returncode == 4
    assert "project.yml:2" in done.stderr
    done = run_pytest(tmp_path_factory.mktemp("elsewhere"), "--dataflow")
    assert done.returncode == 4
    assert "found no project.yml" in done.stderr


def test_one_spark_session_serves_the_whole_test_session(shop: Path) -> None:
    for name in ("good", "bad"):
        write(shop, f"pipelines/clean/{name}.py", SPARK)
    done = run_pytest(shop, "--dataflow", "-rP", "pipelines")
    assert done.returncode == 0, done.stdout
    applications = [line for line in done.stdout.splitlines() if line.startswith("local-")]
    assert len(applications) == 2
    assert len(set(applications)) == 1
