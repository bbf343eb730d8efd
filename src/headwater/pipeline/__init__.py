"""Stream processing on Spark, as functions from DataFrame to DataFrame.

The names below are imported on first use, so that a definition pays only for what it says.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.pipeline.batches import into_database as into_database
    from headwater.pipeline.batches import into_delta as into_delta
    from headwater.pipeline.formats import Avro as Avro
    from headwater.pipeline.formats import Binary as Binary
    from headwater.pipeline.formats import Debezium as Debezium
    from headwater.pipeline.formats import Format as Format
    from headwater.pipeline.formats import Json as Json
    from headwater.pipeline.formats import Protobuf as Protobuf
    from headwater.pipeline.formats import Registry as Registry
    from headwater.pipeline.formats import Text as Text
    from headwater.pipeline.records import to_records as to_records
    from headwater.pipeline.sessions import prepare_session as prepare_session
    from headwater.pipeline.sessions import session as session
    from headwater.pipeline.sessions import ship_package as ship_package
    from headwater.pipeline.stateful.reading import read_state as read_state
    from headwater.pipeline.stateful.reading import repartition_state as repartition_state
    from headwater.pipeline.time import device_time as device_time
    from headwater.pipeline.time import event_time as event_time
    from headwater.pipeline.time import processing_time as processing_time
    from headwater.pipeline.topics import topic as topic
    from headwater.pipeline.watching import watch as watch
    from headwater.pipeline.writing import split_bad as split_bad
    from headwater.pipeline.writing import write_topic as write_topic

# public name -> the module that defines it
_EXPORTS = {
    "Avro": "headwater.pipeline.formats",
    "Binary": "headwater.pipeline.formats",
    "Debezium": "headwater.pipeline.formats",
    "Format": "headwater.pipeline.formats",
    "Json": "headwater.pipeline.formats",
    "Protobuf": "headwater.pipeline.formats",
    "Registry": "headwater.pipeline.formats",
    "Text": "headwater.pipeline.formats",
    "device_time": "headwater.pipeline.time",
    "event_time": "headwater.pipeline.time",
    "into_database": "headwater.pipeline.batches",
    "into_delta": "headwater.pipeline.batches",
    "prepare_session": "headwater.pipeline.sessions",
    "processing_time": "headwater.pipeline.time",
    "read_state": "headwater.pipeline.stateful.reading",
    "repartition_state": "headwater.pipeline.stateful.reading",
    "session": "headwater.pipeline.sessions",
    "ship_package": "headwater.pipeline.sessions",
    "split_bad": "headwater.pipeline.writing",
    "to_records": "headwater.pipeline.records",
    "topic": "headwater.pipeline.topics",
    "watch": "headwater.pipeline.watching",
    "write_topic": "headwater.pipeline.writing",
}

__all__ = [
    "Avro",
    "Binary",
    "Debezium",
    "Format",
    "Json",
    "Protobuf",
    "Registry",
    "Text",
    "device_time",
    "event_time",
    "into_database",
    "into_delta",
    "prepare_session",
    "processing_time",
    "read_state",
    "repartition_state",
    "session",
    "ship_package",
    "split_bad",
    "to_records",
    "topic",
    "watch",
    "write_topic",
]


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'headwater.pipeline' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
