"""A Kafka client of one socket that sends exactly what a test says: for what real clients hide or never do."""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import Any
from uuid import UUID

from headwater.wire.apis import APIS
from headwater.wire.batches import Record, encode_batch
from headwater.wire.fields import Struct
from headwater.wire.frames import RequestHeader, decode_response, encode_request
from headwater.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from headwater.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from headwater.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

__all__ = ["RawClient", "batch"]

_KEYS = {api.name: key for key, api in APIS.items()}


class RawClient:
    """`call` is a request and its answer; `send` and `receive` are its halves."""

    def __init__(self, bootstrap: str, *, client_id: str | None = "raw", timeout_s: float = 30) -> None:
        host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._correlation = 0

    def call(self, request: Struct, version: int | None = None) -> Any:
        """The answer to one request; in the newest version unless told otherwise."""
        return self.receive(self.send(request, version))

    def send(self, request: Struct, version: int | None = None) -> RequestHeader:
        key = _KEYS[type(request).__name__.removesuffix("Request")]
        self._correlation += 1
        chosen = APIS[key].max_version if version is None else version
        header = RequestHeader(key, chosen, self._correlation, self._client_id)
        self.socket.sendall(b"".join(map(bytes, encode_request(header, request))))  # type: ignore[arg-type]
        return header

    def receive(self, header: RequestHeader) -> Any:
        return decode_response(header, memoryview(self.frame()))

    def frame(self) -> bytes:
        """The next frame without its size. ConnectionError when the broker has closed the connection."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            data = self.socket.recv(count - len(found))
            if not data:
                raise ConnectionError("the broker closed the connection")
            found += data
        return bytes(found)

    # -- in fewer words

    def topic_id(self, topic: str) -> UUID:
        answer = self.call(MetadataRequest(topics=(MetadataRequestTopic(name=topic),)))
        found: UUID = answer.topics[0].topic_id
        return found

    def produce(
        self, topic: str, records: bytes, *, acks: int = -1, transactional_id: str | None = None
    ) -> PartitionProduceResponse:
        """One batch to partition 0, in version 11 (topics by name, without adding them to a transaction)."""
        data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=0, records=records),))
        request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=(data,))
        answer: PartitionProduceResponse = self.call(request, 11).responses[0].partition_responses[0]
        return answer

    def fetch(self, topic: str, offset: int, *, max_wait_ms: int = 0, committed: bool = False) -> PartitionData:
        """Partition 0 from an offset, without a session, in version 12 (topics by name)."""
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            isolation_level=int(committed),
            topics=(FetchTopic(topic=topic, partitions=(wanted,)),),
        )
        answer: PartitionData = self.call(request, 12).responses[0].partitions[0]
        return answer

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def batch(*values: bytes, producer_id: int = -1, epoch: int = -1, sequence: int = -1, **more: Any) -> bytes:
    """One batch of keyless records."""
    return encode_batch(
        [Record(value=value, timestamp=int(time.time() * 1000)) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **more,
    )
