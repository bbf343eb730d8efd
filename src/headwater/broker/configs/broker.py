"""Broker settings. The defaults of topic and group settings are derived from their own tables, so that they cannot
disagree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headwater.broker.configs.group import GROUP_KEYS
from headwater.broker.configs.keys import INT_MAX, ConfigKey, ConfigType, at_least, between
from headwater.broker.configs.topic import TOPIC_KEYS

__all__ = ["BROKER_KEYS"]

_T = ConfigType

# what a few defaults derived from topic settings are called in hours and minutes, and their own defaults
_IN_LARGER_UNITS = {
    "log.retention.hours": "168",
    "log.retention.minutes": None,
    "log.roll.hours": "168",
    "log.roll.jitter.hours": "0",
}
_MILLISECONDS_WITHOUT_DEFAULT = {"log.retention.ms", "log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms"}
_STATIC_SYNONYMS = {*_IN_LARGER_UNITS, "group.consumer.session.timeout.ms", "group.consumer.heartbeat.interval.ms"}


def _derived(keys: Mapping[str, ConfigKey]) -> Iterator[ConfigKey]:
    """The broker-wide default of each topic or group setting, under each of its names."""
    for key in keys.values():
        for synonym in key.synonyms:
            default = _IN_LARGER_UNITS.get(synonym, key.default)
            if synonym in _MILLISECONDS_WITHOUT_DEFAULT:
                default = None
            kind = _T.INT if synonym in _IN_LARGER_UNITS else key.type
            doc = f"Default of {key.name}: {key.doc}"
            yield ConfigKey(synonym, kind, default, doc, key.check, dynamic=synonym not in _STATIC_SYNONYMS)


def _static(name: str, kind: ConfigType, default: str | None, doc: str, low: float | None = None) -> ConfigKey:
    return ConfigKey(name, kind, default, doc, at_least(low) if low is not None else None, dynamic=False)


_OWN = (
    # who and where
    _static("node.id", _T.INT, "1", "The number of this broker.", 0),
    _static("broker.rack", _T.STRING, None, "The rack told to clients, for reading from the nearest replica."),
    _static("process.roles", _T.LIST, "broker,controller", "This one process is both."),
    _static("log.dirs", _T.STRING, None, "The folder of all data."),
    _static("listeners", _T.LIST, "PLAINTEXT://127.0.0.1:9092", "Where connections are accepted; loopback by default."),
    _static("advertised.listeners", _T.LIST, None, "What clients are told to connect to; default: the listeners."),
    # topics
    _static("auto.create.topics.enable", _T.BOOLEAN, "true", "Whether asking for an unknown topic creates it."),
    _static("num.partitions", _T.INT, "1", "Partitions of a topic created without a number.", 1),
    _static("default.replication.factor", _T.INT, "1", "Always 1: replication is what a Kafka cluster is for.", 1),
    _static("delete.topic.enable", _T.BOOLEAN, "true", "Whether topics may be deleted."),
    # bounds
    _static(
        "socket.request.max.bytes", _T.INT, "104857600", "The largest request; larger ones close the connection.", 1
    ),
    _static("socket.listen.backlog.size", _T.INT, "511", "Connections waiting to be accepted.", 1),
    _static("socket.send.buffer.bytes", _T.INT, "-1", "SO_SNDBUF; -1: the operating system decides.", -1),
    _static("socket.receive.buffer.bytes", _T.INT, "-1", "SO_RCVBUF; -1: the operating system decides.", -1),
    _static(
        "queued.max.request.bytes",
        _T.LONG,
        "268435456",
        "Memory for unfinished requests and unsent responses of all connections; beyond it sockets are not read.",
        -1,
    ),
    _static("queued.max.requests", _T.INT, "500", "Unanswered requests of one connection before it is not read.", 1),
    ConfigKey("max.connections", _T.INT, "8192", "Open connections; further ones are closed at once.", at_least(0)),
    ConfigKey("max.connections.per.ip", _T.INT, str(INT_MAX), "Open connections from one address.", at_least(0)),
    ConfigKey(
        "max.connections.per.ip.overrides",
        _T.STRING,
        "",
        "Other bounds for some addresses: `address:bound,address:bound`.",
    ),
    _static("connections.max.idle.ms", _T.LONG, "600000", "A connection silent for longer is closed; -1: never.", -1),
    _static("fetch.max.bytes", _T.INT, "57671680", "The most bytes of records in one Fetch response.", 1024),
    _static("max.incremental.fetch.session.cache.slots", _T.INT, "1000", "Fetch sessions kept.", 0),
    _static("max.request.partition.size.limit", _T.INT, "2000", "Partitions in one DescribeTopicPartitions page.", 1),
    # durability and upkeep
    _static("log.retention.check.interval.ms", _T.LONG, "300000", "How often old segments are looked for.", 1),
    _static("log.cleaner.enable", _T.BOOLEAN, "true", "Whether compacted topics are compacted."),
    _static("log.cleaner.backoff.ms", _T.LONG, "15000", "The pause between two looks for what to compact.", 1),
    _static(
        "log.cleaner.dedupe.buffer.size", _T.LONG, "134217728", "Bytes for the keys of one pass of compaction.", 1024
    ),
    ConfigKey(
        "producer.id.expiration.ms", _T.INT, "86400000", "How long a silent producer is remembered.", at_least(1)
    ),
    # groups
    _static("group.min.session.timeout.ms", _T.INT, "6000", "The shortest session time-out of a classic member.", 1),
    _static("group.max.session.timeout.ms", _T.INT, "1800000", "The longest session time-out of a classic member.", 1),
    _static("group.initial.rebalance.delay.ms", _T.INT, "0", "How long a new classic group waits for more members.", 0),
    _static("group.max.size", _T.INT, str(INT_MAX), "Members of a classic group.", 1),
    _static("group.consumer.min.session.timeout.ms", _T.INT, "45000", "Lower bound of consumer.session.timeout.ms.", 1),
    _static("group.consumer.max.session.timeout.ms", _T.INT, "60000", "Upper bound of consumer.session.timeout.ms.", 1),
    _static(
        "group.consumer.min.heartbeat.interval.ms", _T.INT, "5000", "Lower bound of consumer.heartbeat.interval.ms.", 1
    ),
    _static(
        "group.consumer.max.heartbeat.interval.ms", _T.INT, "15000", "Upper bound of consumer.heartbeat.interval.ms.", 1
    ),
    _static("group.consumer.max.size", _T.INT, str(INT_MAX), "Members of a consumer group (new protocol).", 1),
    _static("group.consumer.migration.policy", _T.STRING, "bidirectional", "Which classic groups may change protocol."),
    _static("offsets.topic.num.partitions", _T.INT, "1", "Partitions of __consumer_offsets when it is created.", 1),
    _static("offsets.topic.replication.factor", _T.SHORT, "1", "Always 1.", 1),
    _static("offsets.topic.segment.bytes", _T.INT, "104857600", "Segment size of __consumer_offsets.", 1),
    _static("offsets.retention.minutes", _T.INT, "10080", "How long offsets of an empty group are kept.", 1),
    _static("offsets.retention.check.interval.ms", _T.LONG, "600000", "How often expired offsets are looked for.", 1),
    _static("offset.metadata.max.bytes", _T.INT, "4096", "The longest text with a committed offset.", 0),
    # transactions
    _static(
        "transaction.max.timeout.ms", _T.INT, "900000", "The longest time-out a transactional producer may ask for.", 1
    ),
    _static(
        "transactional.id.expiration.ms", _T.INT, "604800000", "How long an idle transactional id is remembered.", 1
    ),
    _static(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _T.INT,
        "1000",
        "How often transactions past their time-out are looked for.",
        1,
    ),
    _static(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _T.INT,
        "3600000",
        "How often expired transactional ids are looked for.",
        1,
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        _T.BOOLEAN,
        "true",
        "Whether a transactional batch must belong to an open transaction.",
    ),
    _static("transaction.state.log.num.partitions", _T.INT, "1", "Partitions of __transaction_state when created.", 1),
    _static("transaction.state.log.replication.factor", _T.SHORT, "1", "Always 1.", 1),
    _static("transaction.state.log.min.isr", _T.INT, "1", "Always 1.", 1),
    _static("transaction.state.log.segment.bytes", _T.INT, "104857600", "Segment size of __transaction_state.", 1),
    # quotas
    ConfigKey("quota.window.num", _T.INT, "11", "Samples kept for quotas.", between(2, 1000), dynamic=False),
    ConfigKey(
        "quota.window.size.seconds", _T.INT, "1", "The length of a quota's sample.", between(1, 3600), dynamic=False
    ),
)

BROKER_KEYS: dict[str, ConfigKey] = {key.name: key for key in (*_derived(TOPIC_KEYS), *_derived(GROUP_KEYS), *_OWN)}
