"""Nexmark: the generator keeps its rules, and every query gives what DuckDB says of the same events."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from bench.nexmark.generator import FIRST_ID, KINDS, events
from bench.nexmark.queries import QUERIES
from bench.nexmark.reference import REFERENCES
from bench.nexmark.running import Auction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATE = 1_000
EVENTS = 60_000  # six seconds of event time at the queries' rate


def generated(count: int, piece: int) -> dict[str, pa.Table]:
    pieces = list(events(count, RATE, piece))
    return {kind: pa.concat_tables([one[kind] for one in pieces]) for kind in KINDS}


def test_events_are_the_same_in_whatever_pieces_they_are_generated() -> None:
    whole, pieces = generated(10_000, 10_000), generated(10_000, 777)
    for kind in KINDS:
        assert whole[kind].equals(pieces[kind])


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids() -> None:
    assert {kind: table.num_rows for kind, table in generated(10_000, 5_000).items()} == {
        "person": 200,
        "auction": 600,
        "bid": 9_200,
    }


def test_ids_follow_from_the_number_and_hot_ones_are_met_as_often_as_they_should() -> None:
    tables = generated(50_000, 50_000)
    assert tables["person"]["id"].to_pylist() == list(range(FIRST_ID, FIRST_ID + 1_000))
    assert tables["auction"]["id"].to_pylist() == list(range(FIRST_ID, FIRST_ID + 3_000))
    bids = tables["bid"]
    bidders, auctions = (np.asarray(bids[name].to_numpy()) - FIRST_ID for name in ("bidder", "auction"))
    assert abs((bidders % 100 == 1).mean() - 0.75) < 0.02
    assert abs((auctions % 100 == 0).mean() - 0.5) < 0.03
    prices = np.log10(np.asarray(bids["price"].to_numpy()) / 100)
    assert abs(prices.mean() - 3) < 0.05
    assert abs(prices.max() - 6) < 0.01


def test_every_query_has_a_reference() -> None:
    assert list(QUERIES) == list(REFERENCES) == [f"q{number}" for number in range(23)]


@pytest.fixture(scope="module")
def auction(spark: SparkSession, bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Auction:
    folder: Path = tmp_path_factory.mktemp("nexmark")
    return Auction(spark, bootstrap, EVENTS, folder)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_what_the_reference_gives(name: str, auction: Auction) -> None:
    outcome = auction.run(name, records_per_batch=EVENTS // 3)
    assert outcome.rows > 0
    assert outcome.equal, outcome.differs
