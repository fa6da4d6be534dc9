"""Transformations on their expected inputs: every rule, in both engines; code that exits, hangs, crashes or floods."""

import dataclasses
import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from opendataflow.errors import ConfigurationError, UsageError
from opendataflow.spark.cases import Case, find_cases
from opendataflow.spark.outcome import Outcome, outcome_from
from opendataflow.spark.run_case import run_case
from opendataflow.spark.validate import Validation, validate
from support.processes import wait_for
from support.projects import Project

Check = Callable[..., Outcome]
ENGINES = ("spark", "pandas")
FILE = "pipelines/clean/step.py"
# The same transformation in both: it doubles n.
DOUBLE = {
    "spark": 'from pyspark.sql import functions as F\n\ndef run(df):\n    return df.withColumn("n", F.col("n") * 2)\n',
    "pandas": 'import pandas as pd\n\ndef run(df):\n    df["n"] = df["n"] * 2\n    return df\n',
}
IMPORT = {"spark": "from pyspark.sql import DataFrame, functions as F\n", "pandas": "import pandas as pd\n"}
INPUT, OUTPUT = 'expected_inputs = [{"n": 1}, {"n": 2}]\n', 'expected_output = [{"n": 2}, {"n": 4}]\n'


def a_case(home: Path, source: str, *, name: str = "step", engine: str | None = None) -> Case:
    file = home / "pipelines" / "clean" / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")
    return Case(home=str(home), slug="clean", name=name, transformations=(name,), engine=engine, conf={})


