"""Any declared structure from and to bytes. Decoders and encoders are built at first use and kept."""

from __future__ import annotations

from typing import TypeVar

from headwater.wire.decoding import Decoder, build_decoder
from headwater.wire.encoding import Encoder, build_encoder
from headwater.wire.fields import Payload, Struct
from headwater.wire.layout import carries_records

__all__ = ["decode", "decoder_of", "encode", "encode_chunks", "encoder_of"]

T = TypeVar("T", bound=Struct)

# Bounded by the declared structures and their versions.
_decoders: dict[tuple[type[Struct], int, bool], Decoder] = {}
_encoders: dict[tuple[type[Struct], int, bool], Encoder] = {}


def decoder_of(of: type[Struct], version: int, flexible: bool) -> Decoder:
    """The decoder of a structure in a version."""
    key = (of, version, flexible)
    found = _decoders.get(key)
    if found is None:
        found = _decoders[key] = build_decoder(of, version, flexible)
    return found


def encoder_of(of: type[Struct], version: int, flexible: bool) -> Encoder:
    """The encoder of a structure in a version."""
    key = (of, version, flexible)
    found = _encoders.get(key)
    if found is None:
        found = _encoders[key] = build_encoder(of, version, flexible)
    return found


def decode(of: type[T], data: bytes | memoryview, *, version: int, flexible: bool, position: int = 0) -> tuple[T, int]:
    """The structure at `position`, and the position after it. Raises `Malformed`."""
    buffer = memoryview(data) if carries_records(of) else bytes(data)
    message, after = decoder_of(of, version, flexible)(buffer, position)
    return message, after


def encode_chunks(message: Struct, *, version: int, flexible: bool) -> list[Payload]:
    """The structure as buffers to be sent in this order; large record batches are passed on as they were given."""
    chunks: list[Payload] = []
    chunks.append(encoder_of(type(message), version, flexible)(message, bytearray(), chunks))
    return chunks


def encode(message: Struct, *, version: int, flexible: bool) -> bytes:
    """The structure as bytes."""
    return b"".join(encode_chunks(message, version=version, flexible=flexible))  # type: ignore[arg-type]
