"""Bad project.yml: every kind is refused with file, line, key and the nearest suggestion, never with a traceback."""

import datetime
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from opendataflow.domain.dataset import Dataset
from opendataflow.domain.partitions.scheme import SCHEMES
from opendataflow.domain.registration import LinkSpec, Registration
from opendataflow.errors import ConfigurationError
from opendataflow.project.address import get_address
from opendataflow.project.registration.load import load_registration
from opendataflow.project.secrets import encrypt
from opendataflow.store import open_store
from opendataflow.store.migrate import upgrade
from opendataflow.store.registry import apply

HEAD = "name: x\nenvironments: {dev: {}}\n"  # the cases go on with line 3
JOB = """\
name: x
environments: {dev: {}}
datasets:
  orders: {path: "orders/{dataid}", partitions: {daily: 2025-01-01}}
  totals: {path: "totals/{dataid}"}
jobs:
  load:
    outputs: [totals]
"""  # the cases go on with line 9
MAPS = (
    "is not same, full, rollup, all, {offset: N} with a whole number other than 0, "
    "or {window: N} with a whole number of 1 or more"
)
BELOW = "give a path below the environment's root, without a leading / and without .."
INPUT = "an input is a dataset's name, or one name with its options, like {rates: {map: full}}"
ADDRESS = "is not an address like postgresql://reader@localhost:5432/crm"
SCALAR = 'should be a text, a number, true or false; an empty text is ""'


def loaded(folder: Path, text: str, *, environment: str = "dev") -> Registration:
    (folder / "project.yml").write_text(text, encoding="utf-8")
    return load_registration(str(folder), environment)


def problem(folder: Path, text: str, *, environment: str = "dev") -> str:
    """What is said against the file, from the line number on."""
    with pytest.raises(ConfigurationError) as refused:
        loaded(folder, text, environment=environment)
    assert refused.value.exit_code == 2
    return str(refused.value).removeprefix(f"{folder}/project.yml:")


# The text itself ----------------------------------------------------------------------------------------------------
TEXTS = {
    "nothing": ("", "1: a project needs at least `name: …`"),
    "a list": ("- a\n", "1: a project needs at least `name: …`"),
    "only comments": ("# name: x\n", "1: a project needs at least `name: …`"),
    "a bracket left open": (
        "name: [x\nspark: y\n",
        "2: name: not valid YAML: while parsing a flow sequence did not find expected ',' or ']'"),
    "a quote left open": (
        "name: x\nspark: 'y\n", "3: not valid YAML: while scanning a quoted scalar found unexpected end of stream"),
    "a tab": (
        "name: x\nspark:\n\tmaster: y\n",
        "3: not valid YAML: a tab stands where blanks are needed; YAML is indented with blanks"),
    "a colon in a value": (
        "name: a: b\n",
        "1: not valid YAML: mapping values are not allowed in this context; quote a value that holds `: `"),
    "a control character": ("name: x\nspark: \x07\n", "2: not valid YAML: control characters are not allowed"),
    "a NUL": ('name: "a\\0b"\n', "1: name: holds a NUL character"),
    "a NUL in a key": ('name: x\ndatasets: {"a\\0b": {}}\n', "2: datasets: 'a\\x00b': holds a NUL character"),
    "half a surrogate pair": (
        'name: "\\ud800"\n',
        "1: not valid YAML: while parsing a quoted scalar found invalid Unicode character escape code"),
    "two documents": ("name: x\n---\nname: y\n", "2: a second document begins here; a project is one"),
    "a tag": ("name: !!binary aGk=\n", "1: name: the tag !!binary has no meaning here; write the value without it"),
    "a Python object": (
        "name: x\njobs: !!python/object:os.system {}\n",
        "2: jobs: the tag !!python/object:os.system has no meaning here; write the value without it"),
    "a key that is a list": ("name: x\ndatasets: {[a]: {}}\n", "2: datasets: a key is a text, not a list or a mapping"),
    "a key that is an alias": ("name: &n x\n*n : y\n", "2: a key is a text, not an alias"),
    "a key twice": (HEAD + "datasets:\n  a: {}\n  a: {}\n", "5: datasets.a: stands here twice, on line 4 too"),
    "a section twice": (HEAD + "jobs: {}\njobs: {}\n", "4: jobs: stands here twice, on line 3 too"),
    "an alias of nothing": ("name: *gone\n", "1: name: the alias *gone has no anchor &gone before it"),
    "an alias of itself": (
        "name: x\njobs: &j {a: {env: *j}}\n", "2: jobs.a.env: the alias *j stands inside what it stands for"),
    "a merge of a text": ("name: x\n<<: y\n", "2: <<: `<<` takes a mapping, or a list of them"),
    "very deep nesting": ("name: x\njobs: " + "[" * 100_000, "2: nests deeper than 100 levels"),
    "very many dashes": ("- " * 5000, "1: nests deeper than 100 levels"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), TEXTS.values(), ids=TEXTS)
def test_text_that_is_no_project_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert problem(tmp_path, text) == said


def test_aliases_that_stand_for_too_much_are_refused(tmp_path: Path) -> None:
    text = HEAD + "spark:\n  a0: &a0 [1, 2]\n"
    for level in range(1, 9):
        text += f"  a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n"
    assert problem(tmp_path, text) == "10: spark.a6: its aliases stand for more than 1,000,000 values"
    deep = HEAD + "spark:\n  a0: &a0 " + "[" * 60 + "]" * 60 + "\n  a1: " + "[" * 60 + "*a0" + "]" * 60 + "\n"
    assert problem(tmp_path, deep).startswith("5: spark.a1.0.")


def test_bytes_that_are_no_utf_8_are_refused_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "project.yml").write_bytes(b"name: x\n# f\xfcr sp\xe4ter\n")
    with pytest.raises(ConfigurationError) as refused:
        load_registration(str(tmp_path), "dev")
    assert str(refused.value) == f"{tmp_path}/project.yml:2: is not UTF-8 text: byte 0xfc; save it as UTF-8"


