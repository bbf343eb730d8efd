"""The vectorised keyed-state operator: every custom operator of the pipeline is built on it.

`operator` is the protocol, `state` what a step sees, `partition` the versions of one partition's state, `stateful`
applies an operator to a stream. All but `spark` and `workers` run without Spark.
"""

from typing import TYPE_CHECKING, Any

from headwater.pipeline.stateful.operator import Batch, Groups, Operator, Time
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.state import Rows, State, StateTable

if TYPE_CHECKING:
    from headwater.pipeline.stateful.apply import stateful
    from headwater.pipeline.stateful.plan import StatefulKeywords

__all__ = [
    "Batch",
    "Column",
    "Groups",
    "Operator",
    "Rows",
    "State",
    "StateTable",
    "StatefulKeywords",
    "TableSpec",
    "Time",
    "stateful",
]

_LATE = {"stateful": "headwater.pipeline.stateful.apply", "StatefulKeywords": "headwater.pipeline.stateful.plan"}


def __getattr__(name: str) -> Any:
    """`stateful` is imported when it is asked for: it stands on `time`, which stands on this package's other parts."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATE[name]), name)
