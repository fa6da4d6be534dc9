"""What may enter a stream: strict JSON that fits the schema, and every refusal names item, field and reason."""

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opendataflow.domain.streams import Field
from opendataflow.errors import UsageError
from opendataflow.intake.files import count_items, read_parts
from opendataflow.intake.refusals import ItemsRefused, NotJson
from opendataflow.intake.schema import StreamSchema

LEADS = StreamSchema([Field("email", "string", True), Field("name", "string", True), Field("age", "int", False)])
WIDE = StreamSchema(
    [
        Field("price", "decimal(10,2)", True), Field("day", "date", False), Field("at", "timestamp", False),
        Field("ok", "boolean", False), Field("rate", "double", False), Field("small", "tinyint", False),
        Field("tags", "array<string>", False), Field("who", "struct<userId:bigint,name:string>", False),
        Field("raw", "binary", False), Field("marks", "map<string,int>", False),
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    ("body", "lines", "count"),
    [
        (b'{"email": "a@b", "name": "Ann O\'Hara\\n; DROP TABLE leads"}', False, 1),
        (b'\n[{"email": "a", "name": "b"},\r\n {"email": "c: d", "name": "\\"e\\": f", "age": null}]\n', False, 2),
        (b'{"email": "a", "name": "b"}\r\n\n{"email": "c", "name": "}{", "age": 7}', True, 2),
    ],
)
def test_items_are_taken_as_they_come_in_one_line(body: bytes, lines: bool, count: int) -> None:
    items = LEADS.parse(body, lines=lines)
    assert items.count == count == len(json.loads(items.data))
    assert b"\n" not in items.data
    assert b"\r" not in items.data


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "there is no item"),
        (b"[]", "there is no item"),
        (b"5", "5 is no object"),
        (b'{"email": "a"}', "item 0: name: is not there, and is required"),
        (b'[{"email": "a", "name": "b"}, {"email": 7, "name": "b"}]', "item 1: email: 7 is not a text"),
        (b'{"email": "a", "name": null}', "name: is null, and is required: a text"),
        (b'{"email": "a", "name": "b", "nmae": 1}', "nmae: is not a field of this stream; it has email, name, age"),
        (b'{"email": "a", "name": "b", "age": 1.5}', "age: 1.5 is not an int"),
        (b'{"email": "a", "name": "b", "age": "7"}', 'age: "7" is not an int'),
        (b'{"email": "a", "name": "b", "age": 3000000000}', "age: 3000000000 is out of the range of int"),
        (b'{"email": "a", "name": "b", "age": true}', "age: true is not an int"),
        (b'{"email": "a", "email": "b", "name": ":"}', "email: stands twice in one object"),
        (b'{"email": "a\\u0000", "name": "b"}', "email: holds a NUL character"),
    ],
)
def test_an_item_that_does_not_fit_is_named_with_field_and_reason(body: bytes, problem: str) -> None:
    with pytest.raises(ItemsRefused) as refused:
        LEADS.parse(body)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    "body",
    [
        b'{"email": "a", "name": "\xff"}', b'{"email": "a", "name": "\\ud800"}', b'{"email": "a\nb", "name": "b"}',
        b"[" * 100_000, b'{"email": ' + b"9" * 10_000 + b"}", b"\xef\xbb\xbf{}", b'{"email": "a", "name": "b"} x',
        b'{"email": "a", "name": "b"}, {"email": "a", "name": "b"}', b'{"email": "a", "name": "b",}', b"\0",
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(NotJson, match="no JSON"):
        LEADS.parse(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"email": "a", "name":\n"b"}',
        b'{"email": "a", "name": "b"},{"email": "c", "name": "d"}',
        b'{"email": "x\ny", "name": "b"}',
        b'{"email": "a", "name": "b"},{"email": "}\n{", "name": "d"}',
        b'[{"email": "a", "name": "b"}]',
    ],
)
def test_a_line_of_ndjson_is_one_object(body: bytes) -> None:
    with pytest.raises((NotJson, ItemsRefused)):
        LEADS.parse(body, lines=True)