# Project and environments -------------------------------------------------------------------------------------------
ENVIRONMENTS = {
    "no name": ("environments: {dev: {}}\n", "1: name: is missing"),
    "a name that is empty": ("name:\nenvironments: {dev: {}}\n", "1: name: is missing"),
    "a name of blanks": ("name: '  '\nenvironments: {dev: {}}\n", "1: name: is empty"),
    "a name that is a list": ("name: [x]\nenvironments: {dev: {}}\n", "1: name: should be a text, not a list"),
    "a name of two lines": (
        'name: "a\\nb"\nenvironments: {dev: {}}\n',
        "1: name: a name is one line of printable characters; 'a\\nb' is not"),
    "a very long name": (
        f"name: {'x' * 201}\nenvironments: {{dev: {{}}}}\n",
        "1: name: a name has at most 200 bytes; this one has 201"),
    "an unknown section": (HEAD + "datasts: {}\n", "3: datasts: unknown key; did you mean `datasets`?"),
    "an unknown section with nothing in it": (HEAD + "job:\n", "3: job: unknown key; did you mean `jobs`?"),
    "environments as a list": (
        "name: x\nenvironments: [dev]\n", "2: environments: should be a mapping like {key: value}, not a list"),
    "an environment that is a text": (
        "name: x\nenvironments:\n  dev: data\n",
        "3: environments.dev: should be a mapping like {key: value}, not a text"),
    "an environment without a name": (
        "name: x\nenvironments: {'': {}}\n", "2: environments.'': a name cannot be empty"),
    "an environment with blanks around it": (
        "name: x\nenvironments:\n  ' dev': {}\n",
        "3: environments. dev: a name has no blanks before or after it; ' dev' has"),
    "another environment": (
        "name: x\nenvironments:\n  deev: {}\n",
        "2: environments: there is no environment 'dev'; known are deev; did you mean 'deev'?"),
    "no environment": (
        "name: x\nenvironments:\n", "2: environments: there is no environment 'dev'; known are default"),
    "an unknown key of an environment": (
        "name: x\nenvironments:\n  dev:\n    rot: data\n",
        "4: environments.dev.rot: unknown key; did you mean `root`?"),
    "a root that is empty": ("name: x\nenvironments:\n  dev: {root: ''}\n", "3: environments.dev.root: is empty"),
    "a root that is a list": (
        "name: x\nenvironments:\n  dev: {root: [a]}\n", "3: environments.dev.root: should be a text, not a list"),
    "a store with a password": (
        "name: x\nenvironments:\n  dev: {store: 'postgresql://etl:hunter2@db/state'}\n",
        "3: environments.dev.store: holds a password; let the address come from the environment: ${DATAFLOW_STORE}"),
    "Spark's settings as a list": (
        "name: x\nenvironments:\n  dev: {spark: {conf: [a]}}\n",
        "3: environments.dev.spark.conf: should be a mapping like {key: value}, not a list"),
    "a setting of Spark that is a list": (HEAD + "spark:\n  conf:\n    a: [b]\n", f"5: spark.conf.a: {SCALAR}"),
    "an unknown key of Spark": (HEAD + "spark: {masetr: x}\n", "3: spark.masetr: unknown key; did you mean `master`?"),
    "changes as a list": (
        "name: x\nenvironments:\n  dev: {datasets: [a]}\n",
        "3: environments.dev.datasets: should be a mapping like {key: value}, not a list"),
    "a change of an unknown dataset": (
        "name: x\nenvironments:\n  dev:\n    datasets: {order: {path: a}}\ndatasets: {orders: {}}\n",
        "4: environments.dev.datasets.order: dataset 'order' is not declared; did you mean 'orders'?"),
    "a change of an unknown key": (
        "name: x\nenvironments:\n  dev:\n    datasets: {orders: {pth: a}}\ndatasets: {orders: {}}\n",
        "4: environments.dev.datasets.orders.pth: unknown key; did you mean `path`?"),
    "an unknown dataset in an environment that is not used": (
        "name: x\nenvironments:\n  dev: {}\n  prod: {datasets: {order: {}}}\ndatasets: {orders: {}}\n",
        "4: environments.prod.datasets.order: dataset 'order' is not declared; did you mean 'orders'?"),
    "an unknown key in an environment that is not used": (
        "name: x\nenvironments:\n  dev: {}\n  prod: {datasets: {orders: {pth: a}}}\ndatasets: {orders: {}}\n",
        "4: environments.prod.datasets.orders.pth: unknown key; did you mean `path`?"),
    "a change to a bad value": (
        "name: x\nenvironments:\n  dev:\n    datasets: {orders: {path: /a}}\ndatasets: {orders: {path: b}}\n",
        f"4: environments.dev.datasets.orders.path: {BELOW}"),
    "a change that does not go with the rest": (
        "name: x\nenvironments:\n  dev:\n    datasets: {a: {url: 'postgresql://h/d'}}\ndatasets: {a: {path: b}}\n",
        "4: environments.dev.datasets.a: has both `path` and `url`; give one of them"),
    "a change to another's place": (
        "name: x\nenvironments:\n  dev:\n    datasets: {b: {path: a}}\ndatasets: {a: {path: a}, b: {path: b}}\n",
        "4: environments.dev.datasets.b.path: 'a' is the same place as that of 'a', or one lies in the other: 'a'"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_a_bad_environment_is_refused_with_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    assert problem(tmp_path, text) == said


# Datasets -----------------------------------------------------------------------------------------------------------
DATASETS = {
    "datasets as a list": ("datasets: [a]", "3: datasets: should be a mapping like {key: value}, not a list"),
    "datasets as a text": ("datasets: a", "3: datasets: should be a mapping like {key: value}, not a text"),
    "a dataset that is a list": (
        "datasets:\n  a: [b]", "4: datasets.a: should be a mapping like {key: value}, not a list"),
    "an unknown key": ("datasets:\n  a:\n    pth: b", "5: datasets.a.pth: unknown key; did you mean `path`?"),
    "an unknown key with nothing after it": (
        "datasets:\n  a:\n    pth:", "5: datasets.a.pth: unknown key; did you mean `path`?"),
    "a name with a slash": ("datasets:\n  a/b: {}", "4: datasets.a/b: 'a/b' cannot be a name: it holds a `/`"),
    "a name of two lines": (
        'datasets:\n  "a\\nb": {}',
        "4: datasets.'a\\nb': a name is one line of printable characters; 'a\\nb' is not"),
    "no name": ("datasets:\n  '': {}", "4: datasets.'': a name cannot be empty"),
    "a name of dots": ("datasets:\n  ..: {}", "4: datasets...: '..' cannot be a name"),
    "a very long name": (
        f"datasets:\n  {'ö' * 101}: {{}}",
        f"4: datasets.{'ö' * 101}: a name has at most 200 bytes; this one has 202"),
    "the name of a clock": (
        "datasets:\n  today: {}",
        "4: datasets.today: is a clock, which is always there; leave it out, or choose another name"),
    "a name like a clock's": (
        "datasets:\n  every order: {}",
        "4: datasets.every order: names that begin with `every` or `cron` are for clocks; choose another"),
    "an absolute path": ("datasets:\n  a: {path: /etc}", f"4: datasets.a.path: {BELOW}"),
    "a path out of the root": ("datasets:\n  a: {path: b/../../c}", f"4: datasets.a.path: {BELOW}"),
    "a path at home": ("datasets:\n  a: {path: ~/b}", f"4: datasets.a.path: {BELOW}"),
    "a path elsewhere": ("datasets:\n  a: {path: 's3a://bucket/b'}", f"4: datasets.a.path: {BELOW}"),
    "an empty path": ("datasets:\n  a: {path: ''}", f"4: datasets.a.path: {BELOW}"),
    "a path that is a list": ("datasets:\n  a: {path: [b]}", "4: datasets.a.path: should be a text, not a list"),
    "a path of two lines": (
        'datasets:\n  a: {path: "b\\nc"}',
        "4: datasets.a.path: a path is one line of printable characters; 'b\\nc' is not"),
    "another placeholder": (
        "datasets:\n  a: {path: 'b/{date}.csv'}",
        "4: datasets.a.path: {date} has no meaning in a path; the place of the dataid is {dataid}"),
    "a misspelt format": (
        "datasets:\n  a: {format: parqet}",
        "4: datasets.a.format: should be csv, json, parquet, orc or text, not 'parqet'; did you mean `parquet`?"),
    "a format that is a list": (
        "datasets:\n  a: {format: [csv]}",
        "4: datasets.a.format: should be csv, json, parquet, orc or text, not a list"),
    "options as a list": (
        "datasets:\n  a: {options: [b]}", "4: datasets.a.options: should be a mapping like {key: value}, not a list"),
    "an option that is a list": ("datasets:\n  a: {options: {b: [c]}}", f"4: datasets.a.options.b: {SCALAR}"),
    "an option without a value": ("datasets:\n  a:\n    options:\n      b:", f"6: datasets.a.options.b: {SCALAR}"),
    "an option that is no number": (
        "datasets:\n  a: {options: {b: .nan}}", "4: datasets.a.options.b: should be a finite number"),
    "a password among the options": (
        "datasets:\n  a: {options: {password: hunter2}}",
        "4: datasets.a.options.password: is a credential in plain text; give `password: enc:v1:…` beside `url`"),
    "a schema that is a list": (
        "datasets:\n  a: {schema: [b]}", "4: datasets.a.schema: should be a mapping like {key: value}, not a list"),
    "a misspelt type inside of another": (
        "datasets:\n  a:\n    schema:\n      b: array<struct<c:strng>>",
        "6: datasets.a.schema.b: 'array<struct<c:strng>>' is not a type: it holds 'strng'; did you mean 'string'?"),
    "a type that does not end": (
        "datasets:\n  a:\n    schema:\n      b: array<int",
        "6: datasets.a.schema.b: 'array<int' is not a type like decimal(10,2), array<string>, map<string,int> or "
        "struct<street:string,number:int>"),
    "a misspelt type": (
        "datasets:\n  a:\n    schema:\n      b: strng",
        "6: datasets.a.schema.b: 'strng' is not a type like string, int, double, date or timestamp; "
        "did you mean 'string'?"),
    "a column without a type": (
        "datasets:\n  a: {schema: {b: }}", "4: datasets.a.schema.b: should be a text, not nothing"),
    "a misspelt scheme": (
        "datasets:\n  a: {partitions: {dayly: 2025-01-01}}",
        "4: datasets.a.partitions: 'dayly' is no scheme; did you mean 'daily'?"),
    "a scheme nobody knows": (
        "datasets:\n  a: {partitions: {weekly: 2025-01-01}}",
        f"4: datasets.a.partitions: 'weekly' is no scheme; known are {SCHEMES}"),
    "only the name of a scheme": (
        "datasets:\n  a: {partitions: daily}",
        f"4: datasets.a.partitions: 'daily' alone does not say which dataids there are; known are {SCHEMES}"),
    "two schemes": (
        "datasets:\n  a: {partitions: {daily: 2025-01-01, hourly: 2025-01-01}}",
        f"4: datasets.a.partitions: {{'daily': '2025-01-01', 'hourly': '2025-01-01'}} is not {SCHEMES}"),
    "a day that is none": (
        "datasets:\n  a: {partitions: {daily: 2025-02-30}}",
        "4: datasets.a.partitions: daily: '2025-02-30' is not a date like 2025-11-12"),
    "days that end before they begin": (
        "datasets:\n  a: {partitions: {daily: 2025-02-01..2025-01-01}}",
        "4: datasets.a.partitions: daily: '2025-02-01..2025-01-01' is empty; the first day is after the last"),
    "negative shards": (
        "datasets:\n  a: {partitions: {shards: -1..5}}",
        "4: datasets.a.partitions: shards: '-1..5' is not a range like 1..10000"),
    "shards without number": (
        "datasets:\n  a: {partitions: {shards: 1..99999999999}}",
        "4: datasets.a.partitions: these are more than 10,000,000 dataids"),
    "no values": (
        "datasets:\n  a: {partitions: {values: []}}",
        "4: datasets.a.partitions: values: give a list of different, non-empty texts"),
    "a value twice": (
        "datasets:\n  a: {partitions: {values: [b, b]}}",
        "4: datasets.a.partitions: values: give a list of different, non-empty texts"),
    "a value of two lines": (
        'datasets:\n  a: {partitions: {values: ["b\\nc"]}}',
        "4: datasets.a.partitions: a dataid is one line of printable characters; 'b\\nc' is not"),
    "a value that is no file name": (
        "datasets:\n  a: {path: 'a/{dataid}', partitions: {values: [b/c]}}",
        "4: datasets.a.path: the dataid 'b/c' cannot be part of a file's name"),
    "a partitioned path without {dataid}": (
        "datasets:\n  a: {path: a.csv, partitions: {daily: 2025-01-01}}",
        "4: datasets.a.path: is partitioned, so its path needs a {dataid}"),
    "equal places": (
        "datasets:\n  a: {path: 'c/{dataid}'}\n  b: {path: 'c/./{dataid}'}",
        "5: datasets.b.path: 'c/./{dataid}' is the same place as that of 'a', or one lies in the other: 'c/{dataid}'"),
    "a place in another": (
        "datasets:\n  a: {path: c/d}\n  b: {path: c}",
        "5: datasets.b.path: 'c' is the same place as that of 'a', or one lies in the other: 'c/d'"),
    "a plain password": (
        "datasets:\n  a: {encryptedpass: hunter2}",
        "4: datasets.a.encryptedpass: is not encrypted; make it with `dataflow crypt encrypt`"),
    "a password that was cut off": (
        "datasets:\n  a: {password: 'enc:v1:AAAA'}",
        "4: datasets.a.password: is damaged: it is not text made by `dataflow crypt encrypt`"),
    "a password that is a list": (
        "datasets:\n  a: {password: [hunter2]}", "4: datasets.a.password: should be a text, not a list"),
    "a password in the address": (
        "datasets:\n  a: {url: 'postgresql://u:hunter2@h/d'}",
        "4: datasets.a.url: holds a password; take it out and give `password: enc:v1:…`"),
    "a password among the address's parameters": (
        "datasets:\n  a: {url: 'postgresql://u@h/d?password=hunter2'}",
        "4: datasets.a.url: holds a password; take it out and give `password: enc:v1:…`"),
    "an address without a scheme": ("datasets:\n  a: {url: localhost/crm}", f"4: datasets.a.url: {ADDRESS}"),
    "an address with half a host": ("datasets:\n  a: {url: 'postgresql://[::1'}", f"4: datasets.a.url: {ADDRESS}"),
    "an address with a word for a port": (
        "datasets:\n  a: {url: 'postgresql://h:p/d'}", f"4: datasets.a.url: {ADDRESS}"),
    "both a path and an address": (
        "datasets:\n  a: {path: b, url: 'postgresql://h/d'}",
        "4: datasets.a: has both `path` and `url`; give one of them"),
    "both a table and a query": (
        "datasets:\n  a: {url: 'postgresql://h/d', table: b, query: select 1}",
        "4: datasets.a: has both `table` and `query`; give one of them"),
    "a table without an address": (
        "datasets:\n  a: {table: b}", "4: datasets.a: has a `table`, but no `url` of its database"),
    "an arrival without a path": (
        "datasets:\n  a: {arrival: {stable: 10s}}",
        "4: datasets.a: has `arrival`, but no `path` where files could arrive"),
    "an arrival that is a text": (
        "datasets:\n  a: {path: b, arrival: 10s}",
        "4: datasets.a.arrival: should be a mapping like {key: value}, not a text"),
    "an unknown key of an arrival": (
        "datasets:\n  a:\n    path: b\n    arrival:\n      stble: 10s",
        "7: datasets.a.arrival: unknown key `stble`; did you mean `stable`?"),
    "one marker for all dataids": (
        "datasets:\n  a:\n    path: 'b/{dataid}'\n    arrival: {done: b.done}",
        "6: datasets.a.arrival: one marker cannot stand for all dataids; its path needs a {dataid}"),
    "checks as a mapping": (
        "datasets:\n  a:\n    checks: {rows: {min: 1}}",
        "5: datasets.a.checks: should be a list like [a, b], not a mapping"),
    "an unknown check": (
        "datasets:\n  a:\n    checks:\n      - rows: {min: 1}\n      - not_nul: [b]",
        "7: datasets.a.checks.1: unknown key `not_nul`; did you mean `not_null`?"),
    "an unknown key of a check": (
        "datasets:\n  a:\n    checks:\n      - rows:\n          mni: 1",
        "7: datasets.a.checks.0.rows: unknown key `mni`; did you mean `min`?"),
    "a check of an unknown column": (
        "datasets:\n  a:\n    schema: {id: int}\n    checks:\n      - rows: {min: 1}\n      - not_null: [idd]",
        "8: datasets.a.checks.1: not_null: column 'idd' is not in `schema:`; did you mean 'id'?"),
    "a check with a word for a number": (
        "datasets:\n  a:\n    checks:\n      - rows: {min: many}",
        "6: datasets.a.checks.0.rows.min: should be a whole number, not 'many'"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), DATASETS.values(), ids=DATASETS)
def test_a_bad_dataset_is_refused_with_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    found = problem(tmp_path, f"{HEAD}{text}\n")
    assert found == said
    assert "hunter2" not in found


# Jobs ---------------------------------------------------------------------------------------------------------------
JOBS = {
    "an unknown key": ("retrys: {max: 1}", "9: jobs.load.retrys: unknown key; did you mean `retries`?"),
    "a key for pipelines": (
        "engine: spark",
        "9: jobs.load.engine: unknown key; known are retries, brake, notify, lease, timeout, concurrency, order, "
        "catchup, on_change, script, inputs, outputs, args, env"),
    "inputs as a text": ("inputs: orders", "9: jobs.load.inputs: should be a list like [orders], not a text"),
    "inputs as a mapping": ("inputs: {orders: {}}", "9: jobs.load.inputs: should be a list like [a, b], not a mapping"),
    "an input that is a list": ("inputs: [[orders]]", f"9: jobs.load.inputs.0: {INPUT}"),
    "an input that is nothing": ("inputs:\n      - orders\n      -", f"11: jobs.load.inputs.1: {INPUT}"),
    "two inputs in one item": ("inputs: [{orders: {}, today: {}}]", f"9: jobs.load.inputs.0: {INPUT}"),
    "options beside the input": (
        "inputs:\n      - orders:\n        map: full",
        "10: jobs.load.inputs.0: options stand below the dataset's name, one step further to the right"),
    "a map without its key": (
        "inputs: [{orders: full}]", "9: jobs.load.inputs.0: give the map as {orders: {map: full}}"),
    "an unknown option of an input": (
        "inputs:\n      - orders:\n          mapp: full",
        "11: jobs.load.inputs.0.orders.mapp: unknown key; did you mean `map`?"),
    "an unknown map": (
        "inputs: [{orders: {map: fulll}}]", f"9: jobs.load.inputs.0.orders.map: 'fulll' {MAPS}; did you mean 'full'?"),
    "a misspelt map with a number": (
        "inputs: [{orders: {map: {ofset: -1}}}]",
        f"9: jobs.load.inputs.0.orders.map: {{'ofset': -1}} {MAPS}; did you mean 'offset'?"),
    "an offset of nothing": (
        "inputs: [{orders: {map: {offset: 0}}}]", f"9: jobs.load.inputs.0.orders.map: {{'offset': 0}} {MAPS}"),
    "a negative window": (
        "inputs: [{orders: {map: {window: -7}}}]", f"9: jobs.load.inputs.0.orders.map: {{'window': -7}} {MAPS}"),
    "two maps": (
        "inputs: [{orders: {map: {offset: 1, window: 7}}}]",
        f"9: jobs.load.inputs.0.orders.map: {{'offset': 1, 'window': 7}} {MAPS}"),
    "a map that does not fit": (
        "inputs: [{orders: {map: full}}]",
        "9: jobs.load.inputs.0: orders: map: full needs an input with partitions: none; this one is daily"),
    "a rollup into nothing": (
        "inputs: [{orders: {map: rollup}}]",
        "9: jobs.load.inputs.0: orders: map: rollup needs the output's `partitions`: into days or months?"),
    "an unknown dataset": (
        "inputs:\n      - orders\n      - ordres",
        "11: jobs.load.inputs.1: dataset 'ordres' is not declared; did you mean 'orders'?"),
    "an unknown dataset of its own": (
        "inputs: [x.ordres]", "9: jobs.load.inputs.0: dataset 'x.ordres' is not declared; did you mean 'orders'?"),
    "another project's name": (
        "inputs: [Web shop.orders]",
        "9: jobs.load.inputs.0: 'Web shop' is no project's id; did you mean 'web-shop.orders'?"),
    "another project without a dataset": ("inputs: [shop.]", "9: jobs.load.inputs.0: dataset 'shop.' is not declared"),
    "a misspelt clock": (
        "inputs: [todya]", "9: jobs.load.inputs.0: dataset 'todya' is not declared; did you mean 'today'?"),
    "a clock that divides no day": (
        "inputs: [every 7m]",
        "9: jobs.load.inputs.0: 'every 7m': this does not divide a day evenly; use one that does, like 30m or 6h, "
        "or whole days"),
    "a cron of four fields": (
        "inputs: ['cron 0 3 * *']",
        "9: jobs.load.inputs.0: 'cron 0 3 * *': cron takes five fields (minute, hour, day, month, weekday) and "
        "optionally a time zone, like `cron 0 3 * * * Europe/Berlin`"),
    "a cron of 25 hours": (
        "inputs: ['cron 0 25 * * *']", "9: jobs.load.inputs.0: 'cron 0 25 * * *': '25' is not an hour (0–23)"),
    "an unknown time zone": (
        "inputs: [{today: {timezone: Europe/Berlim}}]",
        "9: jobs.load.inputs.0: 'Europe/Berlim' is not a time zone like Europe/Berlin or UTC"),
    "a time zone for hours": (
        "inputs: [{hourly: {timezone: Europe/Berlin}}]",
        "9: jobs.load.inputs.0: 'hourly' counts in UTC; a timezone goes with `today` and `cron`"),
    "two time zones": (
        "inputs: [{cron 0 3 * * * Asia/Tokyo: {timezone: Europe/Berlin}}]",
        "9: jobs.load.inputs.0: 'cron 0 3 * * * Asia/Tokyo' names its time zone already"),
    "a time zone for a dataset": (
        "inputs: [{orders: {timezone: Europe/Berlin}}]",
        "9: jobs.load.inputs.0: `timezone` is for clocks: today, hourly, every 30m, cron …"),
    "a map for a clock": (
        "inputs: [{today: {map: full}}]",
        "9: jobs.load.inputs.0: a clock gives the job its dataids; map: full does not go with it"),
    "two clocks": (
        "inputs: [today, hourly]", "9: jobs.load.inputs: a job goes by one clock; it reads 'today' and 'hourly'"),
    "its own output": (
        "inputs: [totals]",
        "7: jobs.load: a dataset stands twice among its inputs and outputs: 'totals'; it reads what it writes; "
        "leave one out"),
    "an input twice": (
        "inputs: [orders, orders]",
        "7: jobs.load: a dataset stands twice among its inputs and outputs: 'orders'; leave one out"),
    "another project's dataset of the same name": (
        "inputs: [orders, shop.orders]",
        "7: jobs.load: two datasets called 'orders' would share the variables orders_…; rename one of them"),
    "retries without a key": ("retries: 3", "9: jobs.load.retries: give the number as {max: 3}"),
    "retries as a list": ("retries: [3]", "9: jobs.load.retries: should be a mapping like {key: value}, not a list"),
    "negative retries": ("retries: {max: -1}", "9: jobs.load.retries.max: should be at least 0"),
    "half a retry": ("retries: {max: 1.5}", "9: jobs.load.retries.max: should be a whole number, not '1.5'"),
    "very many retries": ("retries: {max: 99999999999999999999}", "9: jobs.load.retries.max: should be at most 1000"),
    "a negative backoff": (
        "retries: {backoff: -5s}", "9: jobs.load.retries.backoff: '-5s' is not a duration like 30s, 5m, 2h or 1d"),
    "a truth for a duration": ("lease: yes", "9: jobs.load.lease: 'yes' is not a duration like 30s, 5m, 2h or 1d"),
    "a lease of nothing": ("lease: 0s", "9: jobs.load.lease: should be at least 1"),
    "a lease for ever": ("lease: 99999d", "9: jobs.load.lease: '99999d' is longer than ten years"),
    "a time of day for a duration": (
        "timeout: 1:30", "9: jobs.load.timeout: '1:30' is not a duration like 30s, 5m, 2h or 1d"),
    "a duration in weeks": ("timeout: 5w", "9: jobs.load.timeout: '5w' is not a duration like 30s, 5m, 2h or 1d"),
    "a word for a number": (
        "concurrency: lots", "9: jobs.load.concurrency: should be a whole number, not 'lots'"),
    "a limit of nothing": ("concurrency: 0", "9: jobs.load.concurrency: should be at least 1"),
    "a misspelt order": (
        "order: strickt", "9: jobs.load.order: should be any or strict, not 'strickt'; did you mean `strict`?"),
    "a misspelt catch-up": (
        "catchup: last", "9: jobs.load.catchup: should be all or latest, not 'last'; did you mean `latest`?"),
    "variables as a list": (
        "env: [A]", "9: jobs.load.env: should be a mapping like {key: value}, not a list"),
    "a variable that is a list": ("env: {A: [b]}", "9: jobs.load.env.A: should be a text, not a list"),
    "a variable without a value": ("env: {A: }", '9: jobs.load.env.A: has no value; an empty text is ""'),
    "a variable without a name": ("env: {'': b}", "9: jobs.load.env.'': '' cannot be an environment variable"),
    "a variable of every run": (
        "env: {dataid: b}", "9: jobs.load.env.dataid: is set by every run; choose another name"),
    "a variable of a dataset": (
        "env:\n      totals_location: b",
        "10: jobs.load.env.totals_location: is a variable of dataset 'totals'; choose another name"),
    "a script of another name": (
        "script: jobs/loader.sh",
        "9: jobs.load.script: RunJob takes the job's id from the script's name, so 'load' does not fit; "
        "call the job 'loader' or the script otherwise"),
    "a script that is a list": ("script: [jobs/load.sh]", "9: jobs.load.script: should be a text, not a list"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), JOBS.values(), ids=JOBS)
def test_a_bad_job_is_refused_with_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    assert problem(tmp_path, f"{JOB}    {text}\n") == said


PIPELINE = """\
datasets: {a: {path: a, partitions: none}, b: {path: b}}
pipelines:
  - slug: c
    sources: a
    destination: b
"""
STREAM = """\
datasets: {a: {path: a, partitions: none}, b: {path: b}, c: {path: "c/{dataid}", partitions: {daily: 2025-01-01}}}
pipelines:
  - slug: s
    mode: stream
    sources: a
    destination: b
"""
FIELD = "is not a type of an item's field like string, int, double, decimal(10,2), date, timestamp or array<string>"
ONE_DESTINATION = "a pipeline has one destination, written without a list; give each further one a pipeline of its own"
WHOLE = {
    "jobs as a list": ("jobs: [load]", "3: jobs: should be a mapping like {key: value}, not a list"),
    "a job that is a text": ("jobs:\n  load: x", "4: jobs.load: should be a mapping like {key: value}, not a text"),
    "a job with nothing": ("jobs:\n  load:", "4: jobs.load.outputs: is missing"),
    "a job's name with a slash": (
        "datasets: {a: {}}\njobs:\n  b/c: {outputs: [a]}", "5: jobs.b/c: 'b/c' cannot be a name: it holds a `/`"),
    "a job's name with blanks": (
        "datasets: {a: {}}\njobs:\n  'b ': {outputs: [a]}",
        "5: jobs.b : a name has no blanks before or after it; 'b ' has"),
    "a job without output": ("datasets: {a: {}}\njobs:\n  b: {inputs: [a]}", "5: jobs.b.outputs: is missing"),
    "no outputs": ("jobs:\n  b:\n    outputs: []", "5: jobs.b.outputs: is empty; it needs at least one"),
    "outputs as a text": (
        "datasets: {a: {}}\njobs:\n  b: {outputs: a}", "5: jobs.b.outputs: should be a list like [a], not a text"),
    "an output that is a mapping": (
        "datasets: {a: {}}\njobs:\n  b: {outputs: [{a: {}}]}", "5: jobs.b.outputs.0: should be a text, not a mapping"),
    "an unknown output": (
        "datasets: {orders: {}}\njobs:\n  b: {outputs: [order]}",
        "5: jobs.b.outputs.0: dataset 'order' is not declared; did you mean 'orders'?"),
    "an output of another project": (
        "datasets: {orders: {}}\njobs:\n  b: {outputs: [shop.orders]}",
        "5: jobs.b.outputs.0: dataset 'shop.orders' is not declared; a job writes datasets of its own project; "
        "did you mean 'orders'?"),
    "a clock as output": (
        "datasets: {a: {}, b: {}}\njobs:\n  c: {inputs: [today], outputs: [a]}\n  d: {outputs: [today, b]}",
        "6: jobs.d.outputs.0: 'today' is a clock; nothing can write it"),
    "outputs that are partitioned differently": (
        "datasets: {a: {partitions: none}, b: {partitions: {daily: 2025-01-01}}}\njobs:\n  c:\n    outputs: [a, b]",
        "6: jobs.c.outputs: its outputs are partitioned differently: none, daily"),
    "two producers": (
        "datasets:\n  a: {}\njobs:\n  b: {outputs: [a]}\n  c: {outputs: [a]}",
        "4: datasets.a: is produced by both b and c"),
    "jobs that wait for each other": (
        "datasets: {a: {}, b: {}, c: {}}\njobs:\n  first: {outputs: [c]}\n  d: {inputs: [b], outputs: [a]}\n"
        "  e: {inputs: [c, a], outputs: [b]}",
        "6: jobs.d: jobs wait for each other: d → e → d"),
    "colliding variables": (
        "datasets: {my-data: {}, my_data: {}}\njobs:\n  b: {inputs: [my-data], outputs: [my_data]}",
        "5: jobs.b: datasets 'my-data' and 'my_data' would share the variables my_data_…; rename one of them"),
    "an id of two": (
        "datasets: {a: {}, b: {}, c: {}}\njobs:\n  load: {inputs: [a], outputs: [b]}\n"
        "pipelines:\n  - slug: load\n    sources: [b]\n    destination: c",
        "7: pipelines.0.slug: 'load' is the id of two jobs or pipelines: jobs.load has it too"),
    "pipelines as a mapping": ("pipelines: {a: {}}", "3: pipelines: should be a list like [a, b], not a mapping"),
    "an unknown key of a pipeline": (
        f"{PIPELINE}    replaces: true", "8: pipelines.0.replaces: unknown key; did you mean `replace`?"),
    "no sources": (
        "pipelines:\n  - slug: c\n    destination: b", "4: pipelines.0.sources: is missing"),
    "an empty list of sources": (
        "pipelines:\n  - slug: c\n    sources: []\n    destination: b",
        "5: pipelines.0.sources: is empty; it needs at least one"),
    "a source that is no name": (
        "pipelines:\n  - slug: c\n    sources:\n      - [a]\n    destination: b", f"6: pipelines.0.sources.0: {INPUT}"),
    "sources as a mapping": (
        "pipelines:\n  - slug: c\n    sources: {a: {map: full}}\n    destination: b",
        "5: pipelines.0.sources: should be a list like [a, b], not a mapping"),
    "two destinations": (
        "pipelines:\n  - slug: c\n    sources: [a]\n    destination: [b, d]",
        f"6: pipelines.0.destination: {ONE_DESTINATION}"),
    "a list of one destination": (
        "pipelines:\n  - slug: c\n    sources: [a]\n    destination: [b]",
        f"6: pipelines.0.destination: {ONE_DESTINATION}"),
    "no destination": ("pipelines:\n  - slug: c\n    sources: [a]", "4: pipelines.0.destination: is missing"),
    "a destination of another project": (
        "pipelines:\n  - slug: c\n    sources: [a]\n    destination: shop.b",
        "6: pipelines.0.destination: dataset 'shop.b' is not declared; a job writes datasets of its own project"),
    "an undeclared source in a folder": (
        "pipelines:\n  - slug: c\n    sources: [raw/a.csv]\n    destination: b",
        "5: pipelines.0.sources.0: 'raw/a' cannot be a name: it holds a `/`; "
        "declare it: `datasets: {name: {path: raw/a.csv}}`"),
    "a pipeline that reads what it writes": (
        "pipelines:\n  - slug: c\n    sources: [a, b.csv]\n    destination: b",
        "4: pipelines.0: a dataset stands twice among its inputs and outputs: 'b'; it reads what it writes; "
        "leave one out"),
    "pipelines that wait for each other": (
        "pipelines:\n  - {slug: c, sources: b, destination: a}\n  - {slug: d, sources: a, destination: b.csv}",
        "4: pipelines.0: jobs wait for each other: c → d → c"),
    "two pipelines with one destination": (
        "pipelines:\n  - {slug: c, sources: a, destination: b}\n  - {slug: d, sources: a, destination: b.csv}",
        "4: pipelines.0.destination: 'b' is produced by both c and d"),
    "a destination where a declared dataset lies": (
        "datasets:\n  x: {path: output}\npipelines:\n  - slug: c\n    sources: [a]\n    destination: b",
        "8: pipelines.0.destination: 'output/b.csv' is the same place as that of 'x', or one lies in the other: "
        "'output'"),
    "a slug that is no name": (
        "pipelines:\n  - {slug: a b, sources: a, destination: b}",
        "4: pipelines.0.slug: 'a b' should be letters, digits, `_`, `-` and `.`, and begin with none of the last two"),
    "a transformation in another folder": (
        f"{PIPELINE}    transformations: [../x]",
        "8: pipelines.0.transformations.0: '../x' is not the name of a transformation, a file in pipelines/<slug>/"),
    "an unknown engine": (
        f"{PIPELINE}    engine: panda",
        "8: pipelines.0.engine: should be spark or pandas, not 'panda'; did you mean `pandas`?"),
    "no chunk a job": (f"{PIPELINE}    chunks_per_job: 0", "8: pipelines.0.chunks_per_job: should be at least 1"),
    "too many chunks a job": (
        f"{PIPELINE}    chunks_per_job: 10001", "8: pipelines.0.chunks_per_job: should be at most 10000"),
    "too many at once": (f"{PIPELINE}    at_once: 65", "8: pipelines.0.at_once: should be at most 64"),
    "a number that is none": (
        f"{PIPELINE}    at_once: many", "8: pipelines.0.at_once: should be a whole number, not 'many'"),
    "a truth that is none": (
        f"{PIPELINE}    profile: perhaps", "8: pipelines.0.profile: should be true or false, not 'perhaps'"),
    "a pipeline's check that is none": (
        f"{PIPELINE}    checks: [{{row: {{min: 1}}}}]",
        "8: pipelines.0.checks.0: unknown key `row`; did you mean `rows`?"),
    "a pipeline's check that does not fit": (
        f"{PIPELINE}    checks: [exists, schema]",
        "8: pipelines.0.checks.1: schema: this dataset declares no `schema:`"),
    "an address that is none": (
        f"{PIPELINE}    notify: s3cr3t-ops",
        "8: pipelines.0.notify.0: is not an address like mailto://ops@example.com or json://hooks.example.com/dataflow"),
    "an address of an unknown kind": (
        f"{PIPELINE}    notify: [mialto://ops:s3cr3t@example.com]",
        "8: pipelines.0.notify.0: nothing can be sent by `mialto://`; did you mean `mailto://`?"),
    "an event that is none": (
        f"{PIPELINE}    notify: {{to: [mailto://ops@example.com], on: [faild]}}",
        "8: pipelines.0.notify.on.0: should be failed, recovered, late or stuck, not 'faild'; did you mean `failed`?"),
    "an unknown key of notify": (
        f"{PIPELINE}    notify: {{too: [mailto://ops@example.com]}}",
        "8: pipelines.0.notify.too: unknown key; did you mean `to`?"),
    "a duration of notify that is none": (
        f"{PIPELINE}    notify: {{to: [mailto://ops@example.com], late_after: soon}}",
        "8: pipelines.0.notify.late_after: 'soon' is not a duration like 30s, 5m, 2h or 1d"),
    "a notify that names nobody": (
        f"{PIPELINE}    notify: {{on: [failed]}}",
        "8: pipelines.0.notify: names nobody; give `to: [mailto://…]` here, or a `notify:` for the whole project"),
    "two clocks": (
        f"{PIPELINE}    frequency: 30m\n    cron: 0 3 * * *",
        "5: pipelines.0: has both `frequency` and `cron`; give one of them"),
    "a frequency that is none": (
        f"{PIPELINE}    frequency: 7m",
        "8: pipelines.0.frequency: 'every 7m': this does not divide a day evenly; use one that does, like 30m or 6h, "
        "or whole days"),
    "a cron expression that is none": (
        f"{PIPELINE}    cron: 0 25 * * *",
        "8: pipelines.0.cron: 'cron 0 25 * * *': '25' is not an hour (0–23)"),
    "a zone without cron": (
        f"{PIPELINE}    frequency: 1d\n    timezone: Europe/Berlin",
        "5: pipelines.0: has a `timezone`, which goes with `cron`"),
    "a zone that is none": (
        f"{PIPELINE}    cron: 0 3 * * *\n    timezone: Mars",
        "8: pipelines.0.cron: 'Mars' is not a time zone like Europe/Berlin or UTC"),
    "a clock beside a frequency": (
        "pipelines:\n  - slug: c\n    sources: [a, today]\n    destination: b\n    frequency: 30m",
        "5: pipelines.0.sources: a job goes by one clock; it reads 'today' and 'every 30m'"),
    "nothing but a clock": (
        "pipelines:\n  - slug: c\n    sources: [today]\n    destination: b",
        "5: pipelines.0.sources: a clock is no data; give a dataset that is read"),
    "a mode that is none": (f"{PIPELINE}    mode: batches", "8: pipelines.0.mode: should be batch or stream, not "
                            "'batches'; did you mean `batch`?"),
    "a stream in a batch": (
        f"{PIPELINE}    stream: {{schema: {{x: int}}}}",
        "5: pipelines.0: has `stream`, which goes with `mode: stream`"),
}  # fmt: skip


STREAMS = {
    "no stream": (
        "", "5: pipelines.0: has `mode: stream`, but no `stream: {schema: {email: string}}` that says what an item is"),
    "a stream that is a text": (
        "stream: intake", "9: pipelines.0.stream: should be a mapping like {key: value}, not a text"),
    "no schema": ("stream: {max_batch: 10}", "9: pipelines.0.stream.schema: is missing"),
    "an empty schema": ("stream: {schema: {}}", "9: pipelines.0.stream.schema: is empty; it needs at least one"),
    "a type that is none": ("stream: {schema: {x: strin}}",
                            f"9: pipelines.0.stream.schema.x.type: 'strin' {FIELD}; did you mean 'string'?"),
    "a type that no item can have": (
        "stream: {schema: {x: interval}}", f"9: pipelines.0.stream.schema.x.type: 'interval' {FIELD}"),
    "a type that is wrong inside": (
        'stream: {schema: {x: "array<strin>"}}',
        f"9: pipelines.0.stream.schema.x.type: 'strin' {FIELD}; did you mean 'string'?"),
    "a decimal of too many digits": (
        'stream: {schema: {x: "decimal(40,2)"}}',
        "9: pipelines.0.stream.schema.x.type: 'decimal(40,2)': a decimal has 1 to 38 digits, and no more of them after "
        "the point than in all"),
    "a map by numbers": (
        'stream: {schema: {x: "map<int,string>"}}',
        "9: pipelines.0.stream.schema.x.type: 'map<int,string>': the keys of a map are strings, as JSON has them"),
    "an unknown key of a field": (
        "stream: {schema: {x: {type: int, requird: true}}}",
        "9: pipelines.0.stream.schema.x.requird: unknown key; did you mean `required`?"),
    "two fields that are one column": (
        "stream: {schema: {Name: string, name: string}}",
        "9: pipelines.0.stream.schema: 'Name' and 'name' are the same column for Spark; rename one of them"),
    "an unknown key": (
        "stream: {schema: {x: int}, max_bach: 3}",
        "9: pipelines.0.stream.max_bach: unknown key; did you mean `max_batch`?"),
    "no items in a batch": ("stream: {schema: {x: int}, max_batch: 0}",
                            "9: pipelines.0.stream.max_batch: should be at least 1"),
    "a seal that is none": ("stream: {schema: {x: int}, seal: weekly}",
                            "9: pipelines.0.stream.seal: should be hourly or daily, not 'weekly'"),
    "a pace that is none": ("stream: {schema: {x: int}, every: often}",
                            "9: pipelines.0.stream.every: 'often' is not a duration like 200ms, 1s or 5m"),
    "a pace that is too fast": ("stream: {schema: {x: int}, every: 1ms}",
                                "9: pipelines.0.stream.every: should be at least 0.01"),
    "a size that is none": ("stream: {schema: {x: int}, body: large}",
                            "9: pipelines.0.stream.body: 'large' is not a size like 64KB or 10MB"),
    "a source that is none": (
        "stream: {schema: {x: int}, from: intak}",
        "9: pipelines.0.stream.from: should be intake, a mapping with `folder`, or one with `kafka`, not 'intak'; "
        "did you mean 'intake'?"),
    "two sources of items": (
        "stream: {schema: {x: int}, from: {folder: x, kafka: {servers: h, topic: t}}}",
        "9: pipelines.0.stream.from: give `intake`, or {folder: incoming, format: csv}, or {kafka: {servers: …, topic: "
        "…}}"),
    "a folder elsewhere": ("stream: {schema: {x: int}, from: {folder: ../x}}",
                           "9: pipelines.0.stream.from: the folder '../x' is not below the environment's root"),
    "a way of failing that is none": (
        "stream: {schema: {x: int}, on_error: drop}",
        "9: pipelines.0.stream.on_error: should be set_aside or fail, not 'drop'"),
    "a clock": (
        "stream: {schema: {x: int}}\n    frequency: 30m",
        "5: pipelines.0: has `frequency`, which is for batches; a stream takes items as they come, in their order"),
    "a source by dataid": (
        "stream: {schema: {x: int}}\n"
        "  - {slug: t, mode: stream, sources: c, destination: d, stream: {schema: {x: int}}}",
        "10: pipelines.1.sources.0: c: map: full needs an input with partitions: none; this one is daily"),
    "a source by another map": (
        "stream: {schema: {x: int}}\n"
        "  - {slug: t, mode: stream, sources: [{a: {map: all}}], destination: d, stream: {schema: {x: int}}}",
        "10: pipelines.1: reads 'a' by `map: all`; a stream reads its sources whole"),
    "a destination by other slots": (
        "stream: {schema: {x: int}}\n  - {slug: t, mode: stream, destination: c, stream: {schema: {x: int}}}",
        "10: pipelines.1.destination: the destination is partitioned (daily), and the stream is sealed hourly; let "
        "them agree"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), STREAMS.values(), ids=STREAMS)
def test_a_bad_stream_is_refused_with_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    assert problem(tmp_path, f"{HEAD}{STREAM}    {text}\n") == said


@pytest.mark.parametrize(("text", "said"), WHOLE.values(), ids=WHOLE)
def test_jobs_that_do_not_go_together_are_refused_with_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    assert problem(tmp_path, f"{HEAD}{text}\n") == said


def test_all_errors_of_shape_are_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = JOB + "    lease: soon\n    timeout: later\n    retrys: {}\n"
    assert [line.split(":")[1] for line in f"x:{problem(tmp_path, text)}".splitlines()] == ["9", "10", "11"]


def test_everything_that_is_wrong_is_told_at_once_and_nothing_that_only_follows_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET_AT_ALL", raising=False)
    text = f"""{HEAD}datasets:
  good: {{path: "good/{{dataid}}", partitions: {{daily: 2025-01-01}}}}
  bad_shape: {{formt: csv}}
  bad_variable: {{path: "${{NOT_SET_AT_ALL}}/x"}}
  bad_check: {{checks: [schema]}}
  bad_place: {{path: good, partitions: {{daily: 2025-01-01}}}}
jobs:
  bad_job: {{inputs: [gone, goood], outputs: [good]}}
  reads_them: {{inputs: [bad_shape, bad_variable, bad_check, made], outputs: [bad_place]}}
pipelines:
  - {{slug: first, sources: good, destination: made, engine: rust}}
  - {{slug: second, sources: bad_shape, destination: [made]}}
  - {{slug: third, sources: [a/b], destination: one}}
  - {{slug: third, sources: made, destination: other, frequency: 7m}}
unknown: 1
"""
    said = problem(tmp_path, text).splitlines()
    assert [line.rpartition("project.yml:")[2].split(": ")[:2] for line in said] == [
        ["5", "datasets.bad_shape.formt"],
        ["6", "datasets.bad_variable.path"],
        ["7", "datasets.bad_check.checks.0"],
        ["8", "datasets.bad_place.path"],
        ["10", "jobs.bad_job.inputs.0"],
        ["10", "jobs.bad_job.inputs.1"],
        ["13", "pipelines.0.engine"],
        ["14", "pipelines.1.destination"],
        ["15", "pipelines.2.sources.0"],
        ["16", "pipelines.3.slug"],
        ["16", "pipelines.3.frequency"],
        ["17", "unknown"],
    ]


# Variables ----------------------------------------------------------------------------------------------------------
VARIABLES = """\
name: x
environments:
  dev:
    root: ${HERE:-data}/${STAGE:-raw}
    spark:
      master: ${SPARK_MASTER:-local}
    datasets:
      crm: {hostname: "${CRM_HOST:-crm1}"}
  prod:
    root: ${NOT_SET_AT_ALL}
    store: ${NOT_SET_AT_ALL}
datasets:
  orders:
    path: ${AREA:-a}/{dataid}.csv
    format: ${FORMAT:-csv}
    options: {sep: "${SEP:-;}"}
    partitions: {daily: "${FIRST_DAY:-2025-01-01}"}
    arrival: {done: "${AREA:-a}/{dataid}.done"}
  crm:
    url: postgresql://${CRM_USER:-reader}@localhost:5432/${CRM_DB:-crm}
    table: ${CRM_TABLE:-public.customers}
"""
NAMES = (
    "HERE",
    "STAGE",
    "SPARK_MASTER",
    "CRM_HOST",
    "AREA",
    "FORMAT",
    "SEP",
    "FIRST_DAY",
    "CRM_USER",
    "CRM_DB",
    "CRM_TABLE",
)


def test_variables_work_in_every_text_of_environments_and_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    made = loaded(tmp_path, VARIABLES)
    orders, crm = made.datasets
    assert made.root == str(tmp_path / "data" / "raw")
    assert (orders.location, orders.format, orders.partitions) == ("a/{dataid}.csv", "csv", '{"daily": "2025-01-01"}')
    assert json.loads(orders.definition or "")["options"] == {"sep": ";"}
    assert crm[2:7] == ("crm1", "crm", "public", "customers", "reader")
    assert json.loads(crm.definition or "")["url"] == "postgresql://reader@crm1:5432/crm"
    for name, value in {"HERE": "/srv", "AREA": "north", "FORMAT": "json", "CRM_HOST": "crm2", "SEP": "|"}.items():
        monkeypatch.setenv(name, value)
    made = loaded(tmp_path, VARIABLES)
    assert (made.root, made.datasets[0].location, made.datasets[0].format) == ("/srv/raw", "north/{dataid}.csv", "json")
    assert made.datasets[1].hostname == "crm2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("environments:\n  dev:\n    root: ${GONE}/x\n", "4: environments.dev.root"),
        ("environments:\n  dev:\n    spark: {master: '${GONE}'}\n", "4: environments.dev.spark.master"),
        ("environments:\n  dev: {}\nspark:\n  conf: {a: '${GONE}'}\n", "5: spark.conf.a"),
        ("environments:\n  dev: {}\ndatasets:\n  a:\n    hostname: ${GONE}\n", "6: datasets.a.hostname"),
        ("environments:\n  dev: {}\ndatasets:\n  a:\n    url: postgresql://${GONE}/x\n", "6: datasets.a.url"),
        ("environments:\n  dev: {}\ndatasets:\n  a:\n    path: b/${GONE}\n", "6: datasets.a.path"),
        ("environments:\n  dev: {}\ndatasets:\n  a:\n    options:\n      b: ${GONE}\n", "7: datasets.a.options.b"),
        ("environments:\n  dev:\n    datasets: {a: {path: '${GONE}'}}\ndatasets:\n  a: {}\n",
         "4: environments.dev.datasets.a.path"),
    ],
)  # fmt: skip
def test_a_missing_variable_is_named_with_line_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.delenv("GONE", raising=False)
    assert problem(tmp_path, f"name: x\n{text}") == f"{said}: the environment variable GONE is not set"


