"""Approximate aggregates: within their errors, in any parts; and Spark reads what they write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import datasketches as ds
import numpy as np
import pyarrow as pa
import pytest
from tests.pipeline.aggregates.folding import folded, result

from headwater.pipeline import aggregates as agg
from headwater.pipeline.aggregates.aggregate import Aggregate, Aggregates
from headwater.pipeline.errors import BadOption, WrongType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 20_000
NUMBERS = np.random.default_rng(7).zipf(1.3, ROWS) % 50_000
TABLE = pa.table({"i": NUMBERS, "s": [f"user {n}" for n in NUMBERS.tolist()], "x": NUMBERS.astype(float)})
DISTINCT = len(np.unique(NUMBERS))


def parts(count: int) -> list[list[int]]:
    order = np.random.default_rng(count).permutation(ROWS).tolist()
    return [order[part::count] for part in range(count)]


def in_parts(aggregate: Aggregate, count: int = 4) -> Any:
    return folded(aggregate, TABLE, [0] * ROWS, parts(count))["result"].to_pylist()[0]


@pytest.mark.parametrize("column", ["i", "s", "x"])
def test_distinct_values_are_counted_within_the_error(column: str) -> None:
    assert in_parts(agg.approx_count_distinct(column)) == pytest.approx(DISTINCT, rel=0.05)
    assert result(agg.approx_count_distinct(column), TABLE.slice(0, 0), []) == []


@pytest.mark.parametrize("make", [agg.approx_count_distinct, agg.hll_sketch, agg.theta_sketch, agg.bloom_filter])
@pytest.mark.parametrize("rows", [5, 100, 1500, ROWS])
def test_sketches_of_distinct_values_are_the_same_bytes_in_any_parts(
    make: Callable[[str], Aggregate], rows: int
) -> None:
    table = TABLE.slice(0, rows)
    order = np.random.default_rng(rows).permutation(rows).tolist()
    seen = {
        str(folded(make("s"), table, [0] * rows, [order[part::count] for part in range(count)]).to_pylist())
        for count in (1, 2, 5)
    }
    assert len(seen) == 1


def test_percentiles_are_within_the_error() -> None:
    values = np.random.default_rng(1).normal(size=ROWS)
    table = pa.table({"x": values})
    for share in (0.01, 0.5, 0.99):
        found = folded(agg.approx_percentile("x", share), table, [0] * ROWS, parts(5))["result"][0].as_py()
        assert float((values <= found).mean()) == pytest.approx(share, abs=0.015)
    sketch = ds.kll_doubles_sketch.deserialize(
        folded(agg.kll_sketch("x"), table, [0] * ROWS, parts(5))["result"][0].as_py()
    )
    assert float((values <= sketch.get_quantile(0.9)).mean()) == pytest.approx(0.9, abs=0.02)


def test_the_most_frequent_values_are_found() -> None:
    wanted = Counter(str(n) for n in NUMBERS.tolist()).most_common(5)
    found = in_parts(agg.approx_top_k("i", 5))
    assert [one["item"] for one in found] == [item for item, _ in wanted]
    for one, (_, count) in zip(found, wanted, strict=True):
        assert one["count"] == pytest.approx(count, abs=ROWS * 0.004)


def test_counts_are_never_too_low_and_rarely_too_high() -> None:
    sketch = ds.count_min_sketch.deserialize(in_parts(agg.count_min("i")))
    for value, count in Counter(NUMBERS.tolist()).most_common(50):
        assert count <= sketch.get_estimate(int(value)) <= count + ROWS * 0.001


def test_a_bloom_filter_forgets_nothing_and_is_rarely_wrong() -> None:
    made = in_parts(agg.bloom_filter("s", expected=5_000))
    assert all(agg.might_contain(made, [f"user {n}" for n in NUMBERS[:500].tolist()]))
    never = agg.might_contain(made, [f"nobody {n}" for n in range(2_000)])
    assert sum(never) < 2_000 * 0.05


def test_no_values_are_null_or_none() -> None:
    table = pa.table({"i": pa.array([None, 1], pa.int64())})
    for make, nothing in ((agg.hll_sketch, None), (agg.bloom_filter, None), (agg.approx_count_distinct, 0)):
        assert result(make("i"), table, [0, 1])[0] == nothing


def test_mistakes_are_told_while_the_aggregate_is_written_down() -> None:
    with pytest.raises(BadOption, match="lg_k is 3"):
        agg.hll_sketch("i", 3)
    with pytest.raises(BadOption, match="say 0 to 1"):
        agg.approx_percentile("i", 50)
    with pytest.raises(BadOption, match="bytes a group"):
        agg.bloom_filter("i", expected=10**9)
    with pytest.raises(WrongType, match="must be a number"):
        Aggregates({"a": agg.approx_percentile("s", 0.5)}, TABLE.schema, "test")


@pytest.mark.spark
def test_spark_reads_and_merges_the_sketches(spark: SparkSession) -> None:
    made = {
        "hll": in_parts(agg.hll_sketch("s")),
        "hll_int": in_parts(agg.hll_sketch("i")),
        "theta": in_parts(agg.theta_sketch("s")),
        "kll": in_parts(agg.kll_sketch("x")),
    }
    df = spark.createDataFrame([made], ", ".join(f"{name} binary" for name in made))
    spark.createDataFrame(TABLE.to_pandas()).createOrReplaceTempView("sketched_rows")
    both = df.selectExpr(
        "hll_sketch_estimate(hll) as hll",
        "hll_sketch_estimate(hll_union(hll, (select hll_sketch_agg(s) from sketched_rows))) as hll_both",
        "hll_sketch_estimate(hll_union(hll_int, (select hll_sketch_agg(i) from sketched_rows))) as int_both",
        "theta_sketch_estimate(theta_union(theta, (select theta_sketch_agg(s) from sketched_rows))) as theta",
        "kll_sketch_get_quantile_double(kll, 0.5) as median",
    ).collect()[0]
    for name in ("hll", "hll_both", "int_both", "theta"):
        assert both[name] == pytest.approx(DISTINCT, rel=0.05), name  # a union of the same values adds none
    assert both["median"] == pytest.approx(float(np.median(NUMBERS)), abs=1)


@pytest.mark.spark
def test_spark_reads_the_bloom_filter(spark: SparkSession) -> None:
    read = spark._jvm.org.apache.spark.util.sketch.BloomFilter.readFrom  # type: ignore[union-attr]
    texts, numbers = read(in_parts(agg.bloom_filter("s"))), read(in_parts(agg.bloom_filter("i")))
    for number in NUMBERS[:50].tolist():
        assert texts.mightContainString(f"user {number}")
        assert numbers.mightContainLong(number)
    assert sum(texts.mightContainString(f"nobody {n}") for n in range(200)) < 20