@pytest.fixture
def check(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Run a source in this process. Spark is started only for a case that asks for it."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(source: str, *, engine: str | None = None, rowwise: bool = False) -> Outcome:
        case = dataclasses.replace(a_case(tmp_path, source, engine=engine), rowwise=rowwise)
        outcome = run_case(case, lambda: request.getfixturevalue("spark"))
        assert outcome == outcome_from(json.loads(json.dumps(outcome.as_json())))
        return outcome

    return run


def differences(outcome: Outcome) -> list[str]:
    assert not outcome.is_ok
    return [str(one) for one in outcome.differences]


# The promise that rows do not mix ---------------------------------------------------------------------------------
MIXES = {
    "an aggregate": ("def run(df):\n    return df.agg(F.sum('n').alias('n'))\n", '[{"n": 3}]'),
    "the most of all rows": (
        "def run(df):\n    return df.crossJoin(df.agg(F.max('n').alias('most')))\n",
        '[{"n": 1, "most": 2}, {"n": 2, "most": 2}]',
    ),
    "the first row": ("def run(df):\n    return df.orderBy('n').limit(1)\n", '[{"n": 1}]'),
    "rows without duplicates": (
        "def run(df):\n    return df.dropDuplicates().withColumn('m', F.lit(1))\n",
        '[{"n": 1, "m": 1}, {"n": 2, "m": 1}]'
    ),
    "numbered rows": (
        "from pyspark.sql import Window\n\n\ndef run(df):\n"
        "    return df.withColumn('nth', F.row_number().over(Window.orderBy('n')))\n",
        '[{"n": 1, "nth": 1}, {"n": 2, "nth": 2}]',
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MIXES)
def test_a_pipeline_that_promises_to_work_row_by_row_must_do_so_on_its_example(check: Check, what: str) -> None:
    code, output = MIXES[what]
    source = f"{INPUT}expected_output = {output}\n{IMPORT['spark']}\n\n{code}"
    assert check(source).is_ok, "nothing was promised"
    outcome = check(source, rowwise=True)
    assert outcome.message.startswith(f"{FILE}: `rowwise: true` is not so: two chunks made of the example")


def test_a_promise_that_is_kept_is_ok(check: Check) -> None:
    assert check(INPUT + OUTPUT + DOUBLE["spark"], rowwise=True).is_ok
    join = 'def run(df, df2):\n    return df.join(df2, on="n", how="left").orderBy("n")\n'
    inputs = 'expected_inputs = [[{"n": 1}, {"n": 2}], [{"n": 1, "word": "one"}]]\n'
    output = 'expected_output = [{"n": 1, "word": "one"}, {"n": 2}]\n'
    assert check(IMPORT["spark"] + inputs + output + join, rowwise=True).is_ok


# What is run, and on what -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("engine", ENGINES)
def test_a_transformation_that_does_as_expected_is_ok(check: Check, engine: str) -> None:
    outcome = check(INPUT + OUTPUT + DOUBLE[engine])
    assert (outcome.status, outcome.message) == ("ok", "")
    assert (outcome.id, outcome.file) == ("clean.step", FILE)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_wrong_cell_is_named(check: Check, engine: str) -> None:
    outcome = check(INPUT + OUTPUT.replace("4", "5") + DOUBLE[engine])
    assert differences(outcome) == ["row 2, column n: expected 5, got 4"]
    assert outcome.message == f"{FILE}: the output is not what was expected: 1 difference"
    assert outcome.traceback == ""


@pytest.mark.parametrize("engine", ENGINES)
def test_several_inputs_go_to_the_parameters_in_order_and_surplus_ones_are_not_passed(
    check: Check, engine: str
) -> None:
    join = {
        "spark": 'def run(df, df2):\n    return df.join(df2, on="n", how="left").orderBy("n")\n',
        "pandas": 'def run(df, df2):\n    return df.merge(df2, on="n", how="left")\n',
    }
    inputs = 'expected_inputs = [[{"n": 1}, {"n": 2}], [{"n": 2, "b": "x"}], [{"unused": 1}]]\n'
    output = 'expected_output = [{"b": None, "n": 1}, {"n": 2, "b": "x"}]\n'
    assert check(IMPORT[engine] + inputs + output + join[engine]).details() == [""]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_input_without_rows_is_an_empty_dataframe(check: Check, engine: str) -> None:
    """The seed's own example has one."""
    source = DOUBLE[engine].replace("run(df)", "run(df, df2)")
    assert check('expected_inputs = [[{"n": 1}], []]\nexpected_output = [{"n": 2}]\n' + source).is_ok


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("inputs", "output"),
    [
        ('expected_inputs = pd.DataFrame({"n": [1, 2]})', 'expected_output = pd.DataFrame([{"n": 2}, {"n": 4}])'),
        ('expected_inputs = [pd.DataFrame({"n": [1, 2]})]', 'expected_output = {"n": [2, 4]}'),
        ('expected_inputs = {"n": [1, 2]}', 'expected_output = ({"n": 2}, {"n": 4})'),
        ('expected_input = [{"n": 1}, {"n": 2}]', 'expected_output = [{"n": 2}, {"n": 4}]'),
        ('def expected_inputs():\n    return [{"n": 1}, {"n": 2}]', 'expected_output = lambda: {"n": [2, 4]}'),
    ],
)
def test_an_example_may_be_written_in_other_ways(check: Check, engine: str, inputs: str, output: str) -> None:
    outcome = check(f"import pandas as pd\n{inputs}\n{output}\n{DOUBLE[engine]}", engine=engine)
    assert outcome.details() == [""]
    wrong = check(f"import pandas as pd\n{inputs}\n{output.replace('4', '5')}\n{DOUBLE[engine]}", engine=engine)
    assert differences(wrong) == ["row 2, column n: expected 5, got 4"]


def test_one_dict_of_values_is_one_row(check: Check) -> None:
    assert check('expected_input = {"n": 1}\nexpected_output = {"n": 2}\n' + DOUBLE["pandas"]).is_ok


def test_spark_dataframes_come_from_functions_or_from_the_active_session(check: Check) -> None:
    source = DOUBLE["spark"] + (
        "from pyspark.sql import Row, SparkSession\n"
        "def expected_inputs(spark):\n    return [spark.createDataFrame([(1,), (2,)], 'n long')]\n"
        "expected_output = SparkSession.builder.getOrCreate().createDataFrame([Row(n=2), Row(n=4)])\n"
    )
    assert check(source).details() == [""]
    rows = DOUBLE["spark"] + "from pyspark.sql import Row\nexpected_inputs = [Row(n=1)]\nexpected_output = [Row(n=2)]\n"
    assert check(rows).details() == [""]


def test_the_example_is_not_changed_by_code_that_works_in_place(check: Check) -> None:
    """In place: on a list within a cell, and on a column; the expected output may share cells with the input."""
    source = (
        "import pandas as pd\n"
        "cell = [1]\n"
        'expected_inputs = pd.DataFrame({"l": [cell], "n": [1]})\n'
        'expected_output = [{"l": [1, 9], "n": 5}]\n'
        'def run(df):\n    df.loc[0, "l"].append(9)\n    df["n"] = 5\n    return df\n'
    )
    assert check(source).details() == [""]
    assert check(source).details() == [""]  # the module is loaded once, its DataFrame used twice
    shared = source.replace('[{"l": [1, 9]', '[{"l": cell')
    assert differences(check(shared)) == ["row 1, column l: expected [1], got [1, 9]"]


# The rules of comparison ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("engine", ENGINES)
def test_null_equals_null_and_int_equals_float(check: Check, engine: str) -> None:
    source = (
        'import math\nexpected_inputs = [{"n": 1, "f": None, "s": None}, {"n": None, "f": 0.5, "s": "x"}]\n'
        'expected_output = [{"n": 2.0, "f": math.nan, "s": math.nan}, {"n": None, "f": 0.5, "s": "x"}]\n'
    )
    assert check(source + DOUBLE[engine]).details() == [""]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_number_is_not_its_text(check: Check, engine: str) -> None:
    outcome = check(INPUT + 'expected_output = [{"n": "2"}, {"n": "4"}]\n' + DOUBLE[engine])
    assert differences(outcome)[0] == "row 1, column n: expected '2', got 2"


@pytest.mark.parametrize("engine", ENGINES)
def test_row_order_counts_and_the_sentence_says_what_settles_it(check: Check, engine: str) -> None:
    outcome = check(INPUT + 'expected_output = [{"n": 4}, {"n": 2}]\n' + DOUBLE[engine])
    assert len(differences(outcome)) == 2
    assert ("orderBy" if engine == "spark" else "sort_values") in outcome.message


@pytest.mark.parametrize("engine", ENGINES)
def test_missing_and_extra_columns_and_rows_are_named(check: Check, engine: str) -> None:
    outcome = check('expected_inputs = [{"n": 1}, {"n": 7}]\nexpected_output = [{"m": 1, "n": 2}]\n' + DOUBLE[engine])
    assert differences(outcome) == ["column m is missing", "row 2 was not expected: {n: 14}"]


def test_sorted_rows_keep_their_order_also_where_their_keys_are_the_same(check: Check) -> None:
    """As in a run: not what a `limit` above the sort makes of them."""
    source = (
        "from pyspark.sql import functions as F\n"
        "expected_inputs = [{'k': 1, 'v': v} for v in range(50)]\n"
        "expected_output = [{'v': v} for v in range(50)]\n"
        "def run(df):\n    return df.coalesce(1).orderBy('k').select('v')\n"
    )
    assert check(source).details() == [""]


def test_rows_of_several_partitions_come_in_their_order(check: Check) -> None:
    source = (
        "from pyspark.sql import functions as F\n"
        "expected_inputs = [{'n': n} for n in range(10)]\n"
        "expected_output = [{'id': n} for n in range(5000)]\n"
        "def run(df):\n    return df.sparkSession.range(0, 5000, 1, 4)\n"
    )
    assert check(source).details() == [""]


def test_a_forgotten_reset_index_is_told(check: Check) -> None:
    source = (
        'import pandas as pd\nexpected_inputs = [{"k": "a", "n": 1}]\nexpected_output = [{"k": "a", "n": 1.0}]\n'
        'def run(df):\n    return df.groupby("k").sum()\n'
    )
    assert "reset_index()" in differences(check(source))[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_type_goes_in_and_comes_out_by_value(check: Check, engine: str) -> None:
    source = IMPORT[engine] + (
        "import datetime as d, decimal\n"
        "row = {'i': 1, 'f': 0.1, 's': 'é', 'b': True, 'day': d.date(2025, 1, 2), 'bin': b'\\x00a',\n"
        "       'at': d.datetime(2025, 1, 2, 3, 4, 5, 6), 'money': decimal.Decimal('1.10'), 'list': [1, None],\n"
        "       'dict': {'x': 1, 'y': 'z', 'deep': [{'q': 1}]}, 'none': None, 'long': d.timedelta(hours=30)}\n"
        "expected_inputs = [row, {'i': None, 'dict': {'x': 2}}, {'f': 1}]\n"
        "expected_output = [{**row, 'extra': None}, {'dict': {'x': 2}}, {'f': 1.0}]\n"
    )
    run = {
        "spark": "def run(df):\n    return df.withColumn('extra', F.lit(None).cast('string'))\n",
        "pandas": "def run(df):\n    return df.assign(extra=pd.NA)\n",
    }
    assert check(source + run[engine]).details() == [""]


def test_columns_of_spark_have_types_that_fit_all_rows(check: Check) -> None:
    source = (
        "from pyspark.sql import functions as F\nimport datetime as d, decimal\n"
        "expected_inputs = [{'a': 1, 'b': None, 'c': [None], 'e': 10**30, 'g': d.date(2025, 1, 1), 'h': {'x': 1}},\n"
        "                   {'f': 1, 'a': 2.5, 'c': [1, 2.5], 'e': 1, 'g': d.datetime(2025, 1, 1), 'h': {'y': 'k'}}]\n"
        "expected_output = [{'t': 'struct<a:double,b:string,c:array<double>,e:decimal(38,0),g:timestamp,'\n"
        "                         'h:struct<x:bigint,y:string>,f:bigint>'}]\n"
        "def run(df):\n    return df.select(F.lit(df.schema.simpleString()).alias('t')).limit(1)\n"
    )
    assert check(source).details() == [""]


def test_rows_that_no_type_fits_are_named(check: Check) -> None:
    outcome = check('expected_inputs = [{"n": 1}, {"n": "x"}]\n' + OUTPUT + DOUBLE["spark"])
    assert outcome.message == (
        f"{FILE}: expected_inputs, column n holds an int in row 1 and a str in row 2; a column of Spark has one type"
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_an_output_with_a_column_twice_is_told(check: Check, engine: str) -> None:
    run = {
        "spark": "def run(df):\n    return df.select('n', 'n')\n",
        "pandas": "def run(df):\n    return pd.concat([df, df], axis=1)\n",
    }
    outcome = check(IMPORT[engine] + INPUT + OUTPUT + run[engine])
    assert outcome.message == f"{FILE}: the output has two columns n; rename or drop one"


@pytest.mark.parametrize("engine", ENGINES)
def test_an_output_that_never_ends_is_not_read_to_its_end(check: Check, engine: str) -> None:
    run = {
        "spark": "def run(df):\n    return df.sparkSession.range(3_000_000).selectExpr('id as n')\n",
        "pandas": "def run(df):\n    return pd.DataFrame({'n': range(3_000_000)})\n",
    }
    outcome = check(IMPORT[engine] + INPUT + OUTPUT + run[engine])
    assert "at least 1,002 differences" in outcome.message
    lines = outcome.details()
    assert len(lines) == 1 + 20 + 1
    assert lines[-1] == "  … 982 more"


# What is no test, or no result ------------------------------------------------------------------------------------
@pytest.mark.parametrize("engine", ENGINES)
def test_a_missing_return_is_an_error(check: Check, engine: str) -> None:
    outcome = check(f"{IMPORT[engine]}{INPUT}{OUTPUT}def run(df):\n    df\n")
    assert outcome.message == f"{FILE}:4: `run` returned None; end it with `return df`"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_result_of_another_kind_is_an_error(check: Check, engine: str) -> None:
    outcome = check(f"{IMPORT[engine]}{INPUT}{OUTPUT}def run(df):\n    return [1]\n")
    assert outcome.message.startswith(f"{FILE}:4: `run` returned a list, not a ")


@pytest.mark.parametrize("engine", ENGINES)
def test_an_empty_output_where_rows_were_expected_is_an_error(check: Check, engine: str) -> None:
    run = {"spark": "df.where('n > 5')", "pandas": "df[df['n'] > 5]"}[engine]
    outcome = check(f"{IMPORT[engine]}{INPUT}{OUTPUT}def run(df):\n    return {run}\n")
    assert outcome.message == f"{FILE}: the output is empty, and 2 rows were expected"
    assert check(f"{IMPORT[engine]}{INPUT}expected_output = []\ndef run(df):\n    return {run}\n").is_ok


@pytest.mark.parametrize("engine", ENGINES)
def test_identical_input_and_output_are_an_error(check: Check, engine: str) -> None:
    source = f"{IMPORT[engine]}{INPUT}expected_output = expected_inputs\ndef run(df):\n    return df\n"
    assert check(source).message == (
        f"{FILE}: `expected_inputs` and `expected_output` are the same, so the example shows no change; show one"
    )


def test_a_change_of_type_alone_is_a_change(check: Check) -> None:
    source = "import pandas as pd\nexpected_inputs = [{'n': 1}]\nexpected_output = [{'n': 1.0}]\n"
    assert check(source + "def run(df):\n    return df.astype(float)\n").is_ok


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (OUTPUT, "has no `expected_inputs`; add an example, so that it can be tested"),
        (INPUT, "has no `expected_output`; add an example, so that it can be tested"),
        (INPUT + "expected_outputs = []\n", "has no `expected_output`; rename `expected_outputs`"),
        (INPUT + OUTPUT + "expected_input = []\n", "has `expected_inputs` and `expected_input`; keep one of them"),
        ("expected_inputs = 7\n" + OUTPUT, "expected_inputs is an int; give a list of dicts, or a DataFrame"),
        ("expected_inputs = [1]\n" + OUTPUT, "expected_inputs is an int; give a list of dicts, or a DataFrame"),
        ('expected_inputs = [{"n": 1}, 2]\n' + OUTPUT, "expected_inputs has an int for row 2; each row is a dict"),
        ('expected_inputs = [[{"n": 1}], {"n": 1}]\n' + OUTPUT, "element 1 of it is a row"),
        ('expected_inputs = {"n": [1], "m": 2}\n' + OUTPUT, "is a dict whose columns are not lists of one length"),
        (INPUT + "expected_output = None\n", "expected_output is None; give a list of dicts, or a DataFrame"),
        ("def expected_inputs(spark):\n    return []\n" + OUTPUT, "asks for `spark`, and a pipeline on pandas has no"),
        (INPUT + OUTPUT + "stream = {}\n", "has a `stream`, and `run` takes none"),
        (INPUT + OUTPUT + "stream = []\n", "`stream` is empty: there is no item to run it on"),
        (INPUT + OUTPUT + "stream = 'x'\n", "`stream` is neither a dict nor a list of dicts"),
    ],
)
def test_an_example_that_is_not_right_is_told(check: Check, source: str, told: str) -> None:
    outcome = check(source + DOUBLE["pandas"])
    assert not outcome.is_ok
    assert outcome.message.startswith(f"{FILE}: ")
    assert told in outcome.message


def test_too_few_inputs_are_told(check: Check) -> None:
    source = INPUT + OUTPUT + DOUBLE["pandas"].replace("run(df)", "run(df, df2)")
    assert "`run` asks for 2 DataFrames, and `expected_inputs` has 1" in check(source).message


# Errors -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("engine", ENGINES)
def test_an_error_is_told_with_the_lines_of_the_users_code_alone(check: Check, engine: str) -> None:
    source = f"{IMPORT[engine]}{INPUT}{OUTPUT}def inner(df):\n    return df['n']['x']\n\ndef run(df):\n    "
    source += {"spark": "return df.select('nowhere')\n", "pandas": "return inner(df)\n"}[engine]
    outcome = check(source)
    line = {"spark": 8, "pandas": 5}[engine]
    assert outcome.message.startswith(f"{FILE}:{line}: ")
    assert f'File "{FILE}", line 8, in run' in outcome.traceback
    assert "site-packages" not in outcome.traceback
    assert outcome.details()[-1] == outcome.message


def test_an_error_that_spark_raises_late_is_told_with_its_line(check: Check) -> None:
    source = f"{IMPORT['spark']}{INPUT}{OUTPUT}def run(df):\n    x = 1\n    return df.select(F.col('n') / F.lit(0))\n"
    outcome = check(source)
    assert outcome.message.startswith(f"{FILE}:6: ")
    assert "DIVIDE_BY_ZERO" in outcome.message


def test_a_file_that_is_missing_or_no_python_fails_its_case(check: Check, tmp_path: Path) -> None:
    assert check("def run(df)\n").message.startswith(f"{FILE}:1: ")
    case = dataclasses.replace(a_case(tmp_path, ""), name="nowhere")
    assert "there is no transformation 'nowhere'" in run_case(case, pytest.fail).message


def test_a_module_that_exits_or_raises_when_it_is_loaded_fails_its_case(check: Check) -> None:
    assert check("import pandas, sys\nsys.exit(3)\n").message == (
        f"{FILE}:2: the code ended its interpreter: sys.exit(3)"
    )
    assert check("import pandas\n1 / 0\n").message == f"{FILE}:2: ZeroDivisionError: division by zero"


# Engines ----------------------------------------------------------------------------------------------------------
def test_the_whole_pipelines_code_tells_the_engine_and_project_yml_has_the_last_word(tmp_path: Path) -> None:
    plain = INPUT + OUTPUT + DOUBLE["pandas"].removeprefix("import pandas as pd\n")
    a_case(tmp_path, "import pandas\n", name="other")
    case = a_case(tmp_path, plain)
    declared = dataclasses.replace(case, engine="pandas")
    together = dataclasses.replace(case, transformations=("other", "missing", "step"))
    for one in (declared, together):
        assert run_case(one, pytest.fail).is_ok
    a_case(tmp_path, "import pyspark\n", name="third")
    both = dataclasses.replace(case, transformations=("other", "step", "third"))
    assert "one pipeline has one engine" in run_case(both, pytest.fail).message


def test_what_one_case_leaves_in_its_process_or_session_is_not_the_next_ones(tmp_path: Path) -> None:
    source = DOUBLE["spark"].replace(
        "    return",
        "    import os, subprocess, sys, threading\n\n"
        "    spark = df.sparkSession\n"
        "    seen = [spark.catalog.tableExists('seen'), spark.conf.get('spark.sql.ansi.enabled') == 'false',\n"
        "            'SEEN' in os.environ, os.getcwd() == '/', hasattr(threading, 'seen')]\n"
        "    df.createTempView('seen')\n    spark.conf.set('spark.sql.ansi.enabled', 'false')\n"
        "    os.environ['SEEN'] = 'yes'\n    os.chdir('/')\n    threading.seen = 1\n"
        "    print(seen, type(os.environ).__module__, threading.Thread.start.__module__, type(sys.stdout).__module__,\n"
        "          subprocess.Popen.__init__.__module__)\n    return",
    )
    cases = [a_case(tmp_path, INPUT + OUTPUT + source, name=name) for name in ("one", "two")]
    one, two = run_apart(cases)
    assert (one.message, two.message) == ("", "")
    assert one.output == two.output == f"{[False] * 5} os threading _io subprocess\n"


def test_what_a_run_would_be_refused_its_example_is_refused(tmp_path: Path) -> None:
    source = DOUBLE["spark"].replace("    return", "    df.createGlobalTempView('seen')\n    return")
    case = a_case(tmp_path, INPUT + OUTPUT + source)
    with Validation() as validation:
        outcome = validation.run(case)
    assert outcome.message == (
        f"{FILE}:6: createGlobalTempView() makes a view for other sessions; use createOrReplaceTempView()"
    )


# Streams ----------------------------------------------------------------------------------------------------------
APPEND = {
    "spark": "def run(df, df2, stream=None):\n    new = stream.select('name')\n    return df.unionByName(new)\n",
    "pandas": "def run(df, df2, stream=None):\n"
    "    name = stream.pop('name')\n"
    "    return pd.concat([df, pd.DataFrame([{'name': name}])], ignore_index=True)\n",
}
ITEMS = "stream = [{'name': 'b'}, {'name': 'c'}]\nexpected_inputs = [[{'name': 'a'}], []]\n"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_stream_runs_on_its_items_one_by_one_in_pandas_and_at_once_in_spark(check: Check, engine: str) -> None:
    source = IMPORT[engine] + ITEMS + APPEND[engine]
    good = source + "expected_output = [{'name': 'a'}, {'name': 'b'}, {'name': 'c'}]\n"
    assert check(good).details() == [""]
    assert check(good).details() == [""]  # `pop` took it out of a copy
    bad = source + "expected_output = [{'name': 'a'}, {'name': 'c'}]\n"
    assert differences(check(bad)) == ["row 2 is missing: {name: 'c'}"] or differences(check(bad)) == [
        "row 2 was not expected: {name: 'b'}"
    ]


def test_one_dict_is_a_stream_of_one_item(check: Check) -> None:
    source = IMPORT["pandas"] + ITEMS + APPEND["pandas"] + "stream = stream[1]\n"
    assert check(source + "expected_output = [{'name': 'a'}, {'name': 'c'}]\n").details() == [""]


def test_an_error_names_the_item_of_the_stream(check: Check) -> None:
    source = IMPORT["pandas"] + ITEMS.replace("{'name': 'c'}", "{}") + APPEND["pandas"] + "expected_output = []\n"
    message = check(source).message
    assert message.startswith(f"{FILE}:5: KeyError")
    assert message.endswith(" (item 2 of `stream`)")


def test_without_a_stream_the_parameter_keeps_its_default(check: Check) -> None:
    source = INPUT + OUTPUT + DOUBLE["pandas"].replace("run(df)", "run(df, stream=None)")
    assert check(source.replace("* 2", "* (2 if stream is None else 3)")).is_ok


# Which cases there are --------------------------------------------------------------------------------------------
PROJECT = """\
name: shop
spark: {conf: {spark.sql.session.timeZone: Europe/Lisbon}}
pipelines:
  - {slug: clean, sources: [a], destination: b, transformations: [one, two.py, one]}
  - {slug: clean.up, sources: [b], destination: c, transformations: [one], engine: pandas}
  - {slug: copy, sources: [c], destination: d}
"""


@pytest.fixture
def shop(tmp_path: Path) -> str:
    (tmp_path / "project.yml").write_text(PROJECT)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([], ["clean.one", "clean.two", "clean.up.one"]),
        (["clean"], ["clean.one", "clean.two"]),
        (["clean.two"], ["clean.two"]),
        (["clean.two.py"], ["clean.two"]),
        (["clean.up"], ["clean.up.one"]),
        (["clean.up.one"], ["clean.up.one"]),
        (["pipelines/clean/two.py"], ["clean.two"]),
        (["clean.two", "clean"], ["clean.two", "clean.one"]),
        (["copy"], []),
    ],
)
def test_cases_are_found_by_pipeline_name_and_path(shop: str, wanted: list[str], found: list[str]) -> None:
    cases = find_cases(shop, wanted)
    assert [case.id for case in cases] == found
    assert all(case.conf == {"spark.sql.session.timeZone": "Europe/Lisbon"} for case in cases)
    assert {case.engine for case in cases} <= {None, "pandas"}


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("claen", "no pipeline 'claen'; did you mean 'clean'"),
        ("claen.two", "no pipeline 'claen'; did you mean 'clean'"),
        ("xyzzy", "no pipeline 'xyzzy'; it has clean, clean.up, copy"),
        ("clean.twoo", "pipeline 'clean' has no transformation 'twoo'; did you mean 'two'"),
        ("clean.xyzzy", "pipeline 'clean' has no transformation 'xyzzy'; it has one, two"),
        ("copy.one", "pipeline 'copy' has no transformation 'one'; it has none"),
    ],
)
def test_a_name_that_is_none_is_told_with_the_nearest(shop: str, wanted: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_cases(shop, [wanted])
    assert told in str(refused.value)


def test_a_project_file_that_is_not_right_is_told(shop: str) -> None:
    Path(shop, "project.yml").write_text(PROJECT + "x: 1\n")
    with pytest.raises(ConfigurationError, match=r"project\.yml:7"):
        find_cases(shop)


# The process that runs them ---------------------------------------------------------------------------------------
def run_apart(cases: list[Case], *, timeout_seconds: float = 120) -> list[Outcome]:
    with Validation(timeout_seconds=timeout_seconds) as validation:
        return list(validation.run_all(cases))


GOOD = INPUT + OUTPUT + DOUBLE["pandas"]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("os._exit(3)", f"{FILE}: the process it ran in was ended, with exit code 3"),
        ("os.kill(os.getpid(), 11)", f"{FILE}: the process it ran in was killed by SIGSEGV"),
        ("sys.exit('enough')", f"{FILE}:8: the code ended its interpreter: sys.exit('enough')"),
    ],
)
def test_code_that_ends_its_process_fails_alone_and_what_it_printed_is_kept(
    tmp_path: Path, code: str, told: str
) -> None:
    source = f"import os, sys\n{GOOD}".replace('    df["n"]', f'    print("so far", end="")\n    {code}\n    df["n"]')
    bad, good = run_apart([a_case(tmp_path, source), a_case(tmp_path, GOOD, name="good")])
    assert (bad.message, bad.output) == (told, "so far")
    assert good.is_ok


