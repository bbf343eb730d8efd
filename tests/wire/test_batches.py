"""Record batches: against Kafka's own bytes and other clients' encoders, and against damage."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from headwater.wire.batches import (
    HEADER_BYTES,
    Marker,
    Record,
    assign,
    check_crc,
    check_produced,
    decode_marker,
    decode_records,
    encode_batch,
    encode_marker,
    parse_header,
    set_log_append_time,
    split_batches,
)
from headwater.wire.compression import Codec, compress, decompress
from headwater.wire.errors import CorruptBatch, ErrorCode

# What Kafka 4.3's own classes write: the same three records in each codec, a marker, and a batch emptied by compaction.
FROM_KAFKA = {
    Codec.NONE: (
        "000000000000002a000000d1000000050235b08e4900100000000200000000000003e800000000000003ed00000000000000"
        "0700030000000b000000034e000000066b65792e76616c75652076616c75652076616c75652076616c75650402680201026e"
        "01d601000a0201c8017878787878787878787878787878787878787878787878787878787878787878787878787878787878"
        "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
        "787878787878787878001400090408676f6e650100"
    ),
    Codec.GZIP: (
        "000000000000002a000000750000000502a0e26d1100110000000200000000000003e800000000000003ed00000000000000"
        "0700030000000b000000031f8b08000000000000fff363606060cb4eadd42b4bcc294d55c020599832981899f218af313270"
        "31319e60aca003601061e064e148cfcf4b65640000ebdd72eca0000000"
    ),
    Codec.SNAPPY: (
        "000000000000002a0000007f00000005022a48f23c00120000000200000000000003e800000000000003ed00000000000000"
        "0700030000000b0000000382534e415050590000000001000000010000003aa001384e000000066b65792e76616c75652042"
        "0600400402680201026e01d601000a0201c80178fe01008a01002c001400090408676f6e650100"
    ),
    Codec.LZ4: (
        "000000000000002a000000760000000502c1ec649400130000000200000000000003e800000000000003ed00000000000000"
        "0700030000000b0000000304224d1860408236000000fd004e000000066b65792e76616c7565200600ff020402680201026e"
        "01d601000a0201c80178010050c0001400090408676f6e65010000000000"
    ),
    Codec.ZSTD: (
        "000000000000002a00000073000000050210d5429400140000000200000000000003e800000000000003ed00000000000000"
        "0700030000000b0000000328b52ffd0058b40100c4024e000000066b65792e76616c7565200402680201026e01d601000a02"
        "01c80178001400090408676f6e6501000200012e5d32973a010000"
    ),
}
MARKER_FROM_KAFKA = (
    "00000000000000090000004200000002021219944000300000000000000000000004d200000000000004d200000000000000"
    "070003ffffffff000000012000000008000000010c00000000001100"
)
EMPTY_FROM_KAFKA = (
    "000000000000002800000031000000020265b6fd44001000000009ffffffffffffffff00000000000004d200000000000000"
    "0700030000000b00000000"
)


KAFKAS_RECORDS = [
    Record(
        key=b"key",
        value=b"value value value value",
        headers=(("h", b"\1"), ("n", None)),
        timestamp=1000,
        offset=42,
    ),
    Record(value=b"x" * 100, timestamp=1005, offset=43),
    Record(key=b"gone", timestamp=995, offset=44),
]
CODECS = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())


@CODECS
def test_batches_that_kafka_wrote_are_read(codec: Codec) -> None:
    batch = bytes.fromhex(FROM_KAFKA[codec])
    ((header, view),) = split_batches(batch)
    check_crc(header, view)
    check_produced(header)
    assert list(decode_records(view)) == KAFKAS_RECORDS
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (42, 44, 5)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 3, 11, 13)
    assert (header.codec, header.transactional, header.control, header.log_append_time) == (codec, True, False, False)
    assert header.delete_horizon is None


def test_an_uncompressed_batch_is_written_as_kafka_does() -> None:
    batch = encode_batch(
        KAFKAS_RECORDS, leader_epoch=5, producer_id=7, producer_epoch=3, base_sequence=11, transactional=True
    )
    assert batch.hex() == FROM_KAFKA[Codec.NONE]


def test_a_marker_is_written_and_read_as_kafka_does() -> None:
    marker = bytearray(
        encode_marker(
            producer_id=7, producer_epoch=3, commit=True, coordinator_epoch=17, timestamp=1234, leader_epoch=2
        )
    )
    assign(marker, 9, 2)
    assert marker.hex() == MARKER_FROM_KAFKA
    assert decode_marker(marker) == Marker(commit=True, coordinator_epoch=17)


def test_a_batch_emptied_by_compaction_is_written_as_kafka_does() -> None:
    batch = encode_batch(
        [],
        codec=Codec.ZSTD,
        base_offset=40,
        last_offset=49,
        leader_epoch=2,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        max_timestamp=1234,
        transactional=True,
    )
    assert batch.hex() == EMPTY_FROM_KAFKA
    assert list(decode_records(batch)) == []


names = st.text(max_size=20).map(lambda text: text.encode(errors="ignore").decode())
values = st.none() | st.binary(max_size=300)
records = st.builds(
    Record,
    key=values,
    value=values,
    headers=st.lists(st.tuples(names, values), max_size=3).map(tuple),
    timestamp=st.integers(0, 2**45),
)


def numbered(found: list[Record]) -> list[Record]:
    return [
        Record(key=r.key, value=r.value, headers=r.headers, timestamp=r.timestamp, offset=index)
        for index, r in enumerate(found)
    ]


def theirs(batch: Any) -> list[Record]:
    return [
        Record(
            key=r.key,
            value=r.value,
            headers=tuple((name, value) for name, value in r.headers),
            timestamp=r.timestamp,
            offset=r.offset,
        )
        for r in batch
    ]


@settings(max_examples=25, deadline=None)
@given(st.lists(records, min_size=1, max_size=30))
@CODECS
def test_aiokafka_reads_our_batches_and_we_read_its(codec: Codec, some: list[Record]) -> None:
    ours = encode_batch(some, codec=codec)
    batch = AiokafkaBatch(ours)
    assert batch.validate_crc()
    assert theirs(batch) == numbered(some)
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=1,
        producer_epoch=1,
        base_sequence=0,
        batch_size=10**7,
    )
    for offset, record in enumerate(some):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    built = bytes(builder.build())
    header = parse_header(built)
    check_crc(header, built)
    check_produced(header)
    assert list(decode_records(built)) == numbered(some)


@settings(max_examples=25, deadline=None)
@given(st.lists(records, min_size=1, max_size=30))
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP], ids=["none", "gzip"])
def test_kafka_python_reads_our_batches_and_we_read_its(codec: Codec, some: list[Record]) -> None:
    batch = KafkaPythonBatch(encode_batch(some, codec=codec))
    assert batch.validate_crc()
    assert theirs(batch) == numbered(some)
    builder = KafkaPythonBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=1,
        producer_epoch=1,
        base_sequence=0,
        batch_size=10**7,
    )
    for offset, record in enumerate(some):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    assert list(decode_records(bytes(builder.build()))) == numbered(some)


@CODECS
def test_offsets_and_bounds_survive_where_compaction_left_gaps(codec: Codec) -> None:
    kept = [Record(key=b"a", offset=12, timestamp=7), Record(key=b"b", offset=19, timestamp=5)]
    batch = encode_batch(kept, codec=codec, base_offset=10, last_offset=30, max_timestamp=99, delete_horizon=1)
    header = parse_header(batch)
    assert (header.base_offset, header.last_offset, header.max_timestamp, header.delete_horizon) == (10, 30, 99, 1)
    assert list(decode_records(batch)) == kept


def test_several_batches_are_split_without_copying() -> None:
    one, two = encode_batch([Record(value=b"1")]), encode_batch([Record(value=b"2")] * 3)
    both = bytearray(one + two)
    found = list(split_batches(both))
    assert [bytes(view) for _, view in found] == [one, two]
    assert all(view.obj is both for _, view in found)
    assert list(split_batches(b"")) == []


def test_offset_and_epoch_are_assigned_without_touching_the_checksum() -> None:
    batch = bytearray(encode_batch([Record(value=b"1"), Record(value=b"2")]))
    assign(batch, 1_000_000, 8)
    header = parse_header(batch)
    check_crc(header, batch)
    assert (header.base_offset, header.leader_epoch) == (1_000_000, 8)
    assert [record.offset for record in decode_records(batch)] == [1_000_000, 1_000_001]


def test_log_append_time_is_the_time_of_every_record() -> None:
    batch = bytearray(encode_batch([Record(value=b"1", timestamp=5), Record(value=b"2", timestamp=9)]))
    set_log_append_time(batch, 777)
    header = parse_header(batch)
    check_crc(header, batch)
    assert header.log_append_time
    assert (header.base_timestamp, header.max_timestamp) == (5, 777)
    assert [record.timestamp for record in decode_records(batch)] == [777, 777]
    assert batch == encode_batch(
        [Record(value=b"1", timestamp=5), Record(value=b"2", timestamp=9)], log_append_time=777
    )


def test_sequences_go_on_at_zero_after_the_largest() -> None:
    batch = encode_batch([Record()] * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert parse_header(batch).last_sequence == 0
    assert parse_header(encode_batch([Record()] * 3)).last_sequence == -1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"control": True}, "control"),
        ({"last_offset": 5}, "last offset delta of 5"),
        ({"producer_id": 5}, "sequence -1"),
        ({"transactional": True}, "needs a producer id"),
        ({"log_append_time": 5}, "the broker's to set"),
        ({"delete_horizon": 5}, "the broker's to set"),
    ],
)
def test_what_a_producer_may_not_send_is_refused(changes: dict[str, Any], said: str) -> None:
    header = parse_header(encode_batch([Record()], **changes))
    with pytest.raises(CorruptBatch, match=said) as caught:
        check_produced(header)
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_a_batch_without_records_is_refused_from_a_producer() -> None:
    with pytest.raises(CorruptBatch, match="0 records"):
        check_produced(parse_header(encode_batch([])))


def test_other_message_formats_and_codecs_are_refused() -> None:
    old = bytearray(encode_batch([Record()]))
    old[16] = 1
    with pytest.raises(CorruptBatch, match="message format 1"):
        parse_header(old)
    unknown = bytearray(encode_batch([Record()]))
    unknown[22] = 5
    with pytest.raises(CorruptBatch, match="codec 5") as caught:
        check_produced(parse_header(unknown))
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_batch_cut_at_any_byte_is_refused() -> None:
    batch = bytes.fromhex(FROM_KAFKA[Codec.NONE])
    for cut in range(1, len(batch)):
        with pytest.raises(CorruptBatch):
            list(split_batches(batch[:cut]))


def check_all(batches: bytearray) -> None:
    for header, view in split_batches(batches):
        check_crc(header, view)


def read_or_refused(batch: bytearray) -> bool:
    try:
        return list(decode_records(batch)) is not None
    except CorruptBatch as error:
        return bool(str(error))


def test_any_flipped_bit_is_found_by_the_checksum_or_is_outside_it() -> None:
    batch = bytes.fromhex(FROM_KAFKA[Codec.NONE])
    outside = set(range(8)) | set(range(12, 16))  # base offset, leader epoch
    for position in range(len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0x10
        if position in outside:
            check_crc(parse_header(damaged), damaged)
            continue
        with pytest.raises(CorruptBatch):
            check_all(damaged)


@CODECS
def test_damaged_records_are_read_or_refused_by_name(codec: Codec) -> None:
    batch = bytes.fromhex(FROM_KAFKA[codec])
    rng = random.Random(codec)
    for _ in range(2000):
        damaged = bytearray(batch)
        for _ in range(rng.choice((1, 1, 3))):
            damaged[rng.randrange(HEADER_BYTES - 4, len(damaged))] ^= 1 << rng.randrange(8)
        assert read_or_refused(damaged)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_damaged_data_costs_no_more_memory_than_what_comes_out(codec: Codec) -> None:
    data = compress(codec, random.Random(1).randbytes(1000))
    tracemalloc.start()
    for cut in (len(data) // 2, len(data) - 5):
        with pytest.raises(CorruptBatch):
            decompress(codec, data[:cut])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


@CODECS
@pytest.mark.parametrize("size", [0, 1, 1000, 32 * 1024, 64 * 1024, 300_000])
def test_compression_of_any_size_round_trips(codec: Codec, size: int) -> None:
    for data in (bytes(size), random.Random(size).randbytes(size)):
        assert decompress(codec, compress(codec, data)) == data


def test_bare_snappy_is_read_too() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 99))) == b"abc" * 99


def test_lz4_frames_of_other_writers_are_read() -> None:
    assert decompress(Codec.LZ4, bytes(cramjam.lz4.compress(b"abc" * 99999))) == b"abc" * 99999


BOMB_BYTES = 300 * 1024 * 1024


def bomb(codec: Codec) -> bytes:
    if codec is Codec.SNAPPY:  # says how long it is, in its first bytes
        return b"\xff\xff\xff\xff\x0f" + bytes(50)
    compressor = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}[codec].Compressor()
    for _ in range(BOMB_BYTES // 2**20):
        compressor.compress(bytes(2**20))
    return bytes(compressor.finish())


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_a_decompression_bomb_is_refused_in_bounded_memory(codec: Codec) -> None:
    data = bomb(codec)
    limit = 10 * 2**20
    tracemalloc.start()
    with pytest.raises(CorruptBatch, match=str(limit)):
        decompress(codec, data, limit)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * limit + len(data)


def test_more_records_than_the_bytes_can_hold_are_refused_at_once() -> None:
    batch = bytearray(encode_batch([Record(value=b"1")]))
    struct.pack_into(">i", batch, 57, 2**31 - 1)
    with pytest.raises(CorruptBatch, match="claims 2147483647 records"):
        next(decode_records(batch))
