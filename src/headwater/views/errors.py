"""What can go wrong with a view.

BadView            (BadInput)           the definition, or a question to the view, cannot be accepted
RecordRefused      (BadInput)           a record cannot become a row: it goes to the dead letters, or stops the view
NotCovered         (EnvironmentFailed)  the view did not reach the position asked for in time
StoreUnavailable   (EnvironmentFailed)  the store or the log does not answer: the follower tries again
RecordsLost        (EnvironmentFailed)  the log no longer has what the view has not read: rebuild it
Fenced             (HeadwaterError)     a newer follower of the same view has taken over: this one ends
"""

from __future__ import annotations

from headwater.errors import BadInput, EnvironmentFailed, HeadwaterError

__all__ = ["BadView", "Fenced", "NotCovered", "RecordRefused", "RecordsLost", "StoreUnavailable"]


class BadView(BadInput):
    """A definition, or a question to a view, that cannot be accepted."""


class RecordRefused(BadInput):
    """A record, or a row for the store, that cannot be taken."""


class NotCovered(EnvironmentFailed):
    """The view did not reach a position within the time given."""


class StoreUnavailable(EnvironmentFailed):
    """The store or the log does not answer."""


class RecordsLost(EnvironmentFailed):
    """Retention removed records that the view had not read."""


class Fenced(HeadwaterError):
    """A newer follower of the same view and version writes now."""
