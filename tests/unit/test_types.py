"""The one type module: its parser, its spellings, and what each system calls a type."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.domain.types.databases import POSTGRESQL_READ, POSTGRESQL_SHORT, affinity, find_type, most_digits
from opendataflow.domain.types.datatype import MOST_DEPTH, DataType, parse_type
from opendataflow.domain.types.spark import ALIASES, SIMPLE, WORDS, family, plain_name, spark_type

LEAVES = st.sampled_from([DataType(name=name) for name in SIMPLE]) | st.builds(
    lambda precision, scale: DataType(name="decimal", parameters=(precision, min(precision, scale))),
    st.integers(1, 38),
    st.integers(0, 38),
)


def _struct(members: dict[str, DataType]) -> DataType:
    return DataType(name="struct", inner=tuple(members.values()), fields=tuple(members))


TYPES = st.recursive(
    LEAVES,
    lambda inner: (
        inner.map(lambda element: DataType(name="array", inner=(element,)))
        | st.tuples(inner, inner).map(lambda pair: DataType(name="map", inner=pair))
        | st.dictionaries(st.text(min_size=1, max_size=8), inner, max_size=4).map(_struct)
    ),
    max_leaves=8,
)


@given(TYPES)
def test_a_type_is_read_again_from_its_text_whatever_its_fields_are_named(found: DataType) -> None:
    assert parse_type(str(found)) == found
    assert spark_type(str(found)) == found


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("Decimal (10, 2)", "decimal(10,2)"),
        ("timestamp(3) with time zone", "timestamp with time zone(3)"),
        ("integer[]", "array<integer>"),
        ("numeric(5,-2)", "numeric(5,-2)"),
        ("STRUCT<`k` STRING, `v` ARRAY<FLOAT64>>", "struct<k:string,v:array<float64>>"),
        ("struct<a: int NOT NULL COMMENT 'b, >', `c d` map<string, int>>", "struct<a:int,`c d`:map<string,int>>"),
        ("struct<`a``b`:int,Comment:date>", "struct<`a``b`:int,Comment:date>"),
        ("struct<>", "struct<>"),
        ("interval day to second", "interval day to second"),
        ("int NOT NULL", "int"),
        ("string COMMENT 'one, two'", "string"),
    ],
)
def test_each_way_to_write_a_type_is_understood(text: str, written: str) -> None:
    assert str(parse_type(text)) == written


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "array", "array<int", "array<>", "array<int,int>", "map<int>", "struct<a>", "struct<:int>", "int>",
        "decimal()", "decimal(", "decimal(x)", "decimal(1;2)", "a,b", "`a`", "int int<", "struct<a b:int>", "'int'",
        "int[", "time64[us]", "enum('a')", "array<" * (MOST_DEPTH + 2) + "int" + ">" * (MOST_DEPTH + 2),
    ],
)  # fmt: skip
def test_a_text_that_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_type(text)
    assert find_type(text) is None
    assert family(text) == "other"


@given(st.text(max_size=40))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    found = find_type(text)
    assert found is None or find_type(str(found)) is not None
    assert plain_name(plain_name(text)) == plain_name(text)


@pytest.mark.parametrize(
    ("declared", "spark", "plain"),
    [
        ("INTEGER", "int", "int"), ("Long", "bigint", "bigint"), ("short", "smallint", "smallint"),
        ("byte", "tinyint", "tinyint"), ("real", "float", "float"), ("dec", "decimal(10,0)", "decimal(10,0)"),
        ("numeric(12)", "decimal(12,0)", "decimal(12,0)"), ("DECIMAL ( 10 , 2 )", "decimal(10,2)", "decimal(10,2)"),
        ("timestamp_ltz", "timestamp", "timestamp"), ("timestamp_ntz", "timestamp_ntz", "timestamp"),
        ("varchar(10)", "varchar(10)", "string"), ("array<char(3)>", "array<char(3)>", "array<string>"),
        ("struct<Long: long, `a b`: varchar(3)>", "struct<Long:bigint,`a b`:varchar(3)>",
         "struct<long:bigint,`a b`:string>"),
        ("time64[us]", "time64[us]", "time64[us]"),
    ],
)  # fmt: skip
def test_a_declared_type_has_one_spelling_in_sparks_words(declared: str, spark: str, plain: str) -> None:
    assert str(spark_type(declared)) == spark
    assert plain_name(declared) == plain


def test_every_word_of_a_project_is_a_type_of_its_family() -> None:
    expected = {
        "boolean": "boolean", "byte": "integer", "tinyint": "integer", "short": "integer", "smallint": "integer",
        "int": "integer", "integer": "integer", "long": "integer", "bigint": "integer", "float": "number",
        "real": "number", "double": "number", "decimal": "number", "dec": "number", "numeric": "number",
        "string": "text", "date": "date", "timestamp": "timestamp", "timestamp_ntz": "timestamp",
        "timestamp_ltz": "timestamp",
    }  # fmt: skip
    assert {word: family(word) for word in WORDS} == {**dict.fromkeys(WORDS, "other"), **expected}
    assert set(ALIASES.values()) <= {*SIMPLE, "decimal"}


def test_postgresqls_short_names_lead_back_to_the_types_they_are_read_as() -> None:
    for spark, short in POSTGRESQL_SHORT.items():
        assert POSTGRESQL_READ[short].spark == spark.removesuffix("_ntz")
    assert set(POSTGRESQL_SHORT) == set(SIMPLE) - {"tinyint"}, "PostgreSQL has no whole number of one byte"
    assert all(family(read.spark) != "other" or read.spark == "binary" for read in POSTGRESQL_READ.values())


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ("BIGINT", "INTEGER"), ("varchar(3)", "TEXT"), ("DECIMAL_TEXT(10,2)", "TEXT"), ("blob", "BLOB"), ("", "BLOB"),
        ("double precision", "REAL"), ("decimal(10,2)", "NUMERIC"), ("DATE", "NUMERIC"), ("point", "INTEGER"),
    ],
)  # fmt: skip
def test_the_affinity_of_sqlites_columns_follows_its_own_rules(declared: str, found: str) -> None:
    assert affinity(declared) == found


def test_a_whole_number_has_as_many_digits_as_its_bits_hold() -> None:
    assert [most_digits(bits) for bits in (8, 16, 32, 64)] == [3, 5, 10, 19]
