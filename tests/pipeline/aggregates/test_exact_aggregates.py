"""Every exact aggregate: against DuckDB over the same rows, and the same to the last bit in any parts and order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.aggregates.folding import folded, result

from headwater.pipeline import aggregates as agg
from headwater.pipeline.aggregates.aggregate import Aggregate, Aggregates, Grouped
from headwater.pipeline.errors import BadOption, DefinitionError, UnknownColumn, WrongType

SPREAD = agg.custom(
    ["x"],
    partial=lambda rows: [pc.min(rows["x"]).as_py(), pc.max(rows["x"]).as_py()],
    merge=lambda a, b: [min(a[0], b[0]), max(a[1], b[1])],
    finish=lambda state: state[1] - state[0],
    state=pa.list_(pa.float64()),
    result=pa.float64(),
)

EXACT: dict[str, tuple[Callable[[], Aggregate], str]] = {
    "count": (agg.count, "count(*)"),
    "count of a column": (lambda: agg.count("x"), "count(x)"),
    "sum": (lambda: agg.sum("x"), "sum(x)"),
    "sum of whole numbers": (lambda: agg.sum("i"), "sum(i)"),
    "mean": (lambda: agg.mean("x"), "avg(x)"),
    "variance": (lambda: agg.variance("x"), "var_samp(x)"),
    "stddev": (lambda: agg.stddev("x"), "stddev_samp(x)"),
    "min": (lambda: agg.min("s"), "min(s)"),
    "max": (lambda: agg.max("x"), "max(x)"),
    "first": (lambda: agg.first("x"), "first(x order by _offset)"),
    "last": (lambda: agg.last("s"), "last(s order by _offset)"),
    "count_distinct": (lambda: agg.count_distinct("s"), "count(distinct s)"),
    "collect_set": (lambda: agg.collect_set("i"), "list_sort(list(distinct i) filter (i is not null))"),
    "median": (lambda: agg.median("x"), "quantile_cont(x, 0.5)"),
    "percentile": (lambda: agg.percentile("i", 0.9), "quantile_cont(i, 0.9)"),
    "percentiles": (lambda: agg.percentile("x", [0.1, 0.99]), "quantile_cont(x, [0.1, 0.99])"),
    "collect": (lambda: agg.collect("s"), "list(s order by _offset) filter (s is not null)"),
    "collect the earliest": (lambda: agg.collect("i", 2), "(list(i order by _offset) filter (i is not null))[1:2]"),
    "top": (lambda: agg.top("i", 3), "(list(i order by i desc) filter (i is not null))[1:3]"),
    "top by": (
        lambda: agg.top("s", 2, by="i"),
        "(list(s order by i desc, s) filter (s is not null and i is not null))[1:2]",
    ),
    "custom": (lambda: SPREAD, "max(x) - min(x)"),
}

numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 3))
row = st.tuples(
    st.integers(0, 2), numbers, st.integers(-5, 5) | st.none(), st.sampled_from(["a", "b", "c"]) | st.none()
)


def table_of(rows: list[tuple[int, float, int | None, str | None]]) -> tuple[pa.Table, list[int]]:
    groups, x, i, s = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    offsets = list(range(len(rows)))
    columns = {"x": pa.float64(), "i": pa.int64(), "s": pa.string(), "_offset": pa.int64()}
    arrays = [pa.array(c, kind) for c, kind in zip((x, i, s, offsets), columns.values(), strict=True)]
    return pa.table(arrays, list(columns)), groups


def by_duckdb(sql: str, table: pa.Table, groups: list[int]) -> list[Any]:
    given = table.append_column("g", pa.array(groups, pa.int64()))
    connection = duckdb.connect()
    connection.register("given", given)
    found = dict(connection.execute(f"select g, {sql} from given group by g").fetchall())
    return [found.get(group) for group in range(max(groups) + 1)]


@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=15, deadline=None)
@given(rows=st.lists(row, min_size=1, max_size=25))
def test_an_exact_aggregate_gives_what_sql_gives(name: str, rows: list[Any]) -> None:
    make, sql = EXACT[name]
    table, groups = table_of(rows)
    for found, wanted in zip(result(make(), table, groups), by_duckdb(sql, table, groups), strict=True):
        if isinstance(wanted, list) or (wanted is None and isinstance(found, list)):
            assert found == pytest.approx(wanted or [])
        elif isinstance(wanted, float):
            assert found == pytest.approx(wanted, rel=1e-6, abs=1e-4)
        elif wanted is None and isinstance(found, int):
            assert found == 0
        else:
            assert found == wanted


@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=15, deadline=None)
@given(rows=st.lists(row, min_size=1, max_size=25), parts=st.integers(1, 6), seed=st.integers(0, 99))
def test_an_exact_aggregate_is_the_same_to_the_last_bit_in_any_parts_and_order(
    name: str, rows: list[Any], parts: int, seed: int
) -> None:
    aggregate = EXACT[name][0]()
    table, groups = table_of(rows)
    at_once = folded(aggregate, table, groups, [range(len(rows))])
    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    in_parts = folded(aggregate, table, groups, [order[part::parts] for part in range(parts)])
    assert in_parts.equals(at_once)


@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=10, deadline=None)
@given(rows=st.lists(row, min_size=1, max_size=25), data=st.data())
def test_an_aggregate_over_ranges_is_the_aggregate_of_each_range(name: str, rows: list[Any], data: Any) -> None:
    table, _ = table_of(rows)
    cuts = st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows)))
    ranges = [(min(cut), max(cut)) for cut in data.draw(st.lists(cuts, min_size=1, max_size=6))]
    both = Aggregates({"x": EXACT[name][0]()}, table.schema, "test")
    low, high = (np.array(column, dtype=np.int64) for column in zip(*ranges, strict=True))
    whole = Grouped(table, np.zeros(len(rows), dtype=np.int64), 1)
    found = both.values(both.over(whole, low, high))["x"].to_pylist()
    for (start, end), value in zip(ranges, found, strict=True):
        piece = table.slice(start, end - start)
        alone = both.partial(Grouped(piece, np.zeros(end - start, dtype=np.int64), 1))
        assert value == both.values(alone)["x"].to_pylist()[0]


@pytest.mark.parametrize("name", [name for name, (make, _) in EXACT.items() if make().retracting().retracts])
@settings(max_examples=15, deadline=None)
@given(rows=st.lists(row, min_size=1, max_size=25), gone=st.integers(0, 25))
def test_rows_taken_back_leave_no_trace(name: str, rows: list[Any], gone: int) -> None:
    table, groups = table_of(rows)
    both = Aggregates({"x": EXACT[name][0]()}, table.schema.append(pa.field("_weight", pa.int32())), "test")
    count, index = max(groups) + 1, np.array(groups, dtype=np.int64)
    back = np.arange(len(rows)) % 26 < gone
    minus = Grouped(table.filter(pa.array(back)), index[back], count, -np.ones(int(back.sum()), dtype=np.int64))
    left = both.merge(both.partial(Grouped(table, index, count)), both.partial(minus))
    assert both.retracts
    never = both.partial(Grouped(table.filter(pa.array(~back)), index[~back], count))
    assert pa.table(dict(left)).equals(pa.table(dict(never)))
    plain = Aggregates({"x": EXACT[name][0]()}, table.schema, "test")
    kept = plain.partial(Grouped(table.filter(pa.array(~back)), index[~back], count))
    assert both.values(left)["x"].equals(plain.values(kept)["x"])


def test_sums_of_doubles_are_exact_however_they_are_added_up() -> None:
    table = pa.table({"x": [1e100, 1.0, -1e100, 1e-300]})
    assert result(agg.sum("x"), table) == [1.0]
    assert result(agg.sum("x"), pa.table({"x": [0.1] * 10})) == [math.fsum([0.1] * 10)]
    assert result(agg.sum("x"), pa.table({"x": [math.inf, 1.0]})) == [math.inf]
    assert math.isnan(result(agg.mean("x"), pa.table({"x": [math.inf, -math.inf]}))[0])


def test_zero_and_nan_are_one_value_each() -> None:
    table = pa.table({"x": [0.0, -0.0, math.nan, -math.nan, 1.0]})
    assert result(agg.count_distinct("x"), table) == [3]


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: agg.percentile("x", 95), BadOption, "say 0 to 1"),
        (lambda: agg.top("x", 0), BadOption, "1 or more"),
        (lambda: agg.percentile("s", 0.5), WrongType, "must be a number"),
        (lambda: agg.count_distinct("l"), WrongType, "column 'l'"),
        (lambda: agg.top("x", 2, by="price"), UnknownColumn, "price"),
        (lambda: agg.collect("x"), DefinitionError, "no order"),
        (lambda: agg.stddev("s"), WrongType, "must be a number"),
    ],
)
def test_mistakes_are_told_while_the_aggregate_is_written_down(make: Any, error: type[Exception], says: str) -> None:
    schema = pa.schema({"x": pa.float64(), "s": pa.string(), "l": pa.list_(pa.int64())})
    with pytest.raises(error, match=says):
        Aggregates({"a": make()}, schema, "test")
