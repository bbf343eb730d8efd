"""Too much of anything: connections, bytes, slow readers, a full disk. What is beyond a bound waits or is refused by
name, and costs the others nothing."""

from __future__ import annotations

import errno
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater import Broker
from headwater.broker.metrics import Metrics
from headwater.broker.runtime import Runtime
from headwater.filesystem import SystemFilesystem
from headwater.testing.waiting import eventually
from headwater.wire.errors import ErrorCode
from headwater.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from headwater.wire.messages.api_versions import ApiVersionsRequest
from headwater.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from .clients import create_topic, producer, read_everything, send, values
from .process import BrokerProcess, broker_process
from .raw import RawClient, batch


def closed(sock: socket.socket) -> bool:
    """Whether the broker closes this connection, soon."""
    sock.settimeout(10)
    try:
        return sock.recv(1) == b""
    except ConnectionError:
        return True


# -- connections


def test_connections_beyond_the_bound_are_closed_at_once_and_those_within_go_on() -> None:
    with Broker(max_connections=3) as broker:
        within = [RawClient(broker.bootstrap_servers) for _ in range(3)]
        for client in within:
            assert client.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
        beyond = RawClient(broker.bootstrap_servers)
        assert closed(beyond.socket)
        within[0].close()
        eventually(lambda: _serves(broker.bootstrap_servers), what="room for another")
        assert within[1].call(ApiVersionsRequest(client_software_name="t", client_software_version="1"))


def _serves(bootstrap: str) -> bool:
    with RawClient(bootstrap) as client:
        try:
            client.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
        except ConnectionError:
            return False
        return True


def test_connections_of_one_address_have_a_bound_of_their_own() -> None:
    with Broker(max_connections_per_ip=2) as broker:
        within = [RawClient(broker.bootstrap_servers) for _ in range(2)]
        for client in within:
            client.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
        assert closed(RawClient(broker.bootstrap_servers).socket)


def test_a_silent_connection_is_closed() -> None:
    with Broker(connections_max_idle_ms=200) as broker, RawClient(broker.bootstrap_servers) as client:
        client.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
        assert closed(client.socket)


# -- bytes


def test_a_request_larger_than_the_bound_closes_its_connection() -> None:
    with Broker(socket_request_max_bytes=10_000) as broker, RawClient(broker.bootstrap_servers) as client:
        client.socket.sendall(struct.pack(">i", 10_001))
        assert closed(client.socket)
        assert _serves(broker.bootstrap_servers)


