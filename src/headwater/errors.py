"""The errors a user of headwater can meet, as one tree.

    HeadwaterError
    ├── BadInput             theirs: bytes, options or arguments that cannot be accepted
    │   └── SettingError     a setting that is unknown, of the wrong type or out of range
    ├── EnvironmentFailed    the machine's: disk, network, a process or tool that is missing
    └── InvariantViolated    ours: a promise of this code did not hold; the part concerned stops
        └── Corrupted        bytes on disk that are not what was written

Packages add their own leaves below these (`wire`, `log`, `capture` ...). Every message says what is wrong,
where, and what to do next.
"""

from __future__ import annotations


class HeadwaterError(Exception):
    """Base of every error that headwater raises on purpose."""


class BadInput(HeadwaterError):
    """The caller's bytes, options or arguments cannot be accepted."""


class SettingError(BadInput):
    """A setting is unknown, has the wrong type or is out of range."""


class EnvironmentFailed(HeadwaterError):
    """The machine did not do its part: disk, network, a missing program."""


class InvariantViolated(HeadwaterError):
    """A promise of headwater's own code did not hold."""


class Corrupted(InvariantViolated):
    """Bytes on disk are not the bytes that were written."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} is corrupt at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.reason = reason
