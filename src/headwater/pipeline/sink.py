"""`df.writeStream.format("headwater")`."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

__all__ = ["HeadwaterSink"]


class HeadwaterSink(DataSource):
    """Writes topics exactly once."""

    @classmethod
    def name(cls) -> str:
        return "headwater"
