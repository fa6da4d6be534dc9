"""Does a plan make every row of its result from one row of the chunks? Only what is known to do so is let through.

Over the chunks: operators that look at one row, with expressions and functions that look at its values only. Joined to
them may be what is read from other files, or is written in the code, with more operators and with aggregates whose
result does not depend on an order. Anything else, also what a newer Spark adds, is refused by its name.

What is not here on purpose: everything that depends on the file, the partition, the moment, the session or on chance
(`input_file_name`, `_metadata`, `current_timestamp`, `rand` …), functions of Java code (they may keep state that all
tasks share), `reflect`, subqueries, and whatever sees several rows.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

# Over the chunks ------------------------------------------------------------------------------------------------------
_ROWWISE = frozenset(
    {"Expand", "Filter", "Generate", "Join", "LogicalRelation", "Project", "ResolvedHint", "SubqueryAlias", "View"}
)
# Each row of the chunks is kept, left out or repeated by itself; the others would give rows that no chunk has.
_LEFT = frozenset({"Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti"})
_RIGHT = frozenset({"Inner", "Cross", "RightOuter"})
# Beside them ----------------------------------------------------------------------------------------------------------
_BESIDE = _ROWWISE | {
    "Aggregate", "Distinct", "Except", "Intersect", "LocalRelation", "OneRowRelation", "Range", "Sort", "Union",
}  # fmt: skip
_HOLDS_FILES = "HadoopFsRelation"
_LEAVES = frozenset({"LocalRelation", "OneRowRelation", "Range"})

_BASICS = """
    Alias AttributeReference Cast CheckOverflow CommonExpressionDef CommonExpressionId CommonExpressionRef
    CreateArray CreateMap CreateNamedStruct GetArrayItem GetArrayStructFields GetMapValue GetStructField
    KnownFloatingPointNormalized KnownNotNull KnownNullable LambdaFunction Literal MultiAlias NamedLambdaVariable
    NormalizeNaNAndZero PromotePrecision PythonUDF TryEval UpCast UpdateFields WithField DropField Invoke
    StaticInvoke TypeOf With
"""
_CONDITIONS = """
    And AtLeastNNonNulls Between CaseWhen Coalesce EqualNull EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual
    ILike If In InSet IsNaN IsNotNull IsNull LessThan LessThanOrEqual Like LikeAll LikeAny NaNvl Not NotLikeAll
    NotLikeAny NullIf NullIfZero Nvl Nvl2 Or RLike ZeroIfNull AssertTrue RaiseError
"""
_NUMBERS = """
    Abs Acos Acosh Add Asin Asinh Atan Atan2 Atanh BRound Bin BitwiseAnd BitwiseCount BitwiseGet BitwiseNot
    BitwiseOr BitwiseXor Cbrt Ceil Conv Cos Cosh Cot Csc Divide EulerNumber Exp Expm1 Factorial Floor Greatest Hex
    Hypot IntegralDivide Least Log Log10 Log1p Log2 Logarithm MakeDecimal Multiply Pi Pmod Pow Remainder Rint Round
    RoundCeil RoundFloor Sec ShiftLeft ShiftRight ShiftRightUnsigned Signum Sin Sinh Sqrt Subtract Tan Tanh
    ToDegrees ToRadians TryAdd TryDivide TryMod TryMultiply TrySubtract UnaryMinus UnaryPositive Unhex UnscaledValue
    WidthBucket
