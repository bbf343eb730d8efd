"""What can go wrong at the ends of a pipeline: leaves of headwater's error tree.

`DefinitionError` is raised while a pipeline is written down, before anything runs, as Spark raises AnalysisException:
it names the column, type or option, what there is instead, and what to do.
"""

from __future__ import annotations

from headwater.errors import BadInput, EnvironmentFailed

__all__ = [
    "BadOption",
    "CheckpointConflict",
    "DefinitionError",
    "JarsMissing",
    "RegistryFailed",
    "UnknownColumn",
    "WriteFailed",
    "WrongType",
]


class DefinitionError(BadInput):
    """A pipeline that cannot run as it was written down."""


class UnknownColumn(DefinitionError):
    """A column that the DataFrame does not have."""

    def __init__(self, column: str, columns: list[str], where: str) -> None:
        super().__init__(f"{where}: there is no column {column!r}; the DataFrame has {', '.join(columns) or 'none'}")
        self.column = column


class WrongType(DefinitionError):
    """A column whose type does not fit."""

    def __init__(self, column: str, found: str, wanted: str, where: str) -> None:
        super().__init__(f"{where}: column {column!r} is {found}, but it must be {wanted}; cast or convert it first")
        self.column = column


class BadOption(DefinitionError):
    """An option that is missing, unknown or out of range."""


class JarsMissing(EnvironmentFailed):
    """Spark's Kafka connector is not on this machine, or is not what it should be."""


class CheckpointConflict(BadInput):
    """A checkpoint and what was already written under the query's name contradict each other."""


class WriteFailed(EnvironmentFailed):
    """The broker did not take a batch; nothing of it is visible to committed readers."""


class RegistryFailed(EnvironmentFailed):
    """A schema registry does not answer, or refuses to."""