def test_code_that_never_ends_fails_alone_with_its_line(tmp_path: Path) -> None:
    source = GOOD.replace('    df["n"]', '    print("here")\n    while True:\n        pass\n    df["n"]')
    bad, good = run_apart([a_case(tmp_path, source), a_case(tmp_path, GOOD, name="good")], timeout_seconds=2)
    assert bad.message.startswith((f"{FILE}:7: did not end within 2 s", f"{FILE}:8: did not end within 2 s"))
    assert "--timeout" in bad.message
    assert bad.output == "here\n"
    assert good.is_ok


def test_a_flood_of_output_is_kept_in_part(tmp_path: Path) -> None:
    flood = "for _ in range(2000):\n        print('x' * 1000)\n    os.system('head -c 3000000 /dev/zero')\n    "
    source = f"import os\n{GOOD}".replace('    df["n"]', f'    {flood}print("last é")\n    df["n"]')
    (outcome,) = run_apart([a_case(tmp_path, source)])
    assert outcome.is_ok
    assert outcome.output.startswith("xxx")
    assert outcome.output.endswith("last é\n")
    assert "characters left out" in outcome.output
    assert len(outcome.output) < 100_000


@pytest.mark.parametrize("engine", ENGINES)
def test_output_and_errors_may_have_any_bytes(tmp_path: Path, engine: str) -> None:
    source = f"import os\n{INPUT}{OUTPUT}{DOUBLE[engine]}"
    printing = source.replace("    df[", "    print(os.fsdecode(b'caf\\xe9'))\n    df[").replace(
        "    return df.", "    print(os.fsdecode(b'caf\\xe9'))\n    return df."
    )
    failing = printing.replace("print(", "raise ValueError(")
    good, bad = run_apart([a_case(tmp_path, printing), a_case(tmp_path, failing, name="bad")])
    assert (good.details(), good.output) == ([""], "caf\\udce9\n")
    assert "ValueError: caf" in bad.message
    for one in (good, bad):
        json.dumps(one.as_json(), ensure_ascii=False).encode()  # any terminal and store takes it


