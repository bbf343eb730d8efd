"""What every test may ask for: a Kafka-protocol broker, ours unless `--bootstrap` names another."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest


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


@pytest.fixture
def unique() -> str:
    """A suffix that no other test, nor another run against the same broker, uses."""
    return uuid.uuid4().hex[:8]