def test_what_a_frame_claims_takes_no_memory_before_it_is_there(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker:
        assert _serves(broker.bootstrap)
        before = broker.memory_mib()
        sockets = [RawClient(broker.bootstrap).socket for _ in range(50)]
        for sock in sockets:
            sock.sendall(struct.pack(">i", 100_000_000) + bytes(1_000))
        assert _serves(broker.bootstrap)
        assert broker.memory_mib() - before < 70  # a MiB each, where 50 claims are 5 GB


def test_unfinished_requests_of_all_connections_share_a_bound(tmp_path: Path) -> None:
    """40 requests of 8 MB arrive slowly at once; the broker holds 32 MB of them and serves small ones all the while."""
    body, count, bound = bytes(8 << 20), 40, 32 << 20
    with broker_process(tmp_path, f"queued.max.request.bytes={bound}") as broker:
        assert _serves(broker.bootstrap)
        before, most = broker.memory_mib(), 0.0
        threads = [threading.Thread(target=_send_slowly, args=(broker.bootstrap, body)) for _ in range(count)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most = max(most, broker.memory_mib())
            time.sleep(0.01)
        assert most - before < (bound >> 20) + 8 + 40  # the bound, one request, what everything else takes
        assert _serves(broker.bootstrap)


def test_who_holds_memory_and_does_nothing_is_closed_when_others_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.broker.server.STALLED_MS", 300)
    with Broker(queued_max_request_bytes=3 << 20) as broker:
        assert _serves(broker.bootstrap_servers)
        stalled = [RawClient(broker.bootstrap_servers) for _ in range(6)]
        for client in stalled:
            client.socket.sendall(struct.pack(">ihh", 50 << 20, 3, 12) + bytes(1 << 20))
        assert _serves(broker.bootstrap_servers)  # once enough of them are closed
        for client in stalled:
            client.close()


def _send_slowly(bootstrap: str, body: bytes) -> None:
    """A frame that turns out to be malformed: it is received whole, and then its connection is closed."""
    with RawClient(bootstrap, timeout_s=60) as client:
        try:
            client.socket.sendall(struct.pack(">ihhih", len(body) + 10, 3, 12, 1, -1))
            for position in range(0, len(body), 1 << 20):
                client.socket.sendall(body[position : position + (1 << 20)])
            closed(client.socket)
        except OSError:
            return


def test_a_client_that_does_not_read_its_answers_is_not_read_either(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker:
        topic = create_topic(broker.bootstrap, "t", partitions=1)
        send(producer(broker.bootstrap), topic, [b"x" * 1_000] * 50)
        before = broker.memory_mib()
        with RawClient(broker.bootstrap) as rude:
            sent = _ask_without_listening(rude, topic)
            assert sent < 200_000, "the broker stops reading"
            assert broker.memory_mib() - before < 50
            send(producer(broker.bootstrap), topic, [b"others are served"])  # or fails
            assert rude.frame(), "and answers when it is listened to"


def _ask_without_listening(client: RawClient, topic: str) -> int:
    """Fetch again and again until the socket takes no more requests; how many it took."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(min_bytes=1, topics=(FetchTopic(topic=topic, partitions=(wanted,)),))
    client.socket.settimeout(1)
    for sent in range(200_000):
        try:
            client.send(request, 12)
        except TimeoutError:
            client.socket.settimeout(30)
            return sent
    return 200_000


def test_a_consumer_that_stops_reading_costs_a_producer_nothing(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"slow-{unique}")
    send(producer(bootstrap, linger_ms=5), topic, [b"x" * 10_000] * 1_000)
    slow = [RawClient(bootstrap) for _ in range(20)]
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)
    for client in slow:  # each is owed 10 MB and reads none of it
        client.send(FetchRequest(min_bytes=1, topics=(FetchTopic(topic=topic, partitions=(wanted,)),)), 12)
    send(producer(bootstrap), topic, [b"y"] * 10)  # or fails: none of them reads before it is acknowledged
    for client in slow:
        client.close()


def test_many_pipelined_requests_are_answered_in_order(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"pipelined-{unique}")
    with RawClient(bootstrap) as client:
        data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=0, records=batch(b"x")),))
        request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=(data,))
        headers = [client.send(request, 11) for _ in range(1_000)]
        answers = [client.receive(header) for header in headers]  # `receive` checks the correlation ids
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == list(range(1_000))


# -- quotas


@contextmanager
def quota(bootstrap: str, client_id: str, key: str, value: float) -> Iterator[None]:
    entity = (EntityData(entity_type="client-id", entity_name=client_id),)
    for remove in (False, True):
        entry = EntryData(entity=entity, ops=(OpData(key=key, value=value, remove=remove),))
        with RawClient(bootstrap) as raw:
            assert raw.call(AlterClientQuotasRequest(entries=(entry,))).entries[0].error_code == ErrorCode.NONE
        if not remove:
            yield


def test_a_producer_beyond_its_quota_is_slowed_down_and_others_are_not(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"quota-{unique}")
    me = f"me-{unique}"
    with quota(bootstrap, me, "producer_byte_rate", 20_000.0), RawClient(bootstrap, client_id=me) as client:
        started, throttled_ms = time.monotonic(), 0
        for _ in range(12):  # 240 kB: the window of 11 s lets 220 kB pass at once
            throttled_ms = max(throttled_ms, _produce(client, topic, batch(b"x" * 20_000)))
        assert throttled_ms > 0
        assert time.monotonic() - started > throttled_ms / 1000 * 0.5
        with RawClient(bootstrap, client_id=f"other-{unique}") as other:
            assert _produce(other, topic, batch(b"x" * 20_000)) == 0


def _produce(client: RawClient, topic: str, records: bytes) -> int:
    data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=0, records=records),))
    answer = client.call(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=(data,)), 11)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return int(answer.throttle_time_ms)


def test_a_consumer_beyond_its_quota_is_slowed_down(bootstrap: str, unique: str) -> None:
    topic = create_topic(bootstrap, f"fetch-quota-{unique}")
    send(producer(bootstrap), topic, [b"x" * 100_000])
    me = f"me-{unique}"
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(min_bytes=1, topics=(FetchTopic(topic=topic, partitions=(wanted,)),))
    with quota(bootstrap, me, "consumer_byte_rate", 50_000.0), RawClient(bootstrap, client_id=me) as client:
        assert max(client.call(request, 12).throttle_time_ms for _ in range(6)) > 0


def test_a_client_that_takes_too_much_of_the_brokers_time_is_not_read_for_a_while(bootstrap: str, unique: str) -> None:
    me, request = f"me-{unique}", ApiVersionsRequest(client_software_name="t", client_software_version="1")
    with quota(bootstrap, me, "request_percentage", 0.2), RawClient(bootstrap, client_id=me) as client:
        slowest_s = 0.0
        end = time.monotonic() + 30
        while slowest_s < 0.5 and time.monotonic() < end:  # 0.2 % of 11 s is used up after some hundred requests
            started = time.monotonic()
            client.call(request)
            slowest_s = max(slowest_s, time.monotonic() - started)
        assert slowest_s >= 0.5
        assert _serves(bootstrap)


# -- a full disk


class FullDisk(SystemFilesystem):
    """Writes fail while `full`; so does making folders."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def pwritev(self, fd: int, buffers: object, position: int, /) -> int:
        self._check()
        return super().pwritev(fd, buffers, position)  # type: ignore[arg-type]

    def make_directory(self, path: str) -> None:
        self._check()
        super().make_directory(path)

    def _check(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_refuses_writes_serves_readers_and_recovers_by_itself(tmp_path: Path) -> None:
    disk = FullDisk()
    runtime = Runtime(str(tmp_path), {"listeners": "PLAINTEXT://127.0.0.1:0"}, filesystem=disk)
    thread = threading.Thread(target=runtime.run)
    thread.start()
    bootstrap = f"127.0.0.1:{runtime.listeners[0].port}"
    try:
        topic = create_topic(bootstrap, "t")
        with RawClient(bootstrap) as raw:
            assert raw.produce(topic, batch(b"before")).base_offset == 0
            disk.full = True
            refused = raw.produce(topic, batch(b"refused"))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert refused.error_message
            assert raw.fetch(topic, 0).records
            disk.full = False
            written = eventually(lambda: _written(raw, topic), what="the disk has room again")
            assert written == 1
        assert values(read_everything(bootstrap, topic)) == [b"before", b"after"]
        assert isinstance(runtime.metrics, Metrics)
        assert runtime.metrics.errors["KAFKA_STORAGE_ERROR"] >= 1
    finally:
        runtime.stop()
        thread.join(30)


def _written(raw: RawClient, topic: str) -> int:
    answer = raw.produce(topic, batch(b"after"))
    return int(answer.base_offset) if answer.error_code == ErrorCode.NONE else 0


def test_a_broker_under_load_is_told_to_stop_and_stops(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker:
        topic = create_topic(broker.bootstrap, "t")
        stop = threading.Event()
        threads = [threading.Thread(target=_write_until, args=(broker, topic, stop)) for _ in range(4)]
        for thread in threads:
            thread.start()
        eventually(lambda: broker.metrics().get('headwater_produced_bytes_total{topic="t"}', 0) > 10_000)
        assert broker.stop() == 0
        stop.set()
        for thread in threads:
            thread.join(30)


def _write_until(broker: BrokerProcess, topic: str, stop: threading.Event) -> None:
    with RawClient(broker.bootstrap) as raw:
        while not stop.is_set():
            try:
                raw.produce(topic, batch(b"x" * 100))
            except OSError:
                return


def test_the_queue_of_unanswered_requests_of_a_connection_is_bounded() -> None:
    """The bound is low here, so that reaching it is what happens, and everything is answered all the same."""
    with Broker(queued_max_requests=3) as broker, RawClient(broker.bootstrap_servers) as client:
        create_topic(broker.bootstrap_servers, "t")
        data = TopicProduceData(name="t", partition_data=(PartitionProduceData(index=0, records=batch(b"x")),))
        headers = [client.send(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=(data,)), 11) for _ in range(100)]
        for header in headers:
            client.receive(header)


@pytest.mark.parametrize("size", [0, 1, 7, -1, -(1 << 31)])
def test_a_frame_of_an_impossible_size_closes_its_connection(bootstrap: str, size: int) -> None:
    with RawClient(bootstrap) as client:
        client.socket.sendall(struct.pack(">i", size) + bytes(16))
        assert closed(client.socket)
