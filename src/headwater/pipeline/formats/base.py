"""What a format is: for the bytes in a column, the value they stand for and, where they stand for none, the reason.

A format adds two columns to a DataFrame and leaves its rows and their order alone:

    <column>_decoded    the value; a struct, if a record has fields; null where the bytes are null or bad
    <column>_reason     string: why the bytes could not be decoded; null where they could

Null bytes are a tombstone, not an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, StructType

from headwater.pipeline.errors import BadOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DECODED", "REASON", "Format", "struct_of"]

DECODED = "_decoded"
REASON = "_reason"
EXCERPT_CHARACTERS = 200  # of a bad value, in the reason: enough to recognise it, never a whole record


class Format(ABC):
    """How the bytes of a key or a value are read."""

    @abstractmethod
    def schema(self, topics: Sequence[str], part: str) -> DataType:
        """What the values are: a struct for records with fields. `part` is "value" or "key", for registries."""

    @abstractmethod
    def decoded(self, df: DataFrame, column: str, topics: Sequence[str]) -> DataFrame:
        """`df` with the decoded column and the reason."""


def struct_of(schema: StructType | str, where: str) -> StructType:
    """A schema, given as such or as Spark's DDL ("id bigint, name string")."""
    if isinstance(schema, StructType):
        return schema
    from pyspark.errors import PySparkException
    from pyspark.sql.types import _parse_datatype_string

    try:
        parsed = _parse_datatype_string(schema)
    except PySparkException as error:
        raise BadOption(f"{where}: the schema {schema!r} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(parsed, StructType):
        raise BadOption(f"{where}: the schema {schema!r} is a {parsed.simpleString()}; name columns: 'id bigint, ...'")
    return parsed
