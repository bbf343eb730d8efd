"""The broker of this folder's tests; `--bootstrap` names another, a real Kafka say, that must pass them too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater import Broker

# members of the newer protocol hear of a rebalance by their heartbeats: 5 s apart, if it were for the default
QUICK_HEARTBEATS = {"group_consumer_min_heartbeat_interval_ms": 100, "group_consumer_heartbeat_interval_ms": 100}


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    given: str | None = request.config.getoption("--bootstrap")
    if given is not None:
        yield given
        return
    with Broker(**QUICK_HEARTBEATS) as broker:
        yield broker.bootstrap_servers
