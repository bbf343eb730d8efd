"""The names of the columns that `topic()` adds to a record's own, and that the sink understands.

They start with an underscore, so that they stay out of the way of the record's fields.

    _key        binary      the record's key
    _topic      string      where it was: topic, partition, offset
    _partition  int
    _offset     long
    _received   timestamp   when the broker got it, or what its producer said, by the topic's setting
    _headers    array<struct<key: string, value: binary>>
    _error      string      why the value could not be decoded; null when it could
    _raw        binary      the value as it came, where `_error` says something
    _weight     int         in changelogs: +1 a row comes, -1 it goes

Two more are only seen inside an operator:

    _side       string      which input of a union a row belongs to
    _low        long        the low watermark of the row's producer when it was written, microseconds since 1970
"""

from __future__ import annotations

__all__ = [
    "ERROR",
    "HEADERS",
    "KEY",
    "LOW",
    "METADATA",
    "OFFSET",
    "PARTITION",
    "RAW",
    "RECEIVED",
    "SIDE",
    "TOPIC",
    "WEIGHT",
]

KEY = "_key"
TOPIC = "_topic"
PARTITION = "_partition"
OFFSET = "_offset"
RECEIVED = "_received"
HEADERS = "_headers"
ERROR = "_error"
RAW = "_raw"
WEIGHT = "_weight"
SIDE = "_side"
LOW = "_low"

METADATA = (KEY, TOPIC, PARTITION, OFFSET, RECEIVED, HEADERS, ERROR, RAW)