def test_code_does_not_get_at_the_input_or_the_passkey_and_runs_in_the_projects_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_PASSKEY", "secret")
    source = "import os, sys\n" + GOOD.replace(
        '    df["n"]',
        "    print(repr(sys.stdin.read()), os.environ.get('DATAFLOW_PASSKEY'), os.getcwd())\n    df[\"n\"]",
    )
    outcomes = run_apart([a_case(tmp_path, source), a_case(tmp_path, GOOD, name="next")])
    assert [one.is_ok for one in outcomes] == [True, True]
    assert outcomes[0].output == f"'' None {tmp_path}\n"
    assert outcomes[1].output == ""


def test_modules_of_the_project_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "shared_rates.py").write_text("FACTOR = 2\n")
    source = "from shared_rates import FACTOR\n" + GOOD.replace("* 2", "* FACTOR")
    (outcome,) = run_apart([a_case(tmp_path, source)])
    assert outcome.details() == [""]


def test_nothing_is_left_running(tmp_path: Path) -> None:
    source = "import os, subprocess\n" + GOOD.replace(
        '    df["n"]', "    print(os.getpid(), subprocess.Popen(['sleep', '600']).pid)\n    os._exit(1)\n    df[\"n\"]"
    )
    (outcome,) = run_apart([a_case(tmp_path, source)])
    assert "exit code 1" in outcome.message
    wait_for(lambda: not any(_lives(int(pid)) for pid in outcome.output.split()), "all of them are gone")


