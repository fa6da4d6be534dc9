"""The files of a new project: small enough to be read in five minutes, and working as they are."""

SLUG = "revenue"

PROJECT = """\
# yaml-language-server: $schema=.vscode/project.schema.json
name: {name}

# `dataflow apply` registers what stands here. A source that is not declared under `datasets:` is sources/<name>.csv,
# such a destination is output/<name>.csv, and a source that is another pipeline's destination is chained to it.
pipelines:
  - slug: revenue                        # its code is in pipelines/revenue/
    sources: [orders, customers]         # given to run(df, df2, …) in this order
    destination: revenue_by_country
    transformations: [drop_cancelled, add_up_by_country]   # the first DataFrame goes from one to the next
    engine: {engine}
    checks:
      - rows: {{min: 1}}
      - not_null: [country, revenue]
"""

ORDERS = """\
order_id,customer_id,status,quantity,unit_price
1001,1,paid,2,19.90
1002,2,paid,1,249.00
1003,1,cancelled,3,5.50
1004,3,paid,10,1.25
1005,4,paid,1,99.00
1006,2,cancelled,1,12.00
1007,4,paid,2,15.75
"""

CUSTOMERS = """\
customer_id,name,country
1,Ada,PT
2,Grace,DE
3,Edsger,NL
4,Barbara,DE
"""

DROP_SPARK = '''\
"""Cancelled orders bring no money."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

expected_inputs = [
    {"order_id": 1, "customer_id": 7, "status": "paid", "quantity": 2, "unit_price": 1.5},
    {"order_id": 2, "customer_id": 7, "status": "cancelled", "quantity": 1, "unit_price": 9.0},
]

expected_output = [
    {"order_id": 1, "customer_id": 7, "quantity": 2, "unit_price": 1.5},
]


def run(df: DataFrame) -> DataFrame:
    return df.where(F.col("status") != "cancelled").drop("status")
'''

ADD_SPARK = '''\
"""What each country's customers paid; the second source says where they live."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

expected_inputs = [
    [
        {"order_id": 1, "customer_id": 7, "quantity": 2, "unit_price": 1.5},
        {"order_id": 2, "customer_id": 8, "quantity": 1, "unit_price": 4.0},
        {"order_id": 3, "customer_id": 7, "quantity": 1, "unit_price": 0.5},
    ],
    [
        {"customer_id": 7, "name": "Ada", "country": "PT"},
        {"customer_id": 8, "name": "Grace", "country": "DE"},
    ],
]

expected_output = [
    {"country": "DE", "orders": 1, "revenue": 4.0},
    {"country": "PT", "orders": 2, "revenue": 3.5},
]


def run(df: DataFrame, df2: DataFrame) -> DataFrame:
    countries = df2.select("customer_id", "country")
    return (
        df.join(countries, on="customer_id", how="inner")
        .groupBy("country")
        .agg(F.count("*").alias("orders"), F.round(F.sum(F.col("quantity") * F.col("unit_price")), 2).alias("revenue"))
        .orderBy("country")
    )
'''

DROP_PANDAS = '''\
"""Cancelled orders bring no money."""

import pandas as pd

expected_inputs = [
    {"order_id": 1, "customer_id": 7, "status": "paid", "quantity": 2, "unit_price": 1.5},
    {"order_id": 2, "customer_id": 7, "status": "cancelled", "quantity": 1, "unit_price": 9.0},
]

expected_output = [
    {"order_id": 1, "customer_id": 7, "quantity": 2, "unit_price": 1.5},
]


def run(df: pd.DataFrame) -> pd.DataFrame:
    return df[df["status"] != "cancelled"].drop(columns="status")
'''

ADD_PANDAS = '''\
"""What each country's customers paid; the second source says where they live."""

import pandas as pd

expected_inputs = [
    [
        {"order_id": 1, "customer_id": 7, "quantity": 2, "unit_price": 1.5},
        {"order_id": 2, "customer_id": 8, "quantity": 1, "unit_price": 4.0},
        {"order_id": 3, "customer_id": 7, "quantity": 1, "unit_price": 0.5},
    ],
    [
        {"customer_id": 7, "name": "Ada", "country": "PT"},
        {"customer_id": 8, "name": "Grace", "country": "DE"},
    ],
]

expected_output = [
    {"country": "DE", "orders": 1, "revenue": 4.0},
    {"country": "PT", "orders": 2, "revenue": 3.5},
]


def run(df: pd.DataFrame, df2: pd.DataFrame) -> pd.DataFrame:
    orders = df.merge(df2[["customer_id", "country"]], on="customer_id", how="inner")
    orders["revenue"] = orders["quantity"] * orders["unit_price"]
    totals = orders.groupby("country").agg(orders=("order_id", "count"), revenue=("revenue", "sum"))
    return totals.round({"revenue": 2}).reset_index()
'''

TESTS = '''\
"""`pytest` checks the project as its CI does: project.yml and all code, then every transformation on its example."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("command", ["check-project", "validate"])
def test_the_command_finds_nothing_wrong(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "opendataflow.cli.main", command], cwd=PROJECT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
'''

README = """\
# {title}

A [project](project.yml) of OpenDataFlow: files in `sources/`, transformations in `pipelines/`, results in `output/`.

```bash
dataflow check-project     # is anything wrong? Nothing is run
dataflow validate          # every transformation on its expected inputs
dataflow apply             # register project.yml in the store, .dataflow/state.db
dataflow run revenue       # run the pipeline; its result is output/revenue_by_country.csv
dataflow status            # where everything stands
```

`dataflow run revenue` again does nothing until something changes: edit `sources/orders.csv`, and it takes the new
version in; `dataflow resubmit revenue full` has it done again all the same.

## A pipeline of your own
1. Put its data into `sources/`, or declare where it is under `datasets:` in project.yml.
2. Write `pipelines/<slug>/<name>.py` with `run(df, df2, …)`: the first DataFrame goes from one transformation to the
   next, the others are the pipeline's further sources. `expected_inputs` and `expected_output` are its test.
3. Add the pipeline to project.yml, then `dataflow check-project`, `dataflow validate` and `dataflow apply`.

`pytest` and [the workflow](.github/workflows/ci.yml) check the same. Spark needs Java 17 or newer.
"""

GITIGNORE = """\
.dataflow/
output/
__pycache__/
.pytest_cache/
.venv/
"""

WORKFLOW = """\
name: ci
on: [push, pull_request]
permissions: {contents: read}
# Actions by commit: what a tag points to can be replaced.
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683 # v4.2.2
        with: {persist-credentials: false}
      - uses: actions/setup-python@a26af69be951a213d495a4c3e4e4022e16d87065 # v5.6.0
        with: {python-version: "3.12"}
      - uses: actions/setup-java@c5195efecf7bdfc987ee8bae7a71cb8b11521c00 # v4.7.1
        with: {distribution: temurin, java-version: "17"}
      - run: pip install 'opendataflow[spark]'
      - run: dataflow check-project
      - run: dataflow validate
"""

# project.yml in VS Code: keys are completed and explained. The schema lies beside, so it needs no network.
VSCODE_SETTINGS = """\
{
  "yaml.schemas": {".vscode/project.schema.json": "project.yml"}
}
"""

VSCODE_EXTENSIONS = """\
{
  "recommendations": ["redhat.vscode-yaml"]
}
"""
