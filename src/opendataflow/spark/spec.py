"""What the child is told: one chunk of one pipeline, as the runner wrote it to a JSON file.

    {"home": "/project", "slug": "clean", "transformations": ["drop_cancelled"], "dataid": "2013-01-01", "runid": 7,
     "spark": {"master": "local[*]", "conf": {}}, "environment": {"dataid": "2013-01-01", "DATAFLOW_RUN_ID": "7"},
     "sources": [{"datasetid": "flights", "location": "/data/flights/2013-01-01.csv", "format": "csv",
                  "options": {"header": true}, "schema": {"carrier": "string"}}],
     "destination": {"datasetid": "clean", "location": "/data/clean/dataid=2013-01-01/_runs/7", "format": "parquet",
                     "options": {}, "schema": null, "single_file": false},
     "engine": "spark", "checks": [{"kind": "rows", "options": {"min": 1}, "on_fail": "fail"}],
     "earlier_rows": [842, 843], "profile": false, "explain": false, "published_run": 5, "inputs_digest": "9f86d0…"}

A place in a database has `"format": "sql"` and a `database`:

    {"url": "postgresql://reader@localhost:5432/crm", "table": "public.customers", "query": null, "driver": null,
     "options": {}, "password_variable": "crm_password", "url_variable": null, "partition_column": "updated_on",
     "dataids": ["2025-01-01"], "write": "replace", "connections": 4}

A batch of a stream has `items`, the range of its log, and then its sources may be none:

    {"folder": "/project/.dataflow/streams/shop/leads", "start": 1000, "end": 1250, "set_aside": true,
     "fields": [["email", "string", true], ["age", "int", false]],
     "state": {"from": "/data/leads_live/…/_runs/7/_state.parquet", "to": "/data/…/_runs/8/_state.parquet",
               "max_bytes": 268435456}}

and, where they are records of a Kafka topic, partitions with their ranges of offsets:

    {…, "topic": {"servers": "kafka:9092", "topic": "leads", "options": {}, "parts": [[0, 500, 620], [1, 480, 610]]}}

It holds no secrets: passwords, and addresses that hold one, reach the child through its environment only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opendataflow.domain.checks.check import Check
from opendataflow.domain.streams import Field, TopicPart

FORMATS = ("csv", "json", "parquet", "orc", "text")
DEFAULT_FORMAT = "parquet"
_SUFFIXES = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".orc": "orc",
    ".txt": "text",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Database:
    """A table or query in a database, and how to get there; what is secret is named, not held."""

    url: str  # postgresql://reader@localhost/crm, sqlite:///crm.db, bigquery://project/dataset, jdbc:…
    driver: str | None = None  # the Python module or the library of another ADBC driver
    options: Mapping[str, str]  # of the driver
    password_variable: str | None = None  # the environment variable that holds the password
    url_variable: str | None = None  # the one that holds the whole address, as Heroku gives it: then `url` is empty
    table: str | None = None
    query: str | None = None
    partition_column: str | None = None
    dataids: tuple[str, ...] = ()  # the chunks to read or write: slots of time or values; empty: all of it
    write: str = "replace"  # this dataid's rows; or `append`, or `replace_table`
    connections: int | None = None  # at most so many at the same time, by all workers together
    staging: str | None = None  # of a destination in BigQuery: the folder of a bucket that it loads chunks from


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A chunk's files, or its rows in a database: where they are or go, and how they are to be read or written."""

    datasetid: str
    location: str
    format: str
    options: Mapping[str, Any]
    schema: Mapping[str, str] | None
    single_file: bool = False  # of a destination: the location is one file, not a directory of them
    database: Database | None = None

    @property
    def locations(self) -> tuple[str, ...]:
        """A window or a rollup reads several chunks: their locations, in order."""
        return tuple(self.location.split("\n"))

    @property
    def is_local(self) -> bool:
        return self.database is None and "://" not in self.location


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicRange:
    """What a batch of a stream holds of a Kafka topic: of every partition its offsets."""

    servers: str
    topic: str
    parts: tuple[TopicPart, ...]
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemRange:
    """A batch of a stream: the items of its log from `start` up to but without `end`."""

    folder: str  # of the stream
    start: int
    end: int
    fields: tuple[Field, ...]
    set_aside: bool = True  # items that the code fails on are left out and told; else the run fails
    topic: TopicRange | None = None  # where they are, if not in the log
    # Of a stream whose code returns the whole dataset: where it is before the batch (None: nowhere yet) and after it.
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkSpec:
    home: str
    slug: str
    transformations: tuple[str, ...]
    dataid: str
    runid: int
    spark: Mapping[str, Any]
    environment: Mapping[str, str]
    sources: tuple[Place, ...]
    destination: Place
    engine: str | None = None  # spark | pandas; None: as the code tells
    rowwise: bool = False  # the author's promise: every output row comes from one input row of the same chunk
    checks: tuple[Check, ...] = ()  # of the destination and of the pipeline, in order
    earlier_rows: tuple[int, ...] = ()  # of the chunks before this one, the nearest first, for checks that compare
    profile: bool = False  # keep rows and seconds of each transformation, at the cost of running it apart
    explain: bool = False  # keep Spark's plan
    timeout_seconds: float | None = None  # of one run
    published_run: int | None = None  # the run that the store has as this chunk's producer, if any
    inputs_digest: str = ""  # of the inputs' versions; the same for a run on the same data
    items: ItemRange | None = None  # of a stream's batch
    in_order: bool = False  # rows come out in the order of the chunks they are read from

    @property
    def name(self) -> str:
        return f"{self.slug}/{self.dataid}"


