"""What every test may ask for: a Kafka-protocol broker, ours unless `--bootstrap` names another; a Spark session.

There is one Spark session, because starting one takes seconds. Tests name their topics, queries and checkpoints with
`unique` and `tmp_path`, stop the queries they start, and leave the session's settings as they found them. The
connector's jars are fetched here if this machine has none yet.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# An example may take as long as it takes: its time on a busy machine says nothing about the code.
settings.register_profile("headwater", deadline=None)
settings.load_profile("headwater")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bootstrap", default=None, help="run against this Kafka (HOST:PORT) instead of our broker")


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a broker shared by the whole test session: name your topics and groups with `unique`."""
    given: str | None = request.config.getoption("--bootstrap")
    if given is not None:
        yield given
        return
    from headwater import Broker

    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def postgres_dsn() -> Iterator[str]:
    """A PostgreSQL that the documents' examples may use."""
    from headwater.testing.postgres import PostgresServer

    with PostgresServer() as server:
        yield server.dsn


@pytest.fixture
def unique() -> str:
    """A suffix that no other test, nor another run against the same broker, uses."""
    return uuid.uuid4().hex[:8]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """`local[2]` with two shuffle partitions, four attempts a task, the Kafka connector and `format("headwater")`."""
    from headwater.pipeline.sessions import session

    # each query of a test runs for seconds: compiling it twice, the second time well, costs more than it gives
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    made = session("headwater-tests", master="local[2]", settings=quick)
    yield made
    made.stop()
