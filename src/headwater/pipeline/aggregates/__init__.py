"""Aggregates, and the running aggregate.

from headwater.pipeline import aggregates as agg

agg.running(df, ["user"], {"n": agg.count(), "total": agg.sum("amount")}, checkpoint=...)
"""

from headwater.pipeline.aggregates.aggregate import Accumulators, Aggregate, Aggregates, Grouped
from headwater.pipeline.aggregates.custom import custom
from headwater.pipeline.aggregates.elements import collect, top
from headwater.pipeline.aggregates.functions import count, first, last, max, mean, min, stddev, sum, variance
from headwater.pipeline.aggregates.multiset import collect_set, count_distinct, median, percentile
from headwater.pipeline.aggregates.running import Running, running

__all__ = [
    "Accumulators",
    "Aggregate",
    "Aggregates",
    "Grouped",
    "Running",
    "collect",
    "collect_set",
    "count",
    "count_distinct",
    "custom",
    "first",
    "last",
    "max",
    "mean",
    "median",
    "min",
    "percentile",
    "running",
    "stddev",
    "sum",
    "top",
    "variance",
]
