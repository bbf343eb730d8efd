"""Changelogs: streams of rows with a weight, +1 for a row that comes and -1 for one that goes.

    from headwater.pipeline import changelogs

    table = changelogs.from_upserts(topic(spark, "users"), ["user_id"], checkpoint=...)
    best = changelogs.top_n(sales, ["region"], ["amount desc"], 10, checkpoint=...)

Added up, a changelog is the table it describes; every function here keeps up what the same query gives over that table.
"""

from headwater.pipeline.changelogs.aggregate import aggregate
from headwater.pipeline.changelogs.consolidate import consolidate, union
from headwater.pipeline.changelogs.distinct import distinct
from headwater.pipeline.changelogs.existence import anti_join, semi_join
from headwater.pipeline.changelogs.top_n import top_n
from headwater.pipeline.changelogs.upserts import from_upserts, to_upserts
from headwater.pipeline.changelogs.versions import versions

__all__ = [
    "aggregate",
    "anti_join",
    "consolidate",
    "distinct",
    "from_upserts",
    "semi_join",
    "to_upserts",
    "top_n",
    "union",
    "versions",
]
