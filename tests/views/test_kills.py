"""kill -9 of the follower, the broker and the stores' servers, at random instants, for every store."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.views.killing import Rig
from tests.views.stores import ALL, Kind

HERE = [kind for kind in ALL if not kind.marks]


def kill_again_and_again(kinds: list[Kind], folder: Path, *, kills: int, seed: int) -> None:
    with Rig(kinds, folder, seed) as rig:
        for _ in range(kills):
            rig.kill_one()
        rig.finish()


@pytest.mark.timeout(240)
def test_every_store_is_a_fold_of_its_topic_whatever_is_killed(tmp_path: Path) -> None:
    kill_again_and_again([kind for kind in HERE if not kind.history], tmp_path, kills=15, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_every_store_is_a_fold_of_its_topic_after_200_kills(tmp_path: Path) -> None:
    kill_again_and_again(HERE, tmp_path, kills=200, seed=2)


@pytest.mark.soak
@pytest.mark.interop
@pytest.mark.timeout(3_600)
def test_opensearch_is_a_fold_of_its_topic_after_200_kills(tmp_path: Path) -> None:
    kill_again_and_again([kind for kind in ALL if kind.name == "opensearch"], tmp_path, kills=200, seed=3)
