"""The pytest plugin: `headwater_broker`, a real Kafka-protocol broker for one test, thrown away after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headwater.broker.embedded import Broker

__all__ = ["headwater_broker"]


@pytest.fixture
def headwater_broker() -> Iterator[Broker]:
    """A broker on its own port with its own directory; `headwater_broker.bootstrap_servers` is its address."""
    from headwater.broker.embedded import Broker

    with Broker() as broker:
        yield broker