def _lives(pid: int) -> bool:
    """A killed one may stay as a zombie where nobody takes its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# The command ------------------------------------------------------------------------------------------------------
SHOP = "name: shop\npipelines:\n  - {{slug: clean, sources: [a], destination: b, transformations: [{}]}}\n"


def a_project(project: Project, **sources: str) -> None:
    project.write("project.yml", SHOP.format(", ".join(sources)))
    for name, source in sources.items():
        project.write(f"pipelines/clean/{name}.py", source)


def without_seconds(text: str) -> str:
    """A busy machine may need more than a second, which is told then."""
    return re.sub(r" in \d+\.\d s$", "", text, flags=re.MULTILINE)


def test_the_command_tells_each_case_and_ends_with_a_sentence(sqlite_project: Project) -> None:
    bad = GOOD.replace('"n": 4', '"n": 5').replace('    df["n"]', '    print("hello")\n    df["n"]')
    a_project(sqlite_project, good=GOOD, bad=bad)
    done = sqlite_project.dataflow("validate")
    assert done.returncode == 1
    assert without_seconds(done.stdout) == (
        "clean.good ok\n"
        "clean.bad FAILED\n"
        "  pipelines/clean/bad.py: the output is not what was expected: 1 difference\n"
        "    row 2, column n: expected 5, got 4\n"
        "  what it printed:\n"
        "    hello\n"
    )
    assert done.stderr == "1 of 2 transformations failed\n"
    fine = sqlite_project.dataflow("validate", "clean.good", cwd=sqlite_project.folder / "pipelines")
    assert (fine.returncode, without_seconds(fine.stdout)) == (0, "clean.good ok\n")
    assert fine.stderr == "1 transformation: as expected\n"
    assert not (sqlite_project.folder / ".dataflow").exists()  # no store is needed


def test_output_of_a_good_case_is_shown_when_asked_for(sqlite_project: Project) -> None:
    a_project(sqlite_project, good=GOOD.replace('    df["n"]', '    print("hello")\n    df["n"]'))
    assert "hello" not in sqlite_project.dataflow("validate").stdout
    assert "    hello\n" in sqlite_project.dataflow("validate", "-v").stdout


def test_the_outcomes_as_json_and_as_junit(sqlite_project: Project) -> None:
    noisy = GOOD.replace('"n": 4', '"n": 5').replace('    df["n"]', '    print("\\x1b[31m<hot>\\0")\n    df["n"]')
    a_project(sqlite_project, good=GOOD, bad=noisy)
    done = sqlite_project.dataflow("validate", "--json", "--junit", "out.xml")
    assert done.returncode == 1
    good, bad = json.loads(done.stdout)
    assert (good["id"], good["status"], good["differences"]) == ("clean.good", "ok", [])
    assert good["seconds"] >= 0
    assert bad["differences"] == [{"kind": "cell", "row": 2, "column": "n", "expected": "5", "got": "4"}]
    suite = ET.parse(sqlite_project.folder / "out.xml").getroot().find("testsuite")  # noqa: S314  our own
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    cases = suite.findall("testcase")
    assert [(one.get("classname"), one.get("name")) for one in cases] == [("clean", "good"), ("clean", "bad")]
    assert cases[0].find("failure") is None
    failure = cases[1].find("failure")
    assert failure is not None
    assert "row 2, column n: expected 5, got 4" in str(failure.text)
    assert "[31m<hot>" in str(cases[1].findtext("system-out"))


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("claen",), "did you mean 'clean'"),
        (("clean.god",), "did you mean 'good'"),
        (("--junit", "no/such/folder/x.xml"), "no/such/folder/x.xml cannot be written"),
    ],
)
def test_what_cannot_be_done_exits_2(sqlite_project: Project, argv: tuple[str, ...], told: str) -> None:
    a_project(sqlite_project, good=GOOD)
    done = sqlite_project.dataflow("validate", *argv)
    assert done.returncode == 2
    assert told in done.stderr


def test_a_broken_or_missing_project_file_exits_2(sqlite_project: Project) -> None:
    assert sqlite_project.dataflow("validate").returncode == 2
    a_project(sqlite_project, good=GOOD)
    sqlite_project.write("project.yml", "name: x\npipelines: 7\n")
    done = sqlite_project.dataflow("validate")
    assert done.returncode == 2
    assert "project.yml:2" in done.stderr
    sqlite_project.write("project.yml", "name: x\n")
    done = sqlite_project.dataflow("validate")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no transformation to validate" in done.stderr


@pytest.mark.usefixtures("own_driver")
def test_one_spark_serves_all_cases_and_a_new_one_those_after_it_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times without zone are those of the session, wherever the machine is."""
    monkeypatch.setenv("TZ", "America/New_York")
    source = DOUBLE["spark"] + INPUT + OUTPUT
    who = source.replace("    return", "    print(df.sparkSession.sparkContext.applicationId)\n    return")
    times = (
        "from pyspark.sql import functions as F\nimport datetime as d\n"
        "expected_inputs = [{'t': '2025-01-02 03:04:05'}]\n"
        "expected_output = [{'t': d.datetime(2025, 1, 2, 3, 4, 5),\n"
        "                    'u': d.datetime(2025, 1, 2, 3, 4, 5, tzinfo=d.UTC)}]\n"
        "def run(df):\n    t = F.to_timestamp('t')\n    return df.select(t.alias('t'), t.alias('u'))\n"
    )
    pid = "df.sparkSession.sparkContext._jvm.java.lang.ProcessHandle.current().pid()"
    killer = source.replace("    return", f"    import os\n\n    os.kill({pid}, 9)\n    return")
    cases = [
        a_case(tmp_path, text, name=name)
        for name, text in (("one", who), ("times", times), ("two", who + "#\n"), ("killer", killer), ("three", who))
    ]
    one, in_zone, two, killed, three = run_apart(cases)
    assert [one.message, in_zone.message, two.message, three.message] == ["", "", "", ""]
    assert one.output == two.output != three.output
    assert one.output.startswith("local-")
    assert killed.message == "pipelines/clean/killer.py: Spark's Java process was killed by signal 9"
    assert in_zone.is_ok


def test_the_projects_settings_of_spark_apply_and_no_cluster_is_asked(sqlite_project: Project) -> None:
    code = DOUBLE["spark"].replace(
        "    return",
        "    conf = df.sparkSession.conf\n"
        "    print(conf.get('spark.sql.caseSensitive'), df.sparkSession.sparkContext.master)\n    return",
    )
    sqlite_project.write("pipelines/clean/step.py", INPUT + OUTPUT + code)
    sqlite_project.write(
        "project.yml",
        SHOP.format("step") + 'spark: {master: "spark://nowhere:7077", conf: {spark.sql.caseSensitive: true}}\n',
    )
    (outcome,) = validate(str(sqlite_project.folder), "clean.step")
    assert (outcome.message, outcome.output) == ("", "true local[1]\n")


def test_validate_is_also_a_function(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "project.yml").write_text(SHOP.format("step"))
    a_case(tmp_path, GOOD)
    found: list[Any] = validate(str(tmp_path))
    assert [(one.id, one.is_ok) for one in found] == [("clean.step", True)]
