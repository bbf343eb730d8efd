"""Joins of streams and tables that change.

from headwater.pipeline import joins

joins.interval(searches, clicks, ["session"], lower="-5 minutes", upper="1 hour", how="left", checkpoint=...)
joins.stream_table(activity, profiles, ["user_id"], checkpoint=...)
joins.as_of(sales, tax_rates, ["country"], version="rate_id", checkpoint=...)
joins.tables(posts, follows, {"sender_id": "followee_id"}, checkpoint=...)
"""

from headwater.pipeline.joins.as_of import as_of, stream_table
from headwater.pipeline.joins.interval import interval
from headwater.pipeline.joins.tables import tables

__all__ = ["as_of", "interval", "stream_table", "tables"]
