"""Every client writes with every codec, plain and in transactions; every client reads what any of them wrote."""

from __future__ import annotations

import time

import pytest

from .clients import CODECS, READERS, WRITERS, Record, create_topic

NOW_MS = int(time.time() * 1000)  # older records would be expired when they arrive

RECORDS = [
    Record(None, b"x" * 500, (), NOW_MS),
    *(
        Record(f"key-{n}".encode(), b"value " * 20 + str(n).encode(), (("h", b"1"), ("h", b"2")), NOW_MS + n)
        for n in range(30)
    ),
    Record(b"gone", None, (("empty", b""),), NOW_MS - 1000),
]


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", WRITERS)
def test_every_client_reads_what_a_client_wrote(
    bootstrap: str, unique: str, writer: str, codec: str, transactional: bool
) -> None:
    topic = create_topic(bootstrap, f"codec-{unique}")
    WRITERS[writer](bootstrap, topic, RECORDS, codec, f"tx-{unique}" if transactional else None)
    for name, read in READERS.items():
        assert read(bootstrap, topic, len(RECORDS)) == RECORDS, f"as read by {name}"


@pytest.mark.parametrize("stored", CODECS[1:])
def test_a_topic_compresses_anew_with_its_own_codec(bootstrap: str, unique: str, stored: str) -> None:
    topic = create_topic(bootstrap, f"own-codec-{unique}", compression_type=stored)
    WRITERS["confluent"](bootstrap, topic, RECORDS, "lz4" if stored == "gzip" else "gzip", None)
    for name, read in READERS.items():
        assert read(bootstrap, topic, len(RECORDS)) == RECORDS, f"as read by {name}"