def test_a_missing_variable_of_the_store_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GONE", "DATAFLOW_STORE", "DATAFLOW_ENV"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "project.yml").write_text("name: x\nenvironments: {dev: {store: '${GONE}'}}\n")
    with pytest.raises(ConfigurationError, match="the environment variable GONE is not set"):
        get_address(str(tmp_path))
    monkeypatch.setenv("DATAFLOW_STORE", "sqlite:///s.db")
    assert get_address(str(tmp_path)).store == f"sqlite:///{tmp_path}/s.db"


def test_what_a_variable_brings_is_checked_like_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = HEAD + "datasets:\n  a:\n    {key}: ${{VALUE}}\n".replace("{{", "{").replace("}}", "}")
    monkeypatch.setenv("VALUE", "../../etc")
    assert problem(tmp_path, text.replace("{key}", "path")) == f"5: datasets.a.path: {BELOW}"
    monkeypatch.setenv("VALUE", "hunter2")
    assert problem(tmp_path, text.replace("{key}", "password")).startswith("5: datasets.a.password: is not encrypted")
    monkeypatch.setenv("VALUE", "postgresql://u:hunter2@h/d")
    as_part = text.replace("{key}", "url").replace("VALUE}", "VALUE}?ssl=on")  # alone, the variable stays one: url_env
    assert problem(tmp_path, as_part).startswith("5: datasets.a.url: holds a password")
    monkeypatch.setenv("VALUE", "\udcff")
    assert problem(tmp_path, text.replace("{key}", "hostname")) == (
        "5: datasets.a.hostname: a variable's value holds a character that is no Unicode text"
    )


