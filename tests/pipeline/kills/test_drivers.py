"""A driver killed again and again, at instants that are looked for: nothing lost, nothing doubled."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.kills.killing import Trial

from headwater.client import Connection

pytestmark = pytest.mark.spark


def test_a_query_survives_five_kills_of_its_driver(bootstrap: str, unique: str, tmp_path: Path) -> None:
    trial = Trial(Connection(bootstrap), unique, tmp_path)
    trial.through_kills(5)
    trial.check_exactly_once()
    assert trial.skips > 0, "no kill fell between a batch's commit and its log entry"
