"""Servers are started once for all tests of views."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.views.stores import Servers


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    found = Servers()
    yield found
    found.close()
