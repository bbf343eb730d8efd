"""Who runs a pipeline: Spark, or the harness that tests it without Spark.

The functions of a pipeline take a DataFrame, or anything with a method `headwater_engine()`, such as the streams of
`headwater.testing.streams`. They say what they want of the input's engine, and nothing in them is Spark's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.pipeline.stateful.plan import Plan
    from headwater.pipeline.time.clocks import DeviceClock
    from headwater.pipeline.time.settings import TimeColumns, TimeSettings

__all__ = ["Engine", "engine_of"]


class Engine(Protocol):
    """What pipelines need of whatever runs them; `stream` is a DataFrame or its stand-in."""

    def schema(self, stream: Any) -> pa.Schema:
        """The stream's columns."""
        ...

    def time(self, stream: Any) -> TimeSettings | None:
        """How the stream keeps time; None when it carries none."""
        ...

    def partitions(self, stream: Any) -> int:
        """The number of partitions of an operator that does not say."""
        ...

    def keeps_state(self, stream: Any) -> bool:
        """Whether state outlives a run, so that it needs a checkpoint."""
        ...

    def stateful(self, plan: Plan, inputs: Mapping[str, Any]) -> Any:
        """The operator's output."""
        ...

    def timed(self, stream: Any, columns: TimeColumns, settings: TimeSettings) -> Any:
        """The stream with the columns that carry time."""
        ...

    def device_time(self, stream: Any, clock: DeviceClock) -> Any:
        """The stream with its devices' times corrected."""
        ...


def engine_of(stream: Any) -> Engine:
    """The engine of a DataFrame or a stand-in."""
    own = getattr(type(stream), "headwater_engine", None)
    if own is not None:
        return cast("Engine", own(stream))
    from headwater.pipeline.stateful.spark import SparkEngine

    return SparkEngine()
