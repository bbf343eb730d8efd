"""Our broker and a real Kafka, side by side: each test of this folder runs against both, and must pass on both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.broker.servers import headwater, kafka

OURS, PEER = "headwater", "kafka"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.interop)
            item.add_marker(pytest.mark.timeout(900))


@contextmanager
def running(name: str) -> Iterator[str]:
    """The address of a fresh broker."""
    with (headwater if name == OURS else kafka)() as server:
        yield server.bootstrap


@pytest.fixture(scope="module", params=[OURS, PEER])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    with running(request.param) as bootstrap:
        yield bootstrap