def test_a_variable_that_is_not_closed_is_named(tmp_path: Path) -> None:
    text = HEAD + "datasets:\n  a:\n    hostname: ${OPEN\n"
    assert problem(tmp_path, text) == "5: datasets.a.hostname: a ${…} is not closed in '${OPEN'"


# What is fine -------------------------------------------------------------------------------------------------------
def test_the_address_of_a_store_may_take_its_password_from_a_variable(tmp_path: Path) -> None:
    loaded(tmp_path, "name: x\nenvironments: {dev: {store: 'postgresql://etl:${PW}@db/state'}}\n")


def test_keys_with_nothing_after_them_count_as_left_out(tmp_path: Path) -> None:
    text = "name: x\nenvironments:\n  dev:\nspark:\ndatasets:\n  a:\n  b:\n    path:\njobs:\n"
    made = loaded(tmp_path, text + "  j:\n    inputs:\n    outputs: [a]\n    timeout:\n    env:\npipelines:\n")
    assert [dataset.location for dataset in made.datasets] == [None, None]
    assert made.jobs[0].timeout_seconds is None


def test_anchors_aliases_and_merges_work(tmp_path: Path) -> None:
    text = HEAD + (
        "datasets:\n  a: &base {hostname: h, database: d, tablename: a}\n"
        "  b:\n    <<: *base\n    tablename: b\n  c: *base\n  d: {<<: [{username: u}, *base], database: e}\n"
    )
    made = loaded(tmp_path, text)
    assert [one[2:7] for one in made.datasets] == [
        ("h", "d", None, "a", None), ("h", "d", None, "b", None),
        ("h", "d", None, "a", None), ("h", "e", None, "a", "u"),
    ]  # fmt: skip
    assert problem(tmp_path, text.replace("    tablename: b\n", "    tabelname: b\n")).startswith("7: datasets.b.tabel")


