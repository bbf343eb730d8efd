"""Values that are one column: bytes as they are, or text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType

from headwater.pipeline.formats.base import DECODED, REASON, Format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Binary", "Text"]


@dataclass(frozen=True, slots=True)
class Binary(Format):
    """Bytes as they came."""

    def schema(self, topics: Sequence[str], part: str) -> DataType:
        return BinaryType()

    def decoded(self, df: DataFrame, column: str, topics: Sequence[str]) -> DataFrame:
        return df.withColumns({column + DECODED: F.col(column), column + REASON: F.lit(None).cast("string")})


@dataclass(frozen=True, slots=True)
class Text(Format):
    """UTF-8."""

    def schema(self, topics: Sequence[str], part: str) -> DataType:
        return StringType()

    def decoded(self, df: DataFrame, column: str, topics: Sequence[str]) -> DataFrame:
        text = F.col(column).cast("string")
        bad = F.col(column).isNotNull() & ~F.is_valid_utf8(text)
        return df.withColumns(
            {column + DECODED: F.when(~bad, text), column + REASON: F.when(bad, F.lit(f"the {column} is not UTF-8"))}
        )
