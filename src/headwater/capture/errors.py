"""What can go wrong between a database and the log; every message says what to do.

CaptureError (EnvironmentFailed)
├── SourceLost           the database connection broke or refused: tried again, from the stored position
│   └── DecodingFailed   the database failed to decode its own log: tried again, committed transactions only
├── LogUnavailable       the log did not take the records: tried again, from the stored position
├── Fenced               another capture with the same name has taken over: stops for good
├── GapDetected          the database can no longer give what comes after our position: stops for good
└── WalLimitReached      the database keeps more log for us than the user allowed: stops for good
"""

from __future__ import annotations

from headwater.errors import EnvironmentFailed

__all__ = [
    "CaptureError",
    "DecodingFailed",
    "Fenced",
    "GapDetected",
    "LogUnavailable",
    "SourceLost",
    "WalLimitReached",
]


class CaptureError(EnvironmentFailed):
    """Base of what stops or interrupts a capture."""


class SourceLost(CaptureError):
    """The database went away or refused; the capture connects again and goes on from its stored position."""


class DecodingFailed(SourceLost):
    """The database reported an internal error while decoding its log."""


class LogUnavailable(CaptureError):
    """The log did not take the records; the capture goes on from its stored position."""


class Fenced(CaptureError):
    """A newer capture with the same name owns the stream now."""


class GapDetected(CaptureError):
    """Changes after our position are gone from the database's log: resuming would silently lose them."""


class WalLimitReached(CaptureError):
    """The log that the database keeps for this capture passed the limit that the user set."""
