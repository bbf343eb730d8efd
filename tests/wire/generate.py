"""Valid messages of every API and version, made from the tables that the codec is made from.

`rng` is any `random.Random`: a seeded one for volume, Hypothesis' `st.randoms()` to have a failure made small.
"""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from headwater.wire.apis import APIS, Api
from headwater.wire.batches import Record, encode_batch
from headwater.wire.errors import ErrorCode
from headwater.wire.fields import ZERO_UUID, Struct
from headwater.wire.frames import RequestHeader, encode_request, encode_response
from headwater.wire.layout import Slot, element, layout

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
YEAR_2200_MS = 7_258_118_400_000
STRINGS = ("", "a", "topic-1", "größe ✓ 🌊", "x" * 126, "x" * 127, "y" * 128, "z" * 300)
ERROR_CODES = tuple(int(code) for code in ErrorCode)
BATCH = encode_batch([Record(key=b"k", value=b"v" * 50, timestamp=1), Record(value=None, timestamp=2)])
BYTES = (b"", b"\0", b"bytes", b"b" * 127, b"c" * 2000)


def every_version() -> list[tuple[Api, int]]:
    """Each API with each version that can be decoded."""
    return [(api, v) for api in APIS.values() for v in range(api.max_version + 1) if api.supports(v)]


def random_request(api_key: int, version: int, rng: random.Random) -> Any:
    """A request that the version can carry whole."""
    api = APIS[api_key]
    return random_message(api.request, version, api.flexible(version), rng)


def random_response(api_key: int, version: int, rng: random.Random) -> Any:
    """A response that the version can carry whole."""
    api = APIS[api_key]
    return random_message(api.response, version, api.flexible(version), rng)


def random_request_frame(rng: random.Random, api_key: int | None = None) -> bytes:
    """A whole request as it is sent, its size first; of any API and version unless one is asked for."""
    api = APIS[api_key if api_key is not None else rng.choice(list(APIS))]
    version = rng.choice([v for v in range(api.max_version + 1) if api.supports(v)])
    header = RequestHeader(api.key, version, rng.randrange(2**31), rng.choice((None, *STRINGS)))
    return b"".join(bytes(chunk) for chunk in encode_request(header, random_request(api.key, version, rng)))


def random_response_frame(header: RequestHeader, rng: random.Random) -> bytes:
    """A whole response to a request with this header, its size first."""
    response = random_response(header.api_key, header.api_version, rng)
    return b"".join(bytes(chunk) for chunk in encode_response(header, response))


def random_message(of: type[Struct], version: int, flexible: bool, rng: random.Random) -> Any:
    """Values for the fields that travel in this version; the others keep their defaults."""
    shape = layout(of, version, flexible)
    values = {slot.name: _value(slot, version, flexible, rng) for slot in shape.plain}
    for slot in shape.tagged:
        if rng.random() < 0.5:
            values[slot.name] = _value(slot, version, flexible, rng)
    return of(**values)


def _value(slot: Slot, version: int, flexible: bool, rng: random.Random) -> Any:  # noqa: PLR0911
    if slot.nullable and rng.random() < 0.25:
        return None
    match slot.kind:
        case "boolean":
            return rng.random() < 0.5
        case "float64":
            return rng.choice((0.0, -1.5, 1e300, rng.random()))
        case "uuid":
            return ZERO_UUID if rng.random() < 0.25 else UUID(int=rng.randrange(2**128))
        case "string":
            return rng.choice(STRINGS)
        case "blob":
            return rng.choice(BYTES)
        case "records":
            return rng.choice((b"", BATCH, BATCH * 30))
        case "struct":
            return random_message(slot.of, version, flexible, rng)
        case "array":
            one = element(slot)
            count = rng.choice((0, 1, 2, 3)) if one.kind == "struct" else rng.choice((0, 1, 2, 126, 127, 128))
            return tuple(_value(one, version, flexible, rng) for _ in range(count))
        case _:
            return _integer(slot.name, slot.kind, rng)


def _integer(name: str, kind: str, rng: random.Random) -> int:
    low, high = INTEGERS[kind]
    if "error_code" in name and kind == "int16":
        return rng.choice(ERROR_CODES)
    if kind == "int64" and (name.endswith("_ms") or "timestamp" in name):
        unknown = 0 if name == "transaction_start_time_ms" else -1  # kio refuses what Kafka sends here
        return rng.choice((unknown, 0, rng.randrange(YEAR_2200_MS)))
    return rng.choice((low, high, 0, 1, rng.randint(low, high), max(low, -1)))
