"""Topic settings, and the broker settings that are their defaults.

One difference from Kafka, on purpose: `flush.messages` defaults to 1, so that every acknowledged record is on disk. A
topic (or the whole broker, `log.flush.interval.messages`) relaxes it by a larger value, and then answers from the
page cache as Kafka does.
"""

from __future__ import annotations

from headwater.broker.configs.keys import LONG_MAX, ConfigKey, ConfigType, at_least, between, one_of, subset

__all__ = ["TOPIC_KEYS"]

_T = ConfigType
_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000

_KEYS = (
    ConfigKey(
        "cleanup.policy",
        _T.LIST,
        "delete",
        "What happens to old segments: delete (by retention), compact (the latest value of each key stays), or both.",
        subset("compact", "delete"),
        ("log.cleanup.policy",),
    ),
    ConfigKey(
        "compression.type",
        _T.STRING,
        "producer",
        "How batches are stored: as the producer sent them (producer), uncompressed, or compressed anew by this codec.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        ("compression.type",),
    ),
    ConfigKey(
        "compression.gzip.level",
        _T.INT,
        "-1",
        "The level of gzip when compression.type is gzip; -1: the codec's own default.",
        between(-1, 9),
        ("compression.gzip.level",),
    ),
    ConfigKey(
        "compression.lz4.level",
        _T.INT,
        "9",
        "The level of lz4 when compression.type is lz4.",
        between(1, 17),
        ("compression.lz4.level",),
    ),
    ConfigKey(
        "compression.zstd.level",
        _T.INT,
        "3",
        "The level of zstd when compression.type is zstd.",
        between(-131072, 22),
        ("compression.zstd.level",),
    ),
    ConfigKey(
        "delete.retention.ms",
        _T.LONG,
        "86400000",
        "How long a compacted topic keeps tombstones and transaction markers after they could be dropped.",
        at_least(0),
        ("log.cleaner.delete.retention.ms",),
    ),
    ConfigKey(
        "file.delete.delay.ms",
        _T.LONG,
        "60000",
        "How long a removed segment's file stays on disk, for readers that are still in it.",
        at_least(0),
        ("log.segment.delete.delay.ms",),
    ),
    ConfigKey(
        "flush.messages",
        _T.LONG,
        "1",
        "After how many records they are forced to disk; 1, the default here, forces before each acknowledgement.",
        at_least(1),
        ("log.flush.interval.messages",),
    ),
    ConfigKey(
        "flush.ms",
        _T.LONG,
        str(LONG_MAX),
        "The longest time records of a topic with relaxed `flush.messages` stay in memory only.",
        at_least(0),
        ("log.flush.interval.ms",),
    ),
    ConfigKey(
        "index.interval.bytes",
        _T.INT,
        "4096",
        "How many bytes of log lie between two entries of the offset index.",
        at_least(0),
        ("log.index.interval.bytes",),
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        _T.LONG,
        str(LONG_MAX),
        "The longest time a record of a compacted topic stays out of compaction.",
        at_least(1),
        ("log.cleaner.max.compaction.lag.ms",),
    ),
    ConfigKey(
        "max.message.bytes",
        _T.INT,
        "1048588",
        "The largest record batch accepted, as it arrives (compressed).",
        at_least(0),
        ("message.max.bytes",),
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        _T.LONG,
        "3600000",
        "How far a record's time stamp may lie ahead of the broker's clock (CreateTime only).",
        at_least(0),
        ("log.message.timestamp.after.max.ms",),
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        _T.LONG,
        str(LONG_MAX),
        "How far a record's time stamp may lie behind the broker's clock (CreateTime only).",
        at_least(0),
        ("log.message.timestamp.before.max.ms",),
    ),
    ConfigKey(
        "message.timestamp.type",
        _T.STRING,
        "CreateTime",
        "Whose time a record carries: the producer's (CreateTime) or the broker's (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
        ("log.message.timestamp.type",),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        _T.DOUBLE,
        "0.5",
        "The share of a compacted log that must be uncompacted before it is compacted again.",
        between(0, 1),
        ("log.cleaner.min.cleanable.ratio",),
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        _T.LONG,
        "0",
        "The shortest time a record of a compacted topic stays out of compaction.",
        at_least(0),
        ("log.cleaner.min.compaction.lag.ms",),
    ),
    ConfigKey(
        "min.insync.replicas",
        _T.INT,
        "1",
        "How many replicas must have a record before acks=all is answered; no more than there are, which is one.",
        at_least(1),
        ("min.insync.replicas",),
    ),
    ConfigKey(
        "preallocate",
        _T.BOOLEAN,
        "false",
        "Whether a new segment's file is created at its full size; files here always grow as they are written.",
        None,
        ("log.preallocate",),
    ),
    ConfigKey(
        "retention.bytes",
        _T.LONG,
        "-1",
        "How large a partition may grow before its oldest segments are deleted; -1: no bound.",
        at_least(-1),
        ("log.retention.bytes",),
    ),
    ConfigKey(
        "retention.ms",
        _T.LONG,
        "604800000",
        "How long records are kept before their segments are deleted; -1: for ever.",
        at_least(-1),
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        convert={"log.retention.minutes": _MINUTE_MS, "log.retention.hours": _HOUR_MS},
    ),
    ConfigKey(
        "segment.bytes",
        _T.INT,
        "1073741824",
        "The size at which a new segment is begun; retention and compaction work on whole segments.",
        at_least(14),
        ("log.segment.bytes",),
    ),
    ConfigKey(
        "segment.index.bytes",
        _T.INT,
        "10485760",
        "The largest offset index of a segment; a full one begins a new segment.",
        at_least(4),
        ("log.index.size.max.bytes",),
    ),
    ConfigKey(
        "segment.jitter.ms",
        _T.LONG,
        "0",
        "What may be taken off segment.ms at random. Without effect here: one machine's segments may roll together.",
        at_least(0),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        convert={"log.roll.jitter.hours": _HOUR_MS},
    ),
    ConfigKey(
        "segment.ms",
        _T.LONG,
        "604800000",
        "The age at which a new segment is begun although the old one is not full.",
        at_least(1),
        ("log.roll.ms", "log.roll.hours"),
        convert={"log.roll.hours": _HOUR_MS},
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        _T.BOOLEAN,
        "false",
        "Whether a replica that is behind may lead. Without effect here: the only replica always leads.",
        None,
        ("unclean.leader.election.enable",),
    ),
)

TOPIC_KEYS: dict[str, ConfigKey] = {key.name: key for key in _KEYS}