"""
_TEXT = """
    Ascii Base32 Base64 BinaryPad BitLength Chr Collate Collation Concat ConcatWs Contains Crc32 Decode Elt
    Empty2Null Encode EndsWith FindInSet FormatNumber FormatString InitCap IsValidUTF8 JaroWinkler Left Length
    Levenshtein Lower Luhncheck MakeValidUTF8 Mask Md5 Murmur3Hash OctetLength Overlay ParseUrl Quote RegExpCount
    RegExpExtract RegExpExtractAll RegExpInStr RegExpReplace RegExpSubStr Right Sentences Sha1 Sha2 SoundEx
    SplitPart StartsWith StringDecode StringEncode StringInstr StringLPad StringLocate StringRPad StringRepeat
    StringReplace StringSpace StringSplit StringTranslate StringTrim StringTrimBoth StringTrimLeft StringTrimRight
    Substring SubstringIndex ToBinary ToCharacter ToNumber TryParseUrl TryToBinary TryToNumber TryUrlDecode
    TryValidateUTF8 UnBase32 UnBase64 Upper UrlDecode UrlEncode ValidateUTF8 XxHash64
"""
_TIMES = """
    AddMonths ConvertTimezone DateAdd DateAddInterval DateAddYMInterval DateDiff DateFormatClass DateFromUnixDate
    DatePart DateSub DayName DayOfMonth DayOfWeek DayOfYear DivideDTInterval DivideInterval DivideYMInterval
    ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes ExtractANSIIntervalMonths
    ExtractANSIIntervalSeconds ExtractANSIIntervalYears ExtractIntervalDays ExtractIntervalHours
    ExtractIntervalMinutes ExtractIntervalMonths ExtractIntervalSeconds ExtractIntervalYears Extract
    FromUTCTimestamp FromUnixTime GetTimestamp Hour HoursOfTime LastDay MakeDTInterval MakeDate MakeInterval
    MakeTime MakeTimestamp MakeTimestampLTZ MakeTimestampNTZ MakeYMInterval MicrosToTimestamp MillisToTimestamp
    Minute MinutesOfTime Month MonthName MonthsBetween MultiplyDTInterval MultiplyInterval MultiplyYMInterval
    NanosToTimestamp NextDay ParseToDate ParseToTimestamp ParseToTimestampLTZExpressionBuilder
    ParseToTimestampNTZExpressionBuilder PreciseTimestampConversion Quarter Second SecondWithFraction SecondsOfTime
    SecondsToTimestamp SubtractDates SubtractTimestamps TimeAdd TimestampAdd TimestampAddInterval
    TimestampAddYMInterval TimestampDiff ToTime ToUTCTimestamp ToUnixTimestamp TruncDate TruncTimestamp
    TryMakeInterval TryMakeTimestamp TryMakeTimestampLTZ TryMakeTimestampNTZ TryToDate TryToTime TryToTimestamp
    UnixDate UnixMicros UnixMillis UnixSeconds UnixTimestamp WeekDay WeekOfYear Year YearOfWeek
"""
_NESTED = """
    ArrayAggregate ArrayAppend ArrayCompact ArrayContains ArrayDistinct ArrayExcept ArrayExists ArrayFilter
    ArrayForAll ArrayInsert ArrayIntersect ArrayJoin ArrayMax ArrayMin ArrayPosition ArrayPrepend ArrayRemove
    ArrayRepeat ArraySize ArraySort ArrayTransform ArrayUnion ArraysOverlap ArraysZip CsvToStructs ElementAt Explode
    Flatten GeneratorOuter Get GetJsonObject Inline IsValidVariant IsVariantNull JsonObjectKeys JsonToStructs
    JsonTuple LengthOfJsonArray MapConcat MapContainsKey MapEntries MapFilter MapFromArrays MapFromEntries MapKeys
    MapValues MapZipWith ParseJson PosExplode Reverse SchemaOfCsv SchemaOfJson SchemaOfVariant SchemaOfXml Sequence
    Size Slice SortArray Stack StringToMap StructsToCsv StructsToJson StructsToXml ToVariantObject TransformKeys
    TransformValues TryElementAt TryParseJson VariantGet XmlToStructs XPathBoolean XPathDouble XPathFloat XPathInt
    XPathList XPathLong XPathShort XPathString ZipWith
