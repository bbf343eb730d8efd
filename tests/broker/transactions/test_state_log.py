"""Records of `__transaction_state`: what is written is what is read, and old Kafkas' records are read too."""

from __future__ import annotations

import pytest

from headwater.broker.transactions.metadata import Metadata, State
from headwater.broker.transactions.state_log import apply_batch, encode_state
from headwater.wire.batches import Record, encode_batch
from headwater.wire.records.transactions import TRANSACTION_RECORDS, TransactionLogKey, TransactionLogValue

ONGOING = Metadata(
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    state=State.ONGOING,
    partitions=frozenset([("orders", 0), ("orders", 2), ("stock", 1)]),
    started_ms=10,
    updated_ms=20,
    previous_producer_id=5,
    next_producer_id=9,
    version=2,
)


@pytest.mark.parametrize("state", [each for each in State if each not in (State.DEAD, State.EMPTY)])
def test_a_metadata_survives_the_log(state: State) -> None:
    metadata = Metadata(**{**_fields(ONGOING), "state": state})
    states: dict[str, Metadata] = {}
    apply_batch(memoryview(encode_state("t", metadata)), states)
    assert states == {"t": metadata}


def test_the_last_record_of_an_id_counts_and_a_tombstone_forgets_it() -> None:
    states: dict[str, Metadata] = {}
    apply_batch(memoryview(encode_state("t", ONGOING)), states)
    apply_batch(memoryview(encode_state("u", ONGOING)), states)
    apply_batch(memoryview(encode_state("t", Metadata(**{**_fields(ONGOING), "state": State.DEAD}))), states)
    assert list(states) == ["u"]


def test_an_id_without_a_transaction_has_null_partitions_as_kafka_writes_it() -> None:
    empty = Metadata(producer_id=1, producer_epoch=0, timeout_ms=1, state=State.EMPTY)
    states: dict[str, Metadata] = {}
    apply_batch(memoryview(encode_state("t", empty)), states)
    assert states["t"] == empty


def test_records_of_version_0_are_read_and_unknown_kinds_skipped() -> None:
    key = TRANSACTION_RECORDS.encode_key(TransactionLogKey(transactional_id="old"))
    value = TransactionLogValue(producer_id=4, producer_epoch=1, transaction_status=1, transaction_timeout_ms=5)
    old = TRANSACTION_RECORDS.encode_value(value, version=0)
    batch = encode_batch(
        [Record(key=b"\x00\x63other", value=b"x"), Record(key=key, value=old), Record(value=b"no key")]
    )
    states: dict[str, Metadata] = {}
    apply_batch(memoryview(batch), states)
    assert list(states) == ["old"]
    assert (states["old"].producer_id, states["old"].state, states["old"].version) == (4, State.ONGOING, 0)


def _fields(metadata: Metadata) -> dict[str, object]:
    return {name: getattr(metadata, name) for name in Metadata.__slots__}
