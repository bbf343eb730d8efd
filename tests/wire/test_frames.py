"""Headers, and the exceptions that clients depend on."""

from __future__ import annotations

import struct

import pytest

from headwater.wire.apis import API_VERSIONS, FETCH, PRODUCE
from headwater.wire.errors import ErrorCode, Malformed, UnknownApi, UnsupportedVersion
from headwater.wire.frames import (
    RequestHeader,
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    total_size,
)
from headwater.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from headwater.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headwater.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headwater.wire.primitives import COPIED_PAYLOAD_BYTES

METADATA = 3


def joined(chunks: list[object]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]


def test_a_plain_request_is_these_bytes() -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(name="ab"),))
    frame = joined(encode_request(RequestHeader(METADATA, 1, 258, "me"), request))
    assert frame.hex(" ", 1) == (
        "00 00 00 14 "  # size
        "00 03 00 01 00 00 01 02 00 02 6d 65 "  # key, version, correlation, client id
        "00 00 00 01 00 02 61 62"  # one topic
    )


def test_a_flexible_request_is_these_bytes() -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1500,
        topic_data=(TopicProduceData(name="t", partition_data=(PartitionProduceData(index=3, records=b"xyz"),)),),
    )
    frame = joined(encode_request(RequestHeader(PRODUCE, 9, 1, None), request))
    assert frame.hex(" ", 1) == (
        "00 00 00 21 00 00 00 09 00 00 00 01 ff ff 00 "  # no client id; no tagged fields in the header
        "00 ff ff 00 00 05 dc 02 02 74 02 00 00 00 03 04 78 79 7a 00 00 00"
    )
    header, position = decode_header(memoryview(frame)[4:])
    assert header == RequestHeader(PRODUCE, 9, 1, None)
    assert decode_request(header, memoryview(frame)[4:], position) == request


def test_an_api_versions_response_never_has_a_flexible_header() -> None:
    response = ApiVersionsResponse(api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),))
    header = RequestHeader(API_VERSIONS, 3, 9, None)
    frame = joined(encode_response(header, response))
    assert frame.hex(" ", 1) == "00 00 00 13 00 00 00 09 00 00 02 00 12 00 00 00 04 00 00 00 00 00 00"
    assert decode_response(header, memoryview(frame)[4:]) == response


def test_api_versions_of_an_unknown_version_is_answered_in_version_0() -> None:
    frame = struct.pack(">hhih", API_VERSIONS, 77, 5, 1) + b"x\0" + b"whatever comes there"
    header, position = decode_header(memoryview(frame))
    assert header == RequestHeader(API_VERSIONS, 77, 5, "x")
    with pytest.raises(UnsupportedVersion) as caught:
        decode_request(header, memoryview(frame), position)
    assert str(caught.value) == "ApiVersions version 77 is not supported; use a version from 0 to 4"
    answer = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),)
    )
    # What a Kafka 4.3 broker sends, byte for byte.
    assert joined(encode_response(header, answer)).hex() == "0000001000000005002300000001001200000004"


def test_other_unsupported_versions_are_refused_on_both_sides() -> None:
    for header in (RequestHeader(METADATA, 99, 1), RequestHeader(PRODUCE, 2, 1), RequestHeader(FETCH, 3, 1)):
        with pytest.raises(UnsupportedVersion):
            decode_request(header, memoryview(b""), 0)
        with pytest.raises(UnsupportedVersion):
            encode_response(header, FetchResponse())
        with pytest.raises(UnsupportedVersion):
            encode_request(header, MetadataRequest())


def test_an_unknown_api_is_refused_with_its_correlation_id() -> None:
    with pytest.raises(UnknownApi) as caught:
        decode_header(memoryview(struct.pack(">hhih", 999, 0, 41, -1)))
    assert (caught.value.api_key, caught.value.correlation_id) == (999, 41)


def test_bytes_after_a_request_are_ignored_as_kafka_does() -> None:
    header = RequestHeader(API_VERSIONS, 3, 1, "c")
    request = ApiVersionsRequest(client_software_name="n", client_software_version="1")
    frame = memoryview(joined(encode_request(header, request)) + b"\1\2\3")[4:]
    assert decode_request(*reordered(decode_header(frame), frame)) == request


def reordered(decoded: tuple[RequestHeader, int], frame: memoryview) -> tuple[RequestHeader, memoryview, int]:
    return decoded[0], frame, decoded[1]


def test_a_client_id_need_not_be_text() -> None:
    header, _ = decode_header(memoryview(struct.pack(">hhih", METADATA, 1, 1, 2) + b"\xffa"))
    assert header.client_id == "\ufffda"


def test_records_are_views_of_the_frame_and_are_sent_uncopied() -> None:
    records = bytes(range(256)) * 8
    request = ProduceRequest(topic_data=(TopicProduceData(partition_data=(PartitionProduceData(records=records),)),))
    header = RequestHeader(PRODUCE, 9, 1, None)
    chunks = encode_request(header, request)
    assert chunks[1] is records
    frame = memoryview(joined(chunks))[4:]
    found = decode_request(header, frame, decode_header(frame)[1]).topic_data[0].partition_data[0].records
    assert isinstance(found, memoryview)
    assert found.obj is frame.obj
    assert found == records


def test_short_records_are_copied_into_the_message_around_them() -> None:
    response = FetchResponse(
        responses=(FetchableTopicResponse(topic="t", partitions=(PartitionData(records=b"r" * COPIED_PAYLOAD_BYTES),)),)
    )
    assert len(encode_response(RequestHeader(FETCH, 11, 1), response)) == 1


class Region:
    """Stands for a part of a file, which has a length and no bytes here."""

    def __len__(self) -> int:
        return 1_000_000


def test_records_may_be_anything_with_a_length_for_the_sender_to_deal_with() -> None:
    region = Region()
    partitions = tuple(PartitionData(partition_index=index, records=region) for index in range(2))
    response = FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=partitions),))
    chunks = encode_response(RequestHeader(FETCH, 12, 1), response)
    assert [chunk for chunk in chunks if not isinstance(chunk, bytearray)] == [region, region]
    size = struct.unpack(">i", bytes(chunks[0])[:4])[0]  # type: ignore[call-overload]
    assert size == total_size(chunks) - 4
    assert size > 2_000_000


def test_a_response_to_another_request_is_refused() -> None:
    frame = memoryview(joined(encode_response(RequestHeader(METADATA, 1, 5), MetadataResponse())))[4:]
    with pytest.raises(Malformed, match="5 is not 6"):
        decode_response(RequestHeader(METADATA, 1, 6), frame)
