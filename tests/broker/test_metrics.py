"""What the broker tells about itself: Prometheus metrics and the health endpoint."""

from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log.results import StorageFailed
from headwater.testing.waiting import eventually
from headwater.wire.errors import ErrorCode

from .clients import create_topic, poll_until, producer, send, subscribed
from .process import BrokerProcess, broker_process
from .raw import RawClient, batch

SAMPLE = re.compile(r'[a-z_]+(\{([a-z_]+="(\\.|[^"\\])*",?)*\})? [0-9.e+-]+')


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path_factory.mktemp("metrics")) as running:
        yield running


def test_every_line_is_in_prometheus_format(broker: BrokerProcess) -> None:
    with urllib.request.urlopen(f"{broker.url}/metrics", timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    assert text.endswith("\n")
    for line in text.splitlines():
        assert re.match(r"# (HELP|TYPE) headwater_[a-z_]+ .+", line) or SAMPLE.fullmatch(line), line


def test_bytes_requests_and_times_are_counted(broker: BrokerProcess) -> None:
    topic = create_topic(broker.bootstrap, "counted")
    sent = batch(b"x" * 1_000)
    before = broker.metrics()
    with RawClient(broker.bootstrap) as raw:
        for _ in range(5):
            raw.produce(topic, sent)
        raw.fetch(topic, 0)
    after = broker.metrics()

    def grew(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert grew('headwater_requests_total{api="Produce"}') == 5
    assert grew('headwater_request_bytes_total{api="Produce"}') > 5 * len(sent)
    assert grew('headwater_request_seconds_total{api="Produce"}') > 0
    assert grew('headwater_produced_bytes_total{topic="counted"}') == 5 * len(sent)
    assert grew('headwater_fetched_bytes_total{topic="counted"}') == 5 * len(sent)
    assert grew("headwater_append_seconds_count") == 5
    assert grew("headwater_sync_seconds_count") >= 1  # several acknowledgements may share one
    assert grew("headwater_sync_seconds_sum") > 0
    assert after['headwater_log_bytes{topic="counted",partition="0"}'] == 5 * len(sent)
    assert after['headwater_high_watermark{topic="counted",partition="0"}'] == 5


def test_histograms_rise_to_their_count(broker: BrokerProcess) -> None:
    buckets = [v for name, v in broker.metrics().items() if name.startswith("headwater_append_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == broker.metrics()["headwater_append_seconds_count"]


def test_the_lag_of_a_group_is_shown(broker: BrokerProcess) -> None:
    topic = create_topic(broker.bootstrap, "lagging")
    send(producer(broker.bootstrap), topic, [b"1", b"2", b"3", b"4"])
    with subscribed(broker.bootstrap, [topic], "slow") as consumer:
        found = poll_until([consumer], lambda seen: len(seen) >= 1, "a record")
        consumer.commit(message=found[0], asynchronous=False)
    where = '{group="slow",topic="lagging",partition="0"}'
    assert broker.metrics()[f"headwater_group_offset{where}"] == 1
    assert broker.metrics()[f"headwater_group_lag{where}"] == 3


def test_errors_are_counted_by_kind(broker: BrokerProcess) -> None:
    before = broker.metrics()
    with RawClient(broker.bootstrap) as raw:
        damaged = bytearray(batch(b"x"))
        damaged[-1] ^= 1
        topic = create_topic(broker.bootstrap, "errors")
        assert raw.produce(topic, bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
        raw.socket.sendall(b"\0\0\0\x10" + b"\x7f" * 16)
        with pytest.raises(ConnectionError):
            raw.frame()
    for kind in ("CORRUPT_MESSAGE", "UnknownApi"):
        name = f'headwater_errors_total{{kind="{kind}"}}'
        assert broker.metrics()[name] == before.get(name, 0) + 1


def test_connections_are_counted(broker: BrokerProcess) -> None:
    before = broker.metrics()["headwater_connections"]
    with RawClient(broker.bootstrap) as raw:
        raw.produce("counted", batch(b"x"))
        assert broker.metrics()["headwater_connections"] == before + 1
    eventually(lambda: broker.metrics()["headwater_connections"] == before)


def test_health_is_ok_and_other_paths_are_not_found(broker: BrokerProcess) -> None:
    with urllib.request.urlopen(f"{broker.url}/healthz", timeout=30) as answer:
        assert json.loads(answer.read()) == {"status": "ok", "partitions": []}
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{broker.url}/", timeout=30)
    assert refused.value.code == 404


def test_a_failed_disk_is_not_healthy(tmp_path: Path) -> None:
    import threading

    from headwater.broker.runtime import Runtime

    runtime = Runtime(str(tmp_path), {"listeners": "PLAINTEXT://127.0.0.1:0"}, metrics="127.0.0.1:0")
    runtime.cluster.create("t", 1)
    runtime.logs.require("t", 0).log.failure = StorageFailed("the disk is gone")
    thread = threading.Thread(target=runtime.run)
    thread.start()
    try:
        with pytest.raises(urllib.error.HTTPError) as unhealthy:
            urllib.request.urlopen(f"http://{runtime.metrics_address}/healthz", timeout=30)
        assert unhealthy.value.code == 503
        assert json.loads(unhealthy.value.read()) == {"status": "storage failed", "partitions": ["t-0"]}
    finally:
        runtime.stop()
        thread.join(30)


def test_noise_on_the_metrics_port_is_closed_and_harms_nothing(broker: BrokerProcess) -> None:
    host, _, port = broker.url.removeprefix("http://").rpartition(":")
    for noise in (b"\xff" * 20_000, b"GET\r\n\r\n", b"\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=30) as sock:
            sock.sendall(noise)
            try:
                while sock.recv(1 << 16):
                    pass
            except ConnectionError:
                pass
    assert broker.metrics()
