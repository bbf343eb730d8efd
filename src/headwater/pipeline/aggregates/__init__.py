"""Aggregates, and the running aggregate.

from headwater.pipeline import aggregates as agg

agg.running(df, ["user"], {"n": agg.count(), "total": agg.sum("amount")}, checkpoint=...)
"""

from headwater.pipeline.aggregates.aggregate import Accumulators, Aggregate, Aggregates, Grouped
from headwater.pipeline.aggregates.bloom import bloom_filter, might_contain
from headwater.pipeline.aggregates.custom import custom
from headwater.pipeline.aggregates.elements import collect, top
from headwater.pipeline.aggregates.functions import count, first, last, max, mean, min, rate, stddev, sum, variance
from headwater.pipeline.aggregates.multiset import collect_set, count_distinct, median, percentile
from headwater.pipeline.aggregates.running import Running, running
from headwater.pipeline.aggregates.sketches import (
    approx_count_distinct,
    approx_percentile,
    approx_top_k,
    count_min,
    hll_sketch,
    kll_sketch,
    theta_sketch,
)

__all__ = [
    "Accumulators",
    "Aggregate",
    "Aggregates",
    "Grouped",
    "Running",
    "approx_count_distinct",
    "approx_percentile",
    "approx_top_k",
    "bloom_filter",
    "collect",
    "collect_set",
    "count",
    "count_distinct",
    "count_min",
    "custom",
    "first",
    "hll_sketch",
    "kll_sketch",
    "last",
    "max",
    "mean",
    "median",
    "might_contain",
    "min",
    "percentile",
    "rate",
    "running",
    "stddev",
    "sum",
    "theta_sketch",
    "top",
    "variance",
]
