"""Aggregates, and the running aggregate.

from headwater.pipeline import aggregates as agg

agg.running(df, ["user"], {"n": agg.count(), "total": agg.sum("amount")}, checkpoint=...)
"""

from headwater.pipeline.aggregates.aggregate import Accumulators, Aggregate, Aggregates, Grouped
from headwater.pipeline.aggregates.functions import count, first, last, max, mean, min, sum, variance
from headwater.pipeline.aggregates.running import Running, running

__all__ = [
    "Accumulators",
    "Aggregate",
    "Aggregates",
    "Grouped",
    "Running",
    "count",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "running",
    "sum",
    "variance",
]