"""
_EXPRESSIONS = frozenset("".join((_BASICS, _CONDITIONS, _NUMBERS, _TEXT, _TIMES, _NESTED)).split())
# Whose result is the same in whichever order the rows come.
_AGGREGATES = _EXPRESSIONS | frozenset(
    [
        "AggregateExpression",
        "Average",
        "BitAndAgg",
        "BitOrAgg",
        "BitXorAgg",
        "BoolAnd",
        "BoolOr",
        "Complete$",
        "Count",
        "CountIf",
        "Max",
        "Min",
        "SortOrder",
        "StddevPop",
        "StddevSamp",
        "Sum",
        "VariancePop",
        "VarianceSamp",
    ]
)
_PYTHON_ROW_BY_ROW = frozenset({100, 101, 200, 204})  # evalType: a UDF, with Arrow, of Series, of iterators of Series
_METADATA = "_metadata"


class NotRowwise(Exception):
    """The plan may hold more than one row's doing; the message says where."""


def require_rowwise(plan: Any, is_chunk: Callable[[Any], bool]) -> None:
    """Raise NotRowwise unless this analysed plan is known to work row by row.

    `is_chunk` says of a relation of files whether the chunks are read by it.
    """
    if not _has_chunk(plan, is_chunk):
        raise NotRowwise("the result is not made of the chunk")
    _walk(plan, is_chunk)


def _walk(node: Any, is_chunk: Callable[[Any], bool]) -> None:
    """A part of the plan that the chunks' rows go through."""
    name = _class_of(node)
    if name not in _ROWWISE:
        raise NotRowwise(f"{_shown(name)} is not known to work row by row")
    _require_expressions(node, _EXPRESSIONS)
    children = _each(node.children())
    with_chunk = [child for child in children if _has_chunk(child, is_chunk)]
    if len(with_chunk) > 1:
        raise NotRowwise("the chunk is joined with itself")
    if name == "Join":
        kind = str(node.joinType().toString())
        kept = _LEFT if children[0] in with_chunk else _RIGHT
        if kind not in kept:
            raise NotRowwise(f"a {kind} join gives rows that are of no chunk")
    for child in children:
        if child in with_chunk:
            _walk(child, is_chunk)
        else:
            _walk_beside(child)


def _walk_beside(node: Any) -> None:
    """A part of the plan without the chunks."""
    name = _class_of(node)
    if name not in _BESIDE:
        raise NotRowwise(f"{_shown(name)} beside the chunk may depend on an order, or holds what nobody sees")
    children = _each(node.children())
    if not children and name not in _LEAVES and _class_of(node.relation()) != _HOLDS_FILES:
        raise NotRowwise(f"{_class_of(node.relation())} does not show where its rows come from")
    _require_expressions(node, _AGGREGATES)
    for child in children:
        _walk_beside(child)


def _has_chunk(plan: Any, is_chunk: Callable[[Any], bool]) -> bool:
    return any(
        _class_of(leaf) == "LogicalRelation" and is_chunk(leaf.relation()) for leaf in _each(plan.collectLeaves())
    )


def _require_expressions(node: Any, known: frozenset[str]) -> None:
    for expression in _each(node.expressions()):
        for one in _parts(json.loads(expression.toJSON())):
            name = str(one["class"]).rpartition(".")[2]
            if name not in known:
                raise NotRowwise(f"{_shown(name)} is not known to depend on the values of one row alone")
            if name == "AttributeReference" and one.get("name") == _METADATA:
                raise NotRowwise("_metadata tells which file a row is from")
            if name == "PythonUDF" and one.get("evalType") not in _PYTHON_ROW_BY_ROW:
                raise NotRowwise("a Python function of this kind sees several rows")


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    """Every expression, and whatever else of a plan, within this one."""
    if isinstance(value, dict):
        if "class" in value:
            yield value
        for one in value.values():
            yield from _parts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _parts(one)


def _class_of(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _shown(name: str) -> str:
    return name.removesuffix("$")


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]