def test_items_come_back_as_python_values_in_the_declared_order() -> None:
    body = (
        b'[{"at": "2026-11-16T13:05:00.5+01:00", "price": 12345678.90, "day": "2026-02-28", "ok": false, "rate": 1,'
        b' "tags": ["a", null], "who": {"userId": 9223372036854775807}, "raw": "AAE=", "marks": {"x": 1}},'
        b' {"price": "7"}]'
    )
    first, second = WIDE.typed(WIDE.parse(body).data)
    assert list(first) == list(second) == list(WIDE.names)
    assert first == {
        "price": decimal.Decimal("12345678.90"), "day": datetime.date(2026, 2, 28), "ok": False, "rate": 1.0,
        "at": datetime.datetime(2026, 11, 16, 12, 5, 0, 500_000, tzinfo=datetime.UTC), "small": None,
        "tags": ["a", None], "who": {"userId": 9223372036854775807}, "raw": b"\0\1", "marks": {"x": 1},
    }  # fmt: skip
    assert second["price"] == decimal.Decimal("7.00")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("price", "0.001"), ("price", "123456789"), ("price", "true"), ("price", '"x"'), ("price", "1e99999"),
        ("day", '"2026-02-30"'), ("day", '"2026-2-3"'), ("day", "20260203"), ("at", '"0001-01-01T00:00:00+14:00"'),
        ("at", "1763298300"), ("ok", '"true"'), ("ok", "0"), ("rate", "1e999"), ("rate", "NaN"), ("rate", '"1"'),
        ("small", "128"), ("small", "1.0"), ("tags", '"a"'), ("tags", "[1]"), ("who", '{"userid": 1}'),
        ("who", '{"userId": 1, "userId": 2}'), ("raw", '"*"'), ("marks", '{"x": "1"}'),
    ],
)  # fmt: skip
def test_a_value_of_another_type_or_range_is_refused(field: str, value: str) -> None:
    price = "" if field == "price" else '"price": 1, '
    with pytest.raises((ItemsRefused, NotJson)) as refused:
        WIDE.parse(f'{{{price}"{field}": {value}}}'.encode())
    if isinstance(refused.value, ItemsRefused):
        assert (refused.value.problems[0].field or "").partition(".")[0] in (field, "userId")


def test_a_type_that_no_item_can_have_is_refused() -> None:
    for declared in ("interval", "variant", "map<int,string>", "array<void>"):
        with pytest.raises(UsageError):
            StreamSchema([Field("x", declared, True)])


def test_a_decimal_without_places_takes_whole_numbers() -> None:
    schema = StreamSchema([Field("a", "decimal(5)", True), Field("b", "decimal", True)])
    (item,) = schema.typed(schema.parse(b'{"a": 12345, "b": 1234567890}').data)
    assert item == {"a": decimal.Decimal(12345), "b": decimal.Decimal(1234567890)}
    with pytest.raises(ItemsRefused):
        schema.parse(b'{"a": 1.5, "b": 1}')


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | _VALUES.map(lambda value: json.dumps(value).encode()), st.booleans())
def test_whatever_comes_is_taken_or_refused_and_what_is_taken_fits(body: bytes, lines: bool) -> None:
    for schema in (LEADS, WIDE):
        try:
            items = schema.parse(body, lines=lines)
        except UsageError:
            continue
        assert len(schema.typed(items.data)) == items.count


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"email": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), "name": st.just("b")},
            optional={"age": st.none() | st.integers(-(2**31), 2**31 - 1)},
        ),
        min_size=1,
    ),
    st.booleans(),
)
def test_every_item_that_fits_is_taken_and_comes_back_as_it_was(objects: list[dict[str, Any]], lines: bool) -> None:
    texts = [json.dumps(one, ensure_ascii=lines) for one in objects]
    body = "\n".join(texts) if lines else f"[{','.join(texts)}]"
    items = LEADS.parse(body.encode(), lines=lines)
    assert json.loads(items.data) == objects
    assert LEADS.items_of(objects).count == len(objects)


# Files ----------------------------------------------------------------------------------------------------------------
def test_a_csv_gives_the_same_items_as_ndjson(tmp_path: Path) -> None:
    table = tmp_path / "leads.csv"
    table.write_bytes(b'\xef\xbb\xbfname,email,age\r\n"O\'Hara, ""Ann""\nsecond line",a@b,7\r\n\r\n,c@d,\r\n')
    lines = tmp_path / "leads.ndjson"
    wanted = [{"name": 'O\'Hara, "Ann"\nsecond line', "email": "a@b", "age": 7}, {"name": "", "email": "c@d"}]
    lines.write_text("\n".join(json.dumps(one) for one in wanted))
    for file in (table, lines):
        (part,) = read_parts(str(file), LEADS)
        assert json.loads(part.data) == wanted
        assert [one.count for one in read_parts(str(file), LEADS, at_once=1)] == [1, 1]
        assert [one.count for one in read_parts(str(file), LEADS, most_bytes=70)] == [1, 1]
        assert count_items(str(file), LEADS) == 2


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.csv", "name,email,age\nx,y,1\nx,y,old\n", 'line 3: age: "old" is not an int'),
        ("a.csv", "name,email,age\nx,y\n", "line 2 has 2 cells"),
        ("a.csv", "name,mail\nx,y\n", "'mail' are not fields of this stream"),
        ("a.csv", "name,email,name\nx,y,z\n", "stands twice"),
        ("a.csv", "name\nx\n", "line 2: email: is not there"),
        ("a.csv", "", "is empty"),
        ("a.ndjson", '{"name": "x", "email": "y"}\n\n{"name": 1}\n', "line 3: "),
        ("a.ndjson", '{"name": "x", "email": "y"}\n{"name"\n', "line 2 is no JSON object"),
        ("a.xlsx", "", "are read from .csv or .ndjson"),
        ("missing/a.csv", None, "cannot read"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_refused_with_its_line(
    tmp_path: Path, name: str, text: str | None, problem: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as refused:
        count_items(str(tmp_path / name), LEADS)
    assert problem in str(refused.value)