def chunk_spec(fields: Mapping[str, Any]) -> ChunkSpec:
    """The spec of a JSON object; a missing key is a KeyError, since only the runner writes it."""
    return ChunkSpec(
        home=fields["home"],
        slug=fields["slug"],
        transformations=tuple(fields["transformations"]),
        dataid=fields["dataid"],
        runid=fields["runid"],
        spark=fields["spark"],
        environment=fields["environment"],
        sources=tuple(_place(source) for source in fields["sources"]),
        destination=_place(fields["destination"]),
        engine=fields.get("engine"),
        rowwise=bool(fields.get("rowwise")),
        checks=tuple(Check(one["kind"], one["options"], one["on_fail"]) for one in fields.get("checks") or ()),
        earlier_rows=tuple(fields.get("earlier_rows") or ()),
        profile=bool(fields.get("profile")),
        explain=bool(fields.get("explain")),
        timeout_seconds=fields.get("timeout_seconds"),
        published_run=fields.get("published_run"),
        inputs_digest=str(fields.get("inputs_digest") or ""),
        items=_items(fields["items"]) if fields.get("items") else None,
        in_order=bool(fields.get("in_order")),
    )


def _place(fields: Mapping[str, Any]) -> Place:
    location = fields["location"]
    return Place(
        datasetid=fields["datasetid"],
        location=location,
        format=fields.get("format") or format_of(location),
        options=fields.get("options") or {},
        schema=fields.get("schema"),
        single_file=bool(fields.get("single_file")),
        database=_database(fields["database"]) if fields.get("database") else None,
    )


def _items(fields: Mapping[str, Any]) -> ItemRange:
    topic = fields.get("topic")
    if topic is not None:
        topic = TopicRange(**{**topic, "parts": tuple(TopicPart(*part) for part in topic["parts"])})
    return ItemRange(**{**fields, "fields": tuple(Field(*one) for one in fields["fields"]), "topic": topic})


def _database(fields: Mapping[str, Any]) -> Database:
    return Database(**{**fields, "dataids": tuple(fields.get("dataids") or ())})


def format_of(location: str) -> str:
    """The format that a file's name tells, compressed or not; Parquet where it tells nothing."""
    name = location.rpartition("/")[2].removesuffix(".gz").removesuffix(".bz2").removesuffix(".zst")
    return next((known for suffix, known in _SUFFIXES.items() if name.endswith(suffix)), DEFAULT_FORMAT)