def test_a_byte_order_mark_and_windows_lines_are_no_problem(tmp_path: Path) -> None:
    (tmp_path / "project.yml").write_bytes(
        b"\xef\xbb\xbfname: x\r\nenvironments: {dev: {}}\r\ndatasets:\r\n  a: {}\r\n"
    )
    assert [one.datasetid for one in load_registration(str(tmp_path), "dev").datasets] == ["a"]
    assert problem(tmp_path, "name: x\r\nenvironments: {dev: {}}\r\njob: {}\r\n").startswith("3: job: unknown key")


def test_words_and_numbers_stay_as_they_were_written(tmp_path: Path) -> None:
    text = (
        HEAD
        + """\
datasets:
  no: {hostname: 010, tablename: 1e3, partitions: {values: [01, 1_0, yes, 1:30, 2025-01-01, 0x1F, .5]}}
  on: {}
  a: {options: {header: yes, limit: 10, ratio: 1e-3, code: 007, time: 12:30}}
jobs:
  010:
    inputs: [no]
    outputs: [on]
    env: {A: yes, B: 010, C: 1:30, D: 2025-01-01, E: 1.50, F: ~/x, G: "~"}
"""
    )
    made = loaded(tmp_path, text)
    first, second, third = made.datasets
    assert (first.datasetid, second.datasetid, made.jobs[0].jobid) == ("no", "on", "010")
    assert (first.hostname, first.tablename) == ("010", "1e3")
    assert json.loads(first.partitions or "")["values"] == ["01", "1_0", "yes", "1:30", "2025-01-01", "0x1F", ".5"]
    assert json.loads(third.definition or "")["options"] == {
        "header": True, "limit": 10, "ratio": 0.001, "code": "007", "time": "12:30",
    }  # fmt: skip
    assert json.loads(made.jobs[0].definition)["env"] == {
        "A": "yes", "B": "010", "C": "1:30", "D": "2025-01-01", "E": "1.50", "F": "~/x", "G": "~",
    }  # fmt: skip


