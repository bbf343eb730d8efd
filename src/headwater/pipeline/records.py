"""From the rows of a pipeline to the records of a topic: `key` and `value` for `write_topic`.

A changelog (rows with `_weight`) becomes, by `changes`,

    "upsert"      a table in a compacted topic: +1 is the row under its key, -1 a tombstone. What counts is the last
                  record of a key, so a key's rows must come in order, as operators give them
    "changelog"   every row with its `_weight` among its fields

Keys are JSON objects with sorted names, so that equal keys are equal bytes whoever writes them. Columns that start
with an underscore stay behind, except what dead letters need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.pipeline.columns import ERROR, WEIGHT
from headwater.pipeline.errors import BadOption, DefinitionError, UnknownColumn, WrongType
from headwater.pipeline.outgoing import DEAD_LETTER_COLUMNS

__all__ = ["to_records"]

# nulls are said, and times keep their microseconds
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


def to_records(
    df: DataFrame,
    *,
    key: Sequence[str] = (),
    value: Literal["json"] = "json",
    changes: Literal["upsert", "changelog"] = "upsert",
) -> DataFrame:
    """Rows as records: the columns `key` (JSON of the key columns, sorted by name) and `value` (JSON of all)."""
    where = "to_records"
    if value != "json":
        raise BadOption(f"{where}: value is {value!r}; say 'json'")
    if changes not in ("upsert", "changelog"):
        raise BadOption(f"{where}: changes is {changes!r}; say 'upsert' or 'changelog'")
    for name in key:
        if name not in df.columns:
            raise UnknownColumn(name, df.columns, f"{where}: key")
    body = [name for name in df.columns if not name.startswith("_")]
    if not body:
        raise DefinitionError(f"{where}: the DataFrame has no columns to write; those that start with _ stay behind")
    weighted = WEIGHT in df.columns
    if weighted and changes == "upsert" and not key:
        raise DefinitionError(f"{where}: a changelog becomes upserts by its key: say key=[...]")
    if weighted and changes == "changelog":
        body.append(WEIGHT)
    columns = {"value": _value(df, body, tombstones=weighted and changes == "upsert", where=where)}
    if key:
        columns["key"] = F.to_json(F.struct(*sorted(key)), _JSON)
    kept = (ERROR, *DEAD_LETTER_COLUMNS) if ERROR in df.columns else ()
    return df.select(*(column.alias(name) for name, column in columns.items()), *kept)


def _value(df: DataFrame, body: Sequence[str], *, tombstones: bool, where: str) -> Column:
    row = F.to_json(F.struct(*body), _JSON)
    if not tombstones:
        return row
    kind = df.schema[WEIGHT].dataType.simpleString()
    if kind not in ("int", "bigint", "smallint", "tinyint"):
        raise WrongType(WEIGHT, kind, "an integer", where)
    return F.when(F.col(WEIGHT) > 0, row)
