"""Whatever the bytes: a message or a named error, in bounded time and memory."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest

from headwater.wire.apis import APIS, Api
from headwater.wire.codec import decode
from headwater.wire.errors import Malformed, WireError
from headwater.wire.fields import Struct, array, int32, string
from headwater.wire.fields import struct as structure
from headwater.wire.frames import RequestHeader, decode_header, decode_request, decode_response
from headwater.wire.messages.metadata import MetadataRequest
from headwater.wire.messages.offset_commit import OffsetCommitRequest
from headwater.wire.messages.produce import ProduceRequest
from headwater.wire.primitives import MAX_ELEMENTS, unsigned_varint
from wire.generate import every_version, random_request_frame, random_response_frame

SHORT = 300  # bytes; messages to be cut at every byte
FLIPS_A_VERSION = 40
SOAK_FLIPS = 1_000_000


def refused_in_words(error: WireError) -> bool:
    assert str(error)
    return False


def read_request(frame: bytes) -> bool:
    """Whether it was a request; anything but a message or a wire error fails the test."""
    try:
        header, position = decode_header(memoryview(frame))
        decode_request(header, memoryview(frame), position)
    except WireError as error:
        return refused_in_words(error)
    return True


def read_response(header: RequestHeader, frame: bytes) -> bool:
    try:
        decode_response(header, memoryview(frame))
    except WireError as error:
        return refused_in_words(error)
    return True


def short_frames(api: Api, version: int) -> tuple[RequestHeader, bytes, bytes]:
    """A request and a response of the version, neither of them long, without their sizes."""
    rng = random.Random(f"{api.key} {version}")
    header = RequestHeader(api.key, version, 7, "client")
    while True:
        request = random_request_frame(rng, api.key)[4:]
        if len(request) < SHORT and struct.unpack_from(">h", request, 2)[0] == version:
            break
    response = min((random_response_frame(header, rng)[4:] for _ in range(10)), key=len)
    return header, request, response[: SHORT * 3]


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_requests_and_responses_cut_at_any_byte_are_refused_by_name(api: Api) -> None:
    for version in range(api.max_version + 1):
        if not api.supports(version):
            continue
        header, request, response = short_frames(api, version)
        assert read_request(request)
        for cut in range(len(request)):
            assert not read_request(request[:cut])
        for cut in range(len(response)):
            read_response(header, response[:cut])


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_flipped_bits_give_another_message_or_a_named_error(api: Api) -> None:
    rng = random.Random(api.key)
    for version in range(api.max_version + 1):
        if not api.supports(version):
            continue
        header, request, response = short_frames(api, version)
        for _ in range(FLIPS_A_VERSION):
            read_request(flipped(request, rng))
            read_response(header, flipped(response, rng))


def flipped(frame: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(frame)
    for _ in range(rng.choice((1, 1, 2, 8))):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


@pytest.mark.soak
def test_a_million_damaged_requests_give_messages_or_named_errors() -> None:
    rng = random.Random(1)
    frames = [random_request_frame(rng)[4:] for _ in range(2000)]
    for _ in range(SOAK_FLIPS):
        read_request(flipped(rng.choice(frames), rng))


def test_random_bytes_after_any_header_give_messages_or_named_errors() -> None:
    rng = random.Random(2)
    for api, version in every_version():
        for _ in range(20):
            head = struct.pack(">hhih", api.key, version, 1, -1)
            read_request(head + rng.randbytes(rng.randrange(80)))


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"", "api_key at byte 0"),
        (b"\0\0\0\x09\0\0\0\1", "the frame ends early"),
        (struct.pack(">hhih", 0, 9, 1, 100) + b"abc", "needs 100 bytes but 3 are left"),
        (struct.pack(">hhih", 0, 9, 1, -1) + b"\x01\x00\x7fabc", "needs 127 bytes but 3 are left"),
    ],
)
def test_damaged_request_headers_are_refused(frame: bytes, said: str) -> None:
    with pytest.raises(Malformed) as caught:
        decode_header(memoryview(frame))
    assert said in str(caught.value)


def refused(of: type[Struct], data: bytes, version: int, flexible: bool) -> Malformed:
    with pytest.raises(Malformed) as caught:
        decode(of, data, version=version, flexible=flexible)
    return caught.value


def test_the_error_names_the_field_and_the_byte() -> None:
    # transactional id null, acks, timeout, one topic "t", one partition: index 5, records of 9 bytes, 2 are there
    data = b"\0" + struct.pack(">hi", 1, 1000) + b"\2\2t\2" + struct.pack(">i", 5) + b"\x0aab"
    error = refused(ProduceRequest, data, 9, True)
    assert error.where == "topic_data[].partition_data[].records"
    assert error.position == len(data) - 2
    assert str(error) == (
        "malformed ProduceRequest version 9: topic_data[].partition_data[].records at byte 16: "
        "needs 9 bytes but 2 are left"
    )


def test_null_where_the_version_has_none_is_refused() -> None:
    error = refused(OffsetCommitRequest, struct.pack(">h", -1), 2, False)
    assert (error.where, error.reason) == ("group_id", "null is not allowed here")
    assert refused(OffsetCommitRequest, b"\0" * 20, 8, True).where == "group_id"


def test_text_that_is_not_utf8_is_refused() -> None:
    assert "utf-8" in refused(MetadataRequest, struct.pack(">ih", 1, 2) + b"\xff\xfe", 1, False).reason


def test_varints_that_never_end_are_refused() -> None:
    assert "varint" in refused(MetadataRequest, b"\xff" * 20, 9, True).reason


def test_a_tagged_field_that_is_not_as_long_as_it_says_is_refused() -> None:
    class Tagged(Struct):
        number: int = int32(tag=1)

    assert decode(Tagged, b"\1\1\4\0\0\0\7", version=0, flexible=True)[0].number == 7
    assert "as long as it says" in refused(Tagged, b"\1\1\5\0\0\0\7\0", 0, True).reason
    assert refused(Tagged, b"\1\1\4\0\0", 0, True).where == "tagged fields"


def test_unknown_tagged_fields_are_skipped() -> None:
    class Tagged(Struct):
        number: int = int32(tag=1)

    data = b"\3" + b"\0\2xy" + b"\1\4\0\0\0\7" + b"\x63\0"
    assert decode(Tagged, data, version=0, flexible=True) == (Tagged(number=7), len(data))


class Leaf(Struct):
    pass


class Inner(Struct):
    leaves: tuple[Leaf, ...] = array(Leaf)
    names: tuple[str, ...] = array(string)


class Outer(Struct):
    inner: Inner = structure(Inner)
    numbers: tuple[int, ...] = array(int32)


@pytest.mark.parametrize("count", [2**31 - 1, 2**24, 1000, -(2**31)])
def test_a_count_that_the_bytes_cannot_hold_costs_nothing(count: int) -> None:
    data = struct.pack(">i", count) + bytes(400)
    tracemalloc.start()
    error = refused(Outer, data, 0, False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert error.where == "inner.leaves"
    assert peak < 200_000


def test_elements_of_one_message_are_limited_in_all_its_arrays_together() -> None:
    half = MAX_ELEMENTS // 2 + 1
    array_of_empty = unsigned_varint(half + 1) + bytes(half)
    data = array_of_empty + unsigned_varint(half + 1) + b"\1" * half + bytes(100)
    error = refused(Outer, data, 0, True)
    assert error.where == "inner.names"
    assert str(MAX_ELEMENTS) in error.reason
