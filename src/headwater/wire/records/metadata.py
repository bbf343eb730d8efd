"""Records of the cluster's metadata: topics, partitions, configurations, features, quotas, credentials, access rules.

They have no key. The value starts with the frame's version, the record's type and the type's version, as unsigned
varints.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from headwater.wire.codec import decode, encode
from headwater.wire.errors import Malformed, UnsupportedVersion
from headwater.wire.fields import Struct, array, blob, boolean, float64, int8, int16, int32, int64, string, uint16, uuid
from headwater.wire.primitives import read_uvarint, unsigned_varint

__all__ = [
    "METADATA_RECORDS",
    "AbortTransactionRecord",
    "AccessControlEntryRecord",
    "BeginTransactionRecord",
    "BrokerEndpoint",
    "BrokerFeature",
    "BrokerRegistrationChangeRecord",
    "ClientQuotaRecord",
    "ConfigRecord",
    "EndTransactionRecord",
    "EntityData",
    "FeatureLevelRecord",
    "FenceBrokerRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveTopicRecord",
    "RemoveUserScramCredentialRecord",
    "TopicRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
    "UserScramCredentialRecord",
    "decode_metadata_record",
    "encode_metadata_record",
]


class BrokerEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()
    security_protocol: int = int16()


class BrokerFeature(Struct):
    name: str = string()
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class RegisterBrokerRecord(Struct):
    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: UUID = uuid()
    broker_epoch: int = int64()
    end_points: tuple[BrokerEndpoint, ...] = array(BrokerEndpoint)
    features: tuple[BrokerFeature, ...] = array(BrokerFeature)
    rack: str | None = string(nullable="0+")
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: tuple[UUID, ...] = array(uuid, "3+", tag=0)
    cordoned_log_dirs: tuple[UUID, ...] | None = array(uuid, "4+", nullable="4+", default=None, tag=1)


class UnregisterBrokerRecord(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64()


class TopicRecord(Struct):
    name: str = string()
    topic_id: UUID = uuid()


class PartitionRecord(Struct):
    partition_id: int = int32(default=-1)
    topic_id: UUID = uuid()
    replicas: tuple[int, ...] = array(int32)
    isr: tuple[int, ...] = array(int32)
    removing_replicas: tuple[int, ...] = array(int32)
    adding_replicas: tuple[int, ...] = array(int32)
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: tuple[UUID, ...] = array(uuid, "1+")
    eligible_leader_replicas: tuple[int, ...] | None = array(int32, "2+", nullable="2+", default=None, tag=1)
    last_known_elr: tuple[int, ...] | None = array(int32, "2+", nullable="2+", default=None, tag=2)


class ConfigRecord(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")


class PartitionChangeRecord(Struct):
    partition_id: int = int32(default=-1)
    topic_id: UUID = uuid()
    isr: tuple[int, ...] | None = array(int32, nullable="0+", default=None, tag=0)
    leader: int = int32(default=-2, tag=1)
    replicas: tuple[int, ...] | None = array(int32, nullable="0+", default=None, tag=2)
    removing_replicas: tuple[int, ...] | None = array(int32, nullable="0+", default=None, tag=3)
    adding_replicas: tuple[int, ...] | None = array(int32, nullable="0+", default=None, tag=4)
    leader_recovery_state: int = int8(default=-1, tag=5)
    directories: tuple[UUID, ...] | None = array(uuid, "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: tuple[int, ...] | None = array(int32, "2+", nullable="2+", default=None, tag=6)
    last_known_elr: tuple[int, ...] | None = array(int32, "2+", nullable="2+", default=None, tag=7)


class FenceBrokerRecord(Struct):
    id: int = int32()
    epoch: int = int64()


class UnfenceBrokerRecord(Struct):
    id: int = int32()
    epoch: int = int64()


class RemoveTopicRecord(Struct):
    topic_id: UUID = uuid()


class UserScramCredentialRecord(Struct):
    name: str = string()
    mechanism: int = int8()
    salt: bytes = blob()
    stored_key: bytes = blob()
    server_key: bytes = blob()
    iterations: int = int32()


class RemoveUserScramCredentialRecord(Struct):
    name: str = string()
    mechanism: int = int8()


class FeatureLevelRecord(Struct):
    name: str = string()
    feature_level: int = int16()


class EntityData(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ClientQuotaRecord(Struct):
    entity: tuple[EntityData, ...] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class ProducerIdsRecord(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


class BrokerRegistrationChangeRecord(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: tuple[UUID, ...] = array(uuid, "2+", tag=2)
    cordoned_log_dirs: tuple[UUID, ...] | None = array(uuid, "3+", nullable="3+", default=None, tag=3)


class AccessControlEntryRecord(Struct):
    id: UUID = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Struct):
    id: UUID = uuid()


class NoOpRecord(Struct):
    pass


class BeginTransactionRecord(Struct):
    name: str | None = string(nullable="0+", default=None, tag=0)


class EndTransactionRecord(Struct):
    pass


class AbortTransactionRecord(Struct):
    reason: str | None = string(nullable="0+", default=None, tag=0)


_FRAME_VERSION: Final = 1

METADATA_RECORDS: Final[dict[int, tuple[type[Struct], int]]] = {
    0: (RegisterBrokerRecord, 4),
    1: (UnregisterBrokerRecord, 0),
    2: (TopicRecord, 0),
    3: (PartitionRecord, 2),
    4: (ConfigRecord, 0),
    5: (PartitionChangeRecord, 2),
    7: (FenceBrokerRecord, 0),
    8: (UnfenceBrokerRecord, 0),
    9: (RemoveTopicRecord, 0),
    11: (UserScramCredentialRecord, 0),
    12: (FeatureLevelRecord, 0),
    14: (ClientQuotaRecord, 0),
    15: (ProducerIdsRecord, 0),
    17: (BrokerRegistrationChangeRecord, 3),
    18: (AccessControlEntryRecord, 0),
    19: (RemoveAccessControlEntryRecord, 0),
    20: (NoOpRecord, 0),
    22: (RemoveUserScramCredentialRecord, 0),
    23: (BeginTransactionRecord, 0),
    24: (EndTransactionRecord, 0),
    25: (AbortTransactionRecord, 0),
}
"""The class and the newest version of each type. All versions are flexible."""

_TYPES: Final = {of: number for number, (of, _) in METADATA_RECORDS.items()}


def encode_metadata_record(record: Struct, version: int | None = None) -> bytes:
    """The record's value, in its newest version unless another is asked for."""
    number = _TYPES[type(record)]
    if version is None:
        version = METADATA_RECORDS[number][1]
    head = unsigned_varint(_FRAME_VERSION) + unsigned_varint(number) + unsigned_varint(version)
    return head + encode(record, version=version, flexible=True)


def decode_metadata_record(data: bytes | memoryview) -> Struct | None:
    """The record; None if it is of a type not known here."""
    position = 0
    try:
        frame, position = read_uvarint(data, position)
        number, position = read_uvarint(data, position)
        version, position = read_uvarint(data, position)
    except (IndexError, ValueError):
        raise Malformed("metadata record", "type", position, "ends early") from None
    if frame != _FRAME_VERSION:
        raise Malformed("metadata record", "frame version", 0, f"is {frame}, not {_FRAME_VERSION}")
    if number not in METADATA_RECORDS:
        return None
    of, newest = METADATA_RECORDS[number]
    if version > newest:
        raise UnsupportedVersion(number, of.__name__, version, 0, newest)
    return decode(of, data, version=version, flexible=True, position=position)[0]
