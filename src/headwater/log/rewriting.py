"""Batches that cannot stay opaque: on compacted topics keys are looked for; a topic may want its own codec."""

from __future__ import annotations

from headwater.log.admission import CODECS, Admitted
from headwater.log.layout import (
    COMPRESSION_MASK,
    CRC_FROM,
    HEADER,
    INITIAL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Header,
)
from headwater.log.results import AppendRefused
from headwater.log.settings import LogSettings
from headwater.wire.batches import Record, decode_records, encode_batch
from headwater.wire.compression import Codec
from headwater.wire.errors import CorruptBatch, ErrorCode

__all__ = ["examined"]


def examined(batch: Admitted, settings: LogSettings) -> Admitted:
    """The batch as it is to be written; AppendRefused for records without keys on a compacted topic."""
    wanted = settings.compression_type
    header, _ = batch
    codec = header[5] & COMPRESSION_MASK
    recompress = wanted != "producer" and CODECS[codec] != wanted
    if not (recompress or settings.cleanup_compact):
        return batch
    try:
        records = list(decode_records(whole(batch)))
    except CorruptBatch as error:
        raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if settings.cleanup_compact and any(record.key is None for record in records):
        raise AppendRefused(ErrorCode.INVALID_RECORD, "a compacted topic takes only records with a key")
    return _recompressed(header, records, Codec(CODECS.index(wanted))) if recompress else batch


def whole(batch: Admitted) -> bytes:
    header, body = batch
    return INITIAL.pack(*header[:5]) + body


def _recompressed(header: Header, records: list[Record], codec: Codec) -> Admitted:
    content = encode_batch(
        records,
        codec=codec,
        base_offset=header[0],
        last_offset=header[0] + header[6],
        producer_id=header[9],
        producer_epoch=header[10],
        base_sequence=header[11],
        transactional=bool(header[5] & TRANSACTIONAL),
        log_append_time=header[8] if header[5] & LOG_APPEND_TIME else None,
    )
    return HEADER.unpack_from(content), content[CRC_FROM:]
