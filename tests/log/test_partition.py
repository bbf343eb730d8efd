"""Appending to and reading from one partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.log.partition import PartitionLog
from headwater.log.results import AppendRefused, OffsetOutOfRange
from headwater.log.settings import LogSettings
from headwater.wire.batches import parse_header
from headwater.wire.errors import ErrorCode
from log.support import NOW, Store, batch, idempotent, keyed, read_all, transactional, values_of


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def append(log: PartitionLog, *batches: bytes) -> int:
    appended = log.append(b"".join(batches), leader_epoch=0)
    log.flush_to_disk()
    return appended.base_offset


def refused(log: PartitionLog, *batches: bytes) -> ErrorCode:
    end, size = log.log_end_offset, log.size
    with pytest.raises(AppendRefused) as caught:
        log.append(b"".join(batches), leader_epoch=0)
    assert (log.log_end_offset, log.size) == (end, size)
    return caught.value.code


def test_records_get_ascending_offsets_and_are_read_back_unchanged(store: Store) -> None:
    log = store.log()
    assert append(log, batch("a", "b")) == 0
    assert append(log, batch("c"), batch("d", "e")) == 2
    assert read_all(log) == [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e")]
    content = log.read(0, 1 << 20).records.read()
    assert parse_header(content).leader_epoch == 0


def test_what_is_not_on_the_disk_is_not_read(store: Store) -> None:
    log = store.log()
    log.append(batch("a"), leader_epoch=0)
    assert log.high_watermark == 0
    assert log.read(0, 1000).records.length == 0
    log.flush_to_disk()
    assert log.high_watermark == 1
    assert values_of(log.read(0, 1000).records.read()) == [(0, "a")]


def test_a_relaxed_topic_is_read_before_it_is_on_the_disk(store: Store) -> None:
    log = store.log(LogSettings(flush_messages=1000))
    log.append(batch("a"), leader_epoch=0)
    assert log.unflushed
    assert values_of(log.read(0, 1000).records.read()) == [(0, "a")]


def test_a_read_starts_with_the_batch_that_contains_the_offset(store: Store) -> None:
    log = store.log()
    append(log, batch("a", "b", "c"))
    append(log, batch("d"))
    part = log.read(2, 1 << 20)
    assert part.base_offset == 0
    assert [offset for offset, _ in values_of(part.records.read())] == [0, 1, 2, 3]


def test_a_read_takes_whole_batches_up_to_the_limit_but_at_least_one_if_asked(store: Store) -> None:
    log = store.log()
    one = batch("x" * 100)
    for _ in range(10):
        append(log, one)
    assert log.read(0, 3 * len(one) + 10).records.length == 3 * len(one)
    assert log.read(0, 10, at_least_one=True).records.length == len(one)
    assert log.read(0, 10, at_least_one=False).records.length == 0


def test_reading_outside_the_log_says_what_it_has(store: Store) -> None:
    log = store.log()
    append(log, batch("a"))
    assert log.read(1, 100).records.length == 0
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read(offset, 100)
        assert (caught.value.log_start, caught.value.log_end) == (0, 1)


def test_reading_crosses_segments(store: Store) -> None:
    log = store.log(LogSettings(segment_bytes=500))
    for number in range(50):
        append(log, batch(f"value {number}"))
    assert len(log.segments) > 5
    assert [value for _, value in read_all(log)] == [f"value {number}" for number in range(50)]
    for offset in range(50):
        assert log.read(offset, 1).base_offset == offset


def test_old_batches_are_found_by_the_index(store: Store) -> None:
    log = store.log(LogSettings(index_interval_bytes=200))
    for number in range(3000):
        log.append(batch(f"value {number}"), leader_epoch=0)
        if number % 500 == 499:
            log.flush_to_disk()
    assert log.recent.first_offset > 500
    for offset in (0, 1, 77, 499):
        part = log.read(offset, 2000)
        assert part.base_offset == offset
        assert len(values_of(part.records.read())) > 5


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda b: b"", ErrorCode.INVALID_RECORD),
        (lambda b: b[:-1], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:40], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:-1] + bytes([b[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:16] + b"\1" + b[17:], ErrorCode.INVALID_RECORD),
        (lambda b: b"\0\0\0\0\0\0\0\1" + b[8:], ErrorCode.INVALID_RECORD),
    ],
)
def test_what_is_not_a_batch_is_refused(store: Store, damage: object, code: ErrorCode) -> None:
    log = store.log()
    assert refused(log, damage(batch("a"))) is code  # type: ignore[operator]


def test_rules_of_the_format_are_kept(store: Store) -> None:
    log = store.log(LogSettings(max_message_bytes=200))
    assert refused(log, batch("x" * 200)) is ErrorCode.MESSAGE_TOO_LARGE
    assert refused(log, batch("a", last_offset=5)) is ErrorCode.INVALID_RECORD
    assert refused(log, batch("a", control=True)) is ErrorCode.INVALID_RECORD
    assert refused(log, batch("a", transactional=True)) is ErrorCode.INVALID_RECORD
    assert refused(log, batch("a", producer_id=1)) is ErrorCode.INVALID_RECORD
    assert refused(log, batch("a"), batch("x" * 200)) is ErrorCode.MESSAGE_TOO_LARGE


def test_more_than_a_segment_holds_is_refused(store: Store) -> None:
    log = store.log(LogSettings(segment_bytes=150))
    assert refused(log, batch("x" * 100)) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_timestamps_outside_the_allowed_range_are_refused(store: Store) -> None:
    log = store.log(LogSettings(message_timestamp_after_max_ms=10, message_timestamp_before_max_ms=100))
    assert refused(log, batch("a", timestamp=NOW + 11)) is ErrorCode.INVALID_TIMESTAMP
    assert refused(log, batch("a", timestamp=NOW - 101)) is ErrorCode.INVALID_TIMESTAMP
    append(log, batch("a", timestamp=NOW - 100), batch("b", timestamp=NOW + 10))


def test_log_append_time_replaces_the_producers_timestamps(store: Store) -> None:
    log = store.log(LogSettings(message_timestamp_type="LogAppendTime"))
    appended = log.append(batch("a", timestamp=5), leader_epoch=3)
    log.flush_to_disk()
    assert appended.log_append_time_ms == NOW
    header = parse_header(log.read(0, 1000).records.read())
    assert header.log_append_time
    assert header.max_timestamp == NOW
    assert log.offset_for_timestamp(NOW).offset == 0  # type: ignore[union-attr]


def test_compacted_topics_take_only_records_with_keys(store: Store) -> None:
    log = store.log(LogSettings(cleanup_compact=True))
    assert refused(log, batch("a", key=None)) is ErrorCode.INVALID_RECORD
    assert append(log, keyed([("k", "v")])) == 0


def test_a_topic_can_want_its_own_compression(store: Store) -> None:
    log = store.log(LogSettings(compression_type="gzip"))
    append(log, idempotent(0, *["a" * 100] * 10))
    content = log.read(0, 10_000).records.read()
    assert len(content) < 300
    assert len(values_of(content)) == 10
    assert append(log, idempotent(10, "b")) == 10


def test_a_retry_gets_the_offset_of_the_first_time(store: Store) -> None:
    log = store.log()
    for sequence in range(5):
        append(log, idempotent(sequence, "a"))
    for sequence in range(5):
        again = log.append(idempotent(sequence, "a"), leader_epoch=0)
        assert again.duplicate
        assert again.base_offset == sequence
    assert log.log_end_offset == 5


def test_sequences_have_no_gaps_and_epochs_never_go_back(store: Store) -> None:
    log = store.log()
    append(log, idempotent(0, "a", "b"))
    assert refused(log, idempotent(3, "c")) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, idempotent(2, "c"))
    assert refused(log, idempotent(1, "x", epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, idempotent(0, "d", epoch=1))
    assert refused(log, idempotent(3, "e", epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, idempotent(1, "e", epoch=1), idempotent(3, "f", epoch=1)) is (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )


def test_sequences_go_on_at_zero_after_the_greatest(store: Store) -> None:
    log = store.log()
    append(log, idempotent(2**31 - 2, "a", "b", "c"))
    append(log, idempotent(1, "d"))
    assert log.append(idempotent(2**31 - 2, "a", "b", "c"), leader_epoch=0).duplicate


def test_committed_readers_stop_at_an_open_transaction_and_skip_aborted_ones(store: Store) -> None:
    log = store.log()
    append(log, batch("before"))
    append(log, transactional(0, "one"))
    append(log, batch("between"))
    assert log.last_stable_offset == 1
    assert log.open_transaction(7) == 1
    log.append_marker(7, 0, commit=False, coordinator_epoch=1, leader_epoch=0)
    assert log.last_stable_offset == 1  # the marker is not on the disk yet
    log.flush_to_disk()
    assert log.last_stable_offset == 4
    append(log, transactional(1, "two"))
    log.append_marker(7, 0, commit=True, coordinator_epoch=1, leader_epoch=0)
    log.flush_to_disk()
    assert log.read(0, 1 << 20, committed=True).aborted == ((7, 1),)
    assert [value for _, value in read_all(log, committed=True)] == ["before", "between", "two"]
    assert log.read(4, 1 << 20, committed=True).aborted == ()


def test_markers_of_fenced_epochs_are_refused(store: Store) -> None:
    log = store.log()
    append(log, transactional(0, "one", epoch=3))
    with pytest.raises(AppendRefused) as caught:
        log.append_marker(7, 2, commit=True, coordinator_epoch=1, leader_epoch=0)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    log.append_marker(7, 3, commit=True, coordinator_epoch=5, leader_epoch=0)
    with pytest.raises(AppendRefused) as caught:
        log.append_marker(7, 3, commit=True, coordinator_epoch=4, leader_epoch=0)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_writes_outside_an_open_transaction_are_refused(store: Store) -> None:
    log = store.log()
    append(log, transactional(0, "one"))
    assert refused(log, idempotent(1, "two")) is ErrorCode.INVALID_TXN_STATE


def test_records_are_found_by_time(store: Store) -> None:
    log = store.log(LogSettings(segment_bytes=400, index_interval_bytes=100))
    for number in range(30):
        append(log, batch(f"{number}", timestamp=NOW + 10 * number))
    for number in range(30):
        found = log.offset_for_timestamp(NOW + 10 * number - 3)
        assert found is not None
        assert (found.offset, found.timestamp) == (number, NOW + 10 * number)
    assert log.offset_for_timestamp(NOW + 1000) is None
    newest = log.max_timestamp()
    assert newest is not None
    assert newest.offset == 29


def test_the_greatest_timestamp_is_found_in_the_middle(store: Store) -> None:
    log = store.log(LogSettings(segment_bytes=300))
    for timestamp in (5, 90, 40, 90, 20, 10, 30):
        append(log, batch("x", timestamp=timestamp))
    newest = log.max_timestamp()
    assert newest is not None
    assert (newest.offset, newest.timestamp) == (1, 90)


def test_leader_epochs_are_remembered(store: Store) -> None:
    log = store.log()
    for epoch in (0, 0, 2, 5):
        log.append(batch("a"), leader_epoch=epoch)
    assert [log.epoch_of(offset) for offset in range(5)] == [0, 0, 2, 5, 5]
    assert log.end_of_epoch(5) == (5, 4)
    assert log.end_of_epoch(1) == (0, 2)
    assert log.end_of_epoch(2) == (2, 3)
    assert log.end_of_epoch(6) == (-1, -1)
    store.close()
    log = store.reopen()
    assert log.end_of_epoch(1) == (0, 2)


def test_records_before_an_offset_are_deleted(store: Store) -> None:
    log = store.log()
    append(log, batch("a", "b"))
    append(log, batch("c"))
    assert log.delete_records_before(1) == 1
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100)
    assert log.read(1, 100).base_offset == 0
    assert log.delete_records_before(0) == 1
    assert log.delete_records_before(-1) == 3
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(4)
    store.close()
    assert store.reopen().log_start_offset == 3


def test_truncating_fully_goes_on_at_the_given_offset(store: Store) -> None:
    log = store.log()
    append(log, batch("a", "b"))
    log.truncate_fully(100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert append(log, batch("c")) == 100
    store.kill()
    assert read_all(store.reopen()) == [(100, "c")]
