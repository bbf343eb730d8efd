"""kcat (librdkafka 2.0 in Debian 12): writing and reading with every codec, offsets, groups, metadata."""

from __future__ import annotations

import json

import pytest

from .kcat import kcat

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(server: str, unique: str, codec: str) -> None:
    topic = f"kcat-{codec}-{unique}"
    lines = "".join(f"key{n}:value {n}\n" for n in range(500))
    kcat("-b", server, "-P", "-t", topic, "-K", ":", "-z", codec, "-H", "h=1", stdin=lines)
    printed = kcat("-b", server, "-C", "-t", topic, "-e", "-q", "-o", "beginning", "-f", "%k:%s\\n")
    assert printed == lines


def test_offsets_times_and_counts(server: str, unique: str) -> None:
    topic = f"kcat-offsets-{unique}"
    kcat("-b", server, "-P", "-t", topic, "-p", "0", stdin="0\n1\n2\n3\n")
    at = ("-b", server, "-C", "-t", topic, "-p", "0", "-e", "-q")
    assert kcat(*at, "-o", "2").split() == ["2", "3"]
    assert kcat(*at, "-o", "-1").split() == ["3"]
    assert kcat(*at, "-o", "beginning", "-c", "2").split() == ["0", "1"]
    assert kcat(*at, "-o", "s@0").split() == ["0", "1", "2", "3"]
    assert kcat("-b", server, "-Q", "-t", f"{topic}:0:-1").strip() == f"{topic} [0] offset 4"


def test_a_balanced_group_and_the_metadata(server: str, unique: str) -> None:
    topic = f"kcat-group-{unique}"
    kcat("-b", server, "-P", "-t", topic, stdin="a\nb\nc\n")
    printed = kcat("-b", server, "-G", f"g-{unique}", "-o", "beginning", "-c", "3", "-q", topic)
    assert sorted(printed.split()) == ["a", "b", "c"]
    found = json.loads(kcat("-b", server, "-L", "-J", "-t", topic))
    assert [each["topic"] for each in found["topics"]] == [topic]


def test_a_transaction(server: str, unique: str) -> None:
    topic = f"kcat-tx-{unique}"
    kcat("-b", server, "-P", "-t", topic, "-X", f"transactional.id=tx-{unique}", stdin="a\nb\n")
    committed = ("-X", "isolation.level=read_committed")
    printed = kcat("-b", server, "-C", "-t", topic, "-e", "-q", "-o", "beginning", *committed)
    assert printed.split() == ["a", "b"]
