"""A topic's settings as its log needs them, and their Kafka names."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FOREVER_MS", "LogSettings"]

FOREVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """Defaults are Kafka 4.3's, but for `flush_messages`: here an acknowledged record is on the disk.

    Each field is the Kafka topic setting of the same name with dots for underscores, unless a comment says otherwise.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 86_400_000
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 86_400_000  # -1: no limit
    retention_bytes: int = -1  # -1: no limit
    cleanup_delete: bool = True  # `delete` in cleanup.policy
    cleanup_compact: bool = False  # `compact` in cleanup.policy
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER_MS
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    flush_messages: int = (
        1  # 1: on disk before it is acknowledged; more: acknowledged from memory, synced after so many
    )
    flush_ms: int = FOREVER_MS  # relaxed topics only: the longest that records stay unsynced
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"  # or LogAppendTime
    message_timestamp_before_max_ms: int = FOREVER_MS
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"  # producer, uncompressed, gzip, snappy, lz4, zstd
    compression_level: int | None = None  # compression.<type>.level; None: the codec's own default
    producer_id_expiration_ms: int = 86_400_000  # the broker's producer.id.expiration.ms

    @property
    def durable_acks(self) -> bool:
        """Whether what is acknowledged or read must be on the disk."""
        return self.flush_messages <= 1
