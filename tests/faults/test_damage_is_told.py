"""Damage under a running broker: the client is told, whoever runs the broker is told where, the rest is served."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from broker.clients import assigned, poll_until, producer, read_everything, send
from headwater import Broker
from headwater.testing import eventually


def test_a_client_gets_an_error_and_the_log_says_file_and_position(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(tmp_path) as broker:
        writer = producer(broker.bootstrap_servers)
        offsets = [send(writer, "damaged", [f"v{number}".encode()])[0] for number in range(5)]
        send(writer, "intact", [b"fine"])
    file = tmp_path / "damaged-0" / "00000000000000000000.log"
    content = bytearray(file.read_bytes())
    content[content.index(b"v2")] ^= 1
    file.write_bytes(content)
    with Broker(tmp_path) as broker, caplog.at_level(logging.ERROR):
        with assigned(broker.bootstrap_servers, "damaged", start=0) as consumer:
            errors: list[str] = []

            def told() -> bool:
                message = consumer.poll(0.2)
                if message is not None and message.error() is not None:
                    errors.append(str(message.error()))
                elif message is not None:
                    assert message.value() in (b"v0", b"v1")
                return bool(errors)

            eventually(told, deadline_s=20)
        assert f"failed at offset {offsets[2]}" in errors[0]
        assert [message.value() for message in read_everything(broker.bootstrap_servers, "intact")] == [b"fine"]
        with assigned(broker.bootstrap_servers, "damaged", start=offsets[3]) as consumer:
            assert [message.value() for message in poll_until([consumer], lambda found: len(found) == 2, "v3, v4")] == [
                b"v3",
                b"v4",
            ]
    named = [record.getMessage() for record in caplog.records if "is corrupt" in record.getMessage()]
    assert [str(file) in each and "checksum" in each for each in named] == [True]
