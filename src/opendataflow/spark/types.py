"""PySpark's types as values of the domain's type module, and as text."""

from pyspark.sql.types import (
    ArrayType,
    CharType,
    DecimalType,
    MapType,
    StructType,
    VarcharType,
)
from pyspark.sql.types import DataType as SparkType

from opendataflow.domain.types.datatype import ARRAY, MAP, STRUCT, DataType
from opendataflow.domain.types.spark import DECIMAL, spark_type


def data_type(found: SparkType) -> DataType:
    match found:
        case DecimalType():
            return DataType(name=DECIMAL, parameters=(found.precision, found.scale))
        case CharType() | VarcharType():
            return DataType(name=found.typeName(), parameters=(found.length,))
        case ArrayType():
            return DataType(name=ARRAY, inner=(data_type(found.elementType),))
        case MapType():
            return DataType(name=MAP, inner=(data_type(found.keyType), data_type(found.valueType)))
        case StructType():
            inner = tuple(data_type(field.dataType) for field in found)
            return DataType(name=STRUCT, inner=inner, fields=tuple(found.names))
    return spark_type(found.simpleString())


def type_name(found: SparkType) -> str:
    """The type as Spark's DDL takes it, whatever its fields are named: `simpleString` quotes no name."""
    return str(data_type(found))


def types_of(schema: StructType) -> dict[str, str]:
    return {field.name: type_name(field.dataType) for field in schema}