def test_its_own_datasets_can_be_named_with_the_projects_id(tmp_path: Path) -> None:
    made = loaded(tmp_path, JOB + "    inputs: [x.orders]\n")
    assert made.jobs[0].links[0] == LinkSpec("IN", "x", "orders")


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("postgresql://reader@Db1:5432/crm", ("db1", "crm", "reader")),
        ("postgresql://a%40b@db1/my%20db", ("db1", "my db", "a@b")),
        ("jdbc:postgresql://db1:5432/crm?ssl=true", ("db1", "crm", None)),
        ("postgresql://db1/crm?application_name=a@b:c", ("db1", "crm", None)),
        ("postgresql://[::1]:5432/crm", ("::1", "crm", None)),
        ("sqlite:///some/file.db", (None, "some/file.db", None)),
    ],
)
def test_the_parts_of_an_address_become_the_datasets(
    tmp_path: Path, url: str, parts: tuple[str | None, str, str | None]
) -> None:
    made = loaded(tmp_path, HEAD + f"datasets:\n  a:\n    url: {json.dumps(url)}\n    table: public.t\n").datasets[0]
    assert (made.hostname, made.database, made.username) == parts
    assert (made.schemaname, made.tablename) == ("public", "t")
    assert json.loads(made.definition or "")["url"] == url


