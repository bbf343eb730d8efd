"""Headwater: one durable log in the middle; everything else follows it.

The names below are the package's front door. They are imported on first use, so that
`headwater start` does not pay for Spark, and a Spark job does not pay for the broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.broker.embedded import Broker as Broker
    from headwater.errors import HeadwaterError as HeadwaterError

__version__ = "0.1.0"

# public name -> the module that defines it
_EXPORTS = {
    "Broker": "headwater.broker.embedded",
    "HeadwaterError": "headwater.errors",
}

__all__ = ["Broker", "HeadwaterError", "__version__"]


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
