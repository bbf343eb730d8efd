"""What can go wrong with state. Mistakes in a definition are `headwater.pipeline.errors`."""

from __future__ import annotations

from headwater.errors import BadInput, Corrupted, EnvironmentFailed, InvariantViolated

__all__ = [
    "CorruptStateFile",
    "KeyTooLong",
    "StateFull",
    "StateLost",
    "StateMismatch",
    "StepError",
]


class KeyTooLong(BadInput):
    """A key whose encoding does not fit the store."""


class StateMismatch(BadInput):
    """The state on disk belongs to another query, operator, schema or number of partitions."""


class StepError(InvariantViolated):
    """An operator's step broke the rules: wrong output schema, wrong number of rows."""


class StateFull(EnvironmentFailed):
    """The local store reached its bound."""


class StateLost(InvariantViolated):
    """The versions needed to rebuild a state are not there any more."""


class CorruptStateFile(Corrupted):
    """A changelog or snapshot whose bytes are not the ones written; it is never applied."""