def test_a_host_that_differs_in_an_environment_changes_the_address_too(tmp_path: Path) -> None:
    text = """\
name: x
environments:
  dev: {}
  prod: {datasets: {crm: {hostname: crm.internal, username: robot, partitions: }}}
datasets:
  crm: {url: "postgresql://reader@localhost:5432/crm?sslmode=require", table: t, partitions: {daily: 2025-01-01}}
"""
    assert loaded(tmp_path, text).datasets[0].hostname == "localhost"
    there = loaded(tmp_path, text, environment="prod").datasets[0]
    assert (there.hostname, there.username, there.partitions) == ("crm.internal", "robot", None)
    assert json.loads(there.definition or "")["url"] == "postgresql://robot@crm.internal:5432/crm?sslmode=require"


EXAMPLE = """\
name: Warehouse feed

environments:
  dev:
    root: ./data
    store: sqlite:///.dataflow/state.db
  prod:
    root: s3a://warehouse
    store: ${DATAFLOW_STORE}
    spark: {master: "spark://head:7077"}
    datasets:
      crm: {hostname: crm.internal}

spark:
  master: local[*]
  conf: {spark.sql.shuffle.partitions: 8}

datasets:
  flights:
    path: flights/{dataid}.csv
    format: csv
    options: {header: true}
    schema: {carrier: string, flight: int, dep_delay: double, time_hour: timestamp}
    partitions: {daily: 2013-01-01..2013-12-31}
    arrival: {done: "flights/{dataid}.done"}
    checks:
      - rows: {min: 1}
      - rows: {within: 0.5..2, of: median, last: 7, on_fail: warn}
      - not_null: [carrier, flight]
      - unique: [carrier, flight, time_hour]
      - values: {carrier: [AA, B6, UA]}
      - between: {dep_delay: [-120, 2000]}
      - expression: {sql: "dep_delay is null or dep_delay < 2000", at_least: 0.999}
      - partition: {column: time_hour}
  planes: {path: planes.csv, format: csv, partitions: none}
  clean_flights: {path: clean_flights, format: parquet}
  crm:
    url: postgresql://reader@localhost:5432/crm
    password: SECRET
    table: public.customers
    partition_column: updated_on
    partitions: {daily: 2025-01-01}
  rates: {path: "rates/{dataid}.csv", format: csv, partitions: {daily: 2024-12-31}}
  warehouse:
    hostname: localhost
    database: dw
    schemaname: public
    tablename: orders
    username: etl
    encryptedpass: SECRET
    partitions: {daily: 2025-01-01}

jobs:
  load_orders:
    script: jobs/load_orders.sh
    inputs:
      - crm
      - rates: {map: {offset: -1}}
    outputs: [warehouse]
    env: {BATCH_SIZE: "1000"}
    order: any
    retries: {max: 2, backoff: 30s}
    lease: 60s
    timeout: 2h
    concurrency: 10
    catchup: all

pipelines:
  - slug: clean_flights
    sources: [flights, planes]
    destination: clean_flights
    transformations: [drop_cancelled, add_speed]
    engine: spark
    chunks_per_job: 50
    checks: [{rows: {min: 1}}]
    notify: ["mailto://ops@example.com"]
  - slug: nightly_summary
    sources: [clean_flights]
    destination: summary_csv
    transformations: [summarise]
    frequency: 30m
    replace: true
"""


def test_environments_datasets_and_jobs_of_the_example_load(tmp_path: Path) -> None:
    secret = encrypt("hunter2", "a passkey")
    text = EXAMPLE.replace("SECRET", secret)
    here, there = loaded(tmp_path, text), loaded(tmp_path, text, environment="prod")
    assert (here.project, here.root, there.root) == ("warehouse-feed", str(tmp_path / "data"), "s3a://warehouse")
    of = {dataset.datasetid: dataset for dataset in here.datasets}
    in_prod = {dataset.datasetid: dataset for dataset in there.datasets}
    assert list(of) == [
        "flights", "planes", "clean_flights", "crm", "rates", "warehouse", "summary_csv", "every 30m",
    ]  # fmt: skip
    assert of["crm"][:11] == (
        "warehouse-feed", "crm", "localhost", "crm", "public", "customers", "reader", secret, None, None,
        '{"daily": "2025-01-01"}',
    )  # fmt: skip
    assert in_prod["crm"].hostname == "crm.internal"
    assert of["clean_flights"].partitions == '{"daily": "2013-01-01..2013-12-31"}', "from its producer"
    flights = json.loads(of["flights"].definition or "")
    assert flights["arrival"] == {"done": "flights/{dataid}.done"}
    assert [check["kind"] for check in flights["checks"]] == [
        "rows", "rows", "not_null", "unique", "values", "between", "expression", "partition",
    ]  # fmt: skip
    job, pipeline, summary = here.jobs
    assert job.links == (
        LinkSpec("IN", here.project, "crm"), LinkSpec("IN", here.project, "rates", "offset:-1"),
        LinkSpec("OUT", here.project, "warehouse"),
    )  # fmt: skip
    assert (job.retries_max, job.backoff_seconds, job.lease_seconds, job.timeout_seconds) == (2, 30.0, 60.0, 7200.0)
    assert (job.concurrency, job.catchup, job.strict) == (10, "all", 0)
    assert json.loads(pipeline.definition)["spark"]["conf"] == {"spark.sql.shuffle.partitions": 8}
    assert json.loads(there.jobs[1].definition)["spark"]["master"] == "spark://head:7077"
    assert json.loads(pipeline.definition)["chunks_per_job"] == 50
    assert [(link.datasetid, link.map) for link in summary.links] == [
        ("clean_flights", "all"), ("every 30m", "same"), ("summary_csv", "same"),
    ]  # fmt: skip


