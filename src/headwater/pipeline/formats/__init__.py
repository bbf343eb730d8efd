"""How the bytes of records become columns: text, JSON, Avro, Protobuf, Debezium's envelopes, schema registries.

`base` says what a format is. JSON, text and Debezium's JSON are Spark's own expressions; Avro and Protobuf are decoded
a batch at a time in Python workers.
"""

from headwater.pipeline.formats.avro import Avro
from headwater.pipeline.formats.base import Format
from headwater.pipeline.formats.debezium import Debezium
from headwater.pipeline.formats.json import Json
from headwater.pipeline.formats.plain import Binary, Text
from headwater.pipeline.formats.protobuf import Protobuf
from headwater.pipeline.formats.registry import Registry

__all__ = ["Avro", "Binary", "Debezium", "Format", "Json", "Protobuf", "Registry", "Text"]
