"""Requests and responses with their headers, as they travel: `int32 size`, header, message.

Kafka's exceptions to its own rules, which clients depend on: a request header's client id is never compact; the
response header of ApiVersions is never flexible; and an ApiVersions request of an unknown version is answered in
version 0, so that the client can read which versions there are.

Bytes after a request's last field are ignored, as Kafka does.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headwater.wire.apis import API_VERSIONS, APIS, Api
from headwater.wire.codec import decoder_of, encoder_of
from headwater.wire.errors import Malformed, UnknownApi, UnsupportedVersion
from headwater.wire.fields import Payload, Struct
from headwater.wire.layout import carries_records
from headwater.wire.primitives import ends_early, skip_tagged

__all__ = [
    "RequestHeader",
    "decode_header",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "total_size",
]

_FIXED: Final = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
_SIZE: Final = struct.Struct(">i")
_SIZE_AND_CORRELATION: Final = struct.Struct(">ii")


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """What precedes every request, and decides how its response is encoded."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def _api(api_key: int, correlation_id: int) -> Api:
    api = APIS.get(api_key)
    if api is None:
        raise UnknownApi(api_key, correlation_id)
    return api


def _unsupported(api: Api, version: int) -> UnsupportedVersion:
    return UnsupportedVersion(api.key, api.name, version, max(api.min_version, api.oldest), api.max_version)


def decode_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header of a request (`frame` is without the size) and the position of its message.

    The version is not judged here: `decode_request` does that, except that ApiVersions can be answered in any.
    """
    try:
        api_key, version, correlation_id, length = _FIXED.unpack_from(frame)
    except struct.error:
        raise Malformed("request header", "api_key", len(frame), "the frame ends early") from None
    api = _api(api_key, correlation_id)
    position = _FIXED.size
    client_id = None
    try:
        if length >= 0:
            stop = position + length
            if stop > len(frame):
                raise ends_early(length, len(frame) - position)
            client_id = frame[position:stop].tobytes().decode(errors="replace")
            position = stop
        if api.flexible(version):
            position = skip_tagged(frame, position)
    except (ValueError, IndexError) as error:
        raise Malformed("request header", "client_id", position, str(error)) from None
    return RequestHeader(api_key, version, correlation_id, client_id), position


def decode_request(header: RequestHeader, frame: memoryview, position: int) -> Any:
    """The `<Api>Request` at `position`. Raises `Malformed` or `UnsupportedVersion`."""
    api = _api(header.api_key, header.correlation_id)
    version = header.api_version
    if not api.supports(version):
        raise _unsupported(api, version)
    decode = decoder_of(api.request, version, api.flexible(version))
    return decode(_buffer(api.request, frame), position)[0]


def _buffer(of: type[Struct], frame: memoryview) -> bytes | memoryview:
    """Views are for record batches; strings are found faster in bytes."""
    return frame if carries_records(of) else bytes(frame)


def encode_response(header: RequestHeader, response: Struct) -> list[Payload]:
    """The buffers to send in answer to `header`, the size first. Large records are among them as they were given."""
    api = _api(header.api_key, header.correlation_id)
    version = header.api_version
    if not api.supports(version):
        if api.key != API_VERSIONS:
            raise _unsupported(api, version)
        version = 0
    flexible = api.flexible(version)
    out = bytearray(_SIZE_AND_CORRELATION.pack(0, header.correlation_id))
    if flexible and api.key != API_VERSIONS:
        out.append(0)
    return _finish(api.response, response, version, flexible, out)


def encode_request(header: RequestHeader, request: Struct) -> list[Payload]:
    """The buffers of a request, the size first."""
    api = _api(header.api_key, header.correlation_id)
    version = header.api_version
    if not api.supports(version):
        raise _unsupported(api, version)
    flexible = api.flexible(version)
    client_id = b"" if header.client_id is None else header.client_id.encode()
    length = -1 if header.client_id is None else len(client_id)
    out = bytearray(_SIZE.size)
    out += _FIXED.pack(api.key, version, header.correlation_id, length)
    out += client_id
    if flexible:
        out.append(0)
    return _finish(api.request, request, version, flexible, out)


def _finish(of: type[Struct], message: Struct, version: int, flexible: bool, out: bytearray) -> list[Payload]:
    chunks: list[Payload] = []
    chunks.append(encoder_of(of, version, flexible)(message, out, chunks))
    first = chunks[0]
    assert isinstance(first, bytearray)
    _SIZE.pack_into(first, 0, total_size(chunks) - _SIZE.size)
    return chunks


def total_size(chunks: Sequence[Payload]) -> int:
    """The bytes in all buffers together."""
    return sum(map(len, chunks))


def decode_response(header: RequestHeader, frame: memoryview) -> Any:
    """The `<Api>Response` to a request with this header (`frame` is without the size)."""
    api = _api(header.api_key, header.correlation_id)
    version = header.api_version
    if not api.supports(version):
        raise _unsupported(api, version)
    try:
        (correlation_id,) = _SIZE.unpack_from(frame)
        position = _SIZE.size
        if api.flexible(version) and api.key != API_VERSIONS:
            position = skip_tagged(frame, position)
    except (struct.error, ValueError, IndexError) as error:
        raise Malformed("response header", "correlation_id", 0, str(error)) from None
    if correlation_id != header.correlation_id:
        raise Malformed("response header", "correlation_id", 0, f"{correlation_id} is not {header.correlation_id}")
    decode = decoder_of(api.response, version, api.flexible(version))
    return decode(_buffer(api.response, frame), position)[0]