# Any text at all ----------------------------------------------------------------------------------------------------
NOW = datetime.datetime(2025, 6, 1, tzinfo=datetime.UTC)
TEXT = st.text(max_size=12) | st.sampled_from(
    ["yes", "NO", "~", "null", "010", "1e5", "2025-01-01", "1:30", "<<", "=", "a.b", "x.a", "a b", "-a", "{dataid}",
     "*", "&a", "!x", "#", "'", '"', "a\\", "ö", "売上", "\u00a0", "\u2028", "\x7f", "\ufeff", "🚀", "${GONE}", "$",
     "today", "%"]
)  # fmt: skip


def registered(wanted: Registration, folder: Path) -> Registration:
    """What a SQLite store gives back of a registration."""
    path = folder / "state.db"
    path.unlink(missing_ok=True)
    store = open_store(f"sqlite:///{path}", actor="test", must_exist=False, check=False)
    try:
        upgrade(store)
        apply(store, wanted, now=NOW)
        of = {"project": wanted.project}
        links: dict[str, list[LinkSpec]] = {}
        for jobid, *link in store.read("job_links_of", of, file="registry"):
            links.setdefault(jobid, []).append(LinkSpec(*link))
        datasets = [Dataset(*row) for row in store.read("datasets_of", of, file="registry")]
        jobs = []
        for job in wanted.jobs:
            known = store.get_job(job.jobid, project=wanted.project)
            dataids = {row[2] for row in store.read("job_rows", {**of, "jobid": job.jobid, "status": None, "limit": 99},
                                                    file="registry")}  # fmt: skip
            assert dataids == set(json.loads(job.partitions or "{}").get("values", []))
            jobs.append(
                job._replace(definition=json.dumps(known.definition, sort_keys=True), links=tuple(links[job.jobid]))
            )
        return wanted._replace(datasets=tuple(datasets), jobs=tuple(jobs))
    finally:
        store.close()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    dataset=TEXT, output=TEXT, job=TEXT, variable=TEXT, value=TEXT, hostname=TEXT,
    dataids=st.lists(TEXT, min_size=1, max_size=3), style=st.sampled_from([None, '"', "'"]),
)  # fmt: skip
def test_any_ids_dataids_and_values_survive_a_round_trip_or_are_refused(
    dataset: str, output: str, job: str, variable: str, value: str, hostname: str, dataids: list[str], style: str | None
) -> None:
    content = {
        "name": "x",
        "environments": {"dev": {}},
        "datasets": {dataset: {"hostname": hostname, "partitions": {"values": dataids}}, output: {}},
        "jobs": {job: {"inputs": [dataset], "outputs": [output], "env": {variable: value}}},
    }
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=style is None, default_style=style)
    assume(yaml.load(text, yaml.BaseLoader) == content)  # noqa: S506  texts only; U+0085 is not written so that it comes back
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            made = loaded(folder, text)
        except ConfigurationError:
            return
        first, last = made.datasets
        assert (first.datasetid, last.datasetid, made.jobs[0].jobid) == (dataset, output, job)
        assert first.hostname == (hostname or None)
        assert json.loads(first.partitions or "") == {"values": dataids}
        assert json.loads(made.jobs[0].definition) == {"env": {variable: value}}
        back = registered(made, folder)
        assert sorted(back.datasets) == sorted(made.datasets)
        assert back.jobs == made.jobs


PLAIN_TEXT = st.text(st.characters(categories=["L", "N", "P", "S"], exclude_characters="/${}"), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names=st.tuples(PLAIN_TEXT, PLAIN_TEXT, PLAIN_TEXT), dataid=PLAIN_TEXT, value=st.text(max_size=20))
def test_printable_ids_are_taken_as_they_are(names: tuple[str, str, str], dataid: str, value: str) -> None:
    dataset, output, job = (f"{letter}{name}" for letter, name in zip("abc", names, strict=True))
    content = {
        "name": "x",
        "environments": {"dev": {}},
        "datasets": {dataset: {"partitions": {"values": [dataid]}}, output: {}},
        "jobs": {job: {"inputs": [dataset], "outputs": [output], "env": {"VALUE": value}}},
    }
    with tempfile.TemporaryDirectory() as name:
        if "\0" in value:
            assert "holds a NUL" in problem(Path(name), yaml.safe_dump(content, sort_keys=False))
            return
        made = loaded(Path(name), yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        assert registered(made, Path(name)).jobs == made.jobs


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in the document where another value can be put."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in below for place in places(one, (*path, key)))]


WHOLE_EXAMPLE = yaml.load(EXAMPLE.replace("SECRET", encrypt("hunter2", "a passkey")), Loader=yaml.BaseLoader)  # noqa: S506  only texts
PLACES = places(WHOLE_EXAMPLE)[1:]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(place=st.sampled_from(PLACES), value=ANY, key=st.none() | TEXT)
def test_any_value_at_any_place_loads_or_is_refused_with_its_line(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[Any, ...], value: Any, key: str | None
) -> None:
    content = json.loads(json.dumps(WHOLE_EXAMPLE))
    inner = content
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    if key is not None and isinstance(inner, dict):
        inner[key] = inner.pop(place[-1])
    with tempfile.TemporaryDirectory() as folder:
        try:
            loaded(Path(folder), yaml.safe_dump(content, sort_keys=False))
        except ConfigurationError as refused:
            for line in str(refused).removeprefix(f"{folder}/").split(f"\n{folder}/"):
                assert line.startswith("project.yml:"), line
                assert line.split(":")[1].isdecimal(), line


# Size ---------------------------------------------------------------------------------------------------------------
def large_project(jobs: int, datasets: int) -> str:
    """A chain of jobs, each reading the output of the one before it and a source of its own."""
    lines = [HEAD + "datasets:"]
    for number in range(datasets):
        lines += [f"  ds_{number}:", f"    path: area_{number % 20}/ds_{number}/{{dataid}}.csv", "    format: csv"]
        lines += ["    options: {header: true}", "    schema: {id: int, amount: double, day: date}"]
        if number == 0 or number > jobs:
            lines.append("    partitions: {daily: 2025-01-01}")
        if number % 3 == 0:
            lines.append("    checks: [{rows: {min: 1}}, {not_null: [id]}]")
    lines.append("jobs:")
    for number in range(jobs):
        source = f", ds_{jobs + 1 + number}" if jobs + 1 + number < datasets else ""
        lines += [f"  job_{number}:", f"    script: jobs/job_{number}.sh", f"    inputs: [ds_{number}{source}]"]
        lines += [f"    outputs: [ds_{number + 1}]", "    retries: {max: 2, backoff: 30s}", "    timeout: 2h"]
    return "\n".join(lines) + "\n"


def test_700_jobs_and_2000_datasets_load_quickly(tmp_path: Path) -> None:
    text = large_project(700, 2000)
    started = time.process_time()
    made = loaded(tmp_path, text)
    assert time.process_time() - started < 4, "0.6 s on one quiet core"
    assert (len(made.jobs), len(made.datasets)) == (700, 2000)
    assert {job.partitions for job in made.jobs} == {'{"daily": "2025-01-01"}'}


def test_a_chain_of_thousands_of_jobs_is_no_problem(tmp_path: Path) -> None:
    text = large_project(3000, 3001)
    assert loaded(tmp_path, text).jobs[-1].partitions == '{"daily": "2025-01-01"}'
    circle = text.replace("inputs: [ds_0]", "inputs: [ds_3000]")
    assert "jobs wait for each other: job_0 → job_2999 → job_2998" in problem(tmp_path, circle)


# Limits and brakes --------------------------------------------------------------------------------------------------
LIMITS = {
    "less than none": (HEAD + "limits: {crm: -1}\n", "3: limits.crm: should be at least 0"),
    "a word": (HEAD + "limits: {crm: many}\n", "3: limits.crm: should be a whole number, not 'many'"),
    "a half": (
        "name: x\nenvironments: {dev: {limits: {crm: 1.5}}}\n",
        "2: environments.dev.limits.crm: should be a whole number, not '1.5'"),
    "a list": (HEAD + "limits: [crm]\n", "3: limits: should be a mapping like {key: value}, not a list"),
    "of nothing": (HEAD + "limits: {'': 3}\n", "3: limits.'': is empty"),
    "more than all fail": (JOB + "    brake: {failures: 2}\n", "9: jobs.load.brake.failures: should be at most 1"),
    "not slower": (JOB + "    brake: {slower: 1}\n", "9: jobs.load.brake.slower: should be greater than 1"),
    "a brake that is a word": (
        JOB + "    brake: on\n", "9: jobs.load.brake: should be a mapping like {key: value}, not a text"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), LIMITS.values(), ids=LIMITS)
def test_limits_that_limit_nothing_are_refused(tmp_path: Path, text: str, said: str) -> None:
    assert problem(tmp_path, text) == said
