"""One Spark session for every test of pipelines: starting one takes seconds.

Tests name their topics, queries and checkpoints with `unique` and `tmp_path`, stop the queries they start, and leave
the session's settings as they found them. The connector's jars are fetched here if this machine has none yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """`local[2]` with two shuffle partitions, four attempts a task, the Kafka connector and `format("headwater")`."""
    from headwater.pipeline.sessions import session

    made = session("headwater-tests", master="local[2]")
    yield made
    made.stop()
