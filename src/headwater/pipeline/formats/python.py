"""Formats that Spark has no expression for: decoded in Python workers, an Arrow batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType, StringType, StructField, StructType

from headwater.pipeline.formats.base import DECODED, REASON

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["BadRecord", "Decoder", "decoded_in_python"]

Decoder = Callable[[bytes], Any]
"""One value from its bytes, as pyarrow wants it: dictionaries, lists, pairs for maps; BadRecord says what is wrong."""


class BadRecord(ValueError):
    """The bytes are not what the format says."""


def decoded_in_python(df: DataFrame, column: str, wanted: DataType, open_decoder: Callable[[], Decoder]) -> DataFrame:
    """The two columns of a format. `open_decoder` is called once by each task."""
    from pyspark.sql.pandas.types import to_arrow_schema

    decoded = StructField(column + DECODED, wanted)
    arrow_type = to_arrow_schema(StructType([decoded]), timezone="UTC").field(0).type

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        decode = open_decoder()
        for batch in batches:
            values, reasons = _decode_all(decode, batch.column(column).to_pylist())
            made = [*_array(values, reasons, arrow_type)]
            names = [*batch.schema.names, column + DECODED, column + REASON]
            yield pa.RecordBatch.from_arrays([*batch.columns, *made], names=names)

    return df.mapInArrow(run, StructType([*df.schema.fields, decoded, StructField(column + REASON, StringType())]))


def _decode_all(decode: Decoder, raws: list[bytes | None]) -> tuple[list[Any], list[str | None]]:
    values: list[Any] = [None] * len(raws)
    reasons: list[str | None] = [None] * len(raws)
    for i, raw in enumerate(raws):
        if raw is None:
            continue
        try:
            values[i] = decode(raw)
        except BadRecord as error:
            reasons[i] = str(error)
    return values, reasons


def _array(values: list[Any], reasons: list[str | None], arrow_type: pa.DataType) -> Iterator[pa.Array]:
    """As one array; where a value does not fit its type (a date in the year 20000), that record alone is bad."""
    import pyarrow as pa

    try:
        yield pa.array(values, arrow_type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        for i, value in enumerate(values):
            try:
                pa.array([value], arrow_type)
            except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
                values[i], reasons[i] = None, f"does not fit its columns: {error}"
        yield pa.array(values, arrow_type)
    yield pa.array(reasons, pa.string())
