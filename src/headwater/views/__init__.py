"""Followers of the log into derived stores, each exactly once, each able to say how far it has got.

Definition   what a view is          View        how it is read: `read`, `get`, with `at_least=token`
create, rebuild, swap, drop, status  its life    ViewsRunner  follows views until stopped
"""

from headwater.views.captured import token_of_commit
from headwater.views.declared import declare, find_definition, load_definitions
from headwater.views.definition import Definition
from headwater.views.errors import BadView, Fenced, NotCovered, RecordRefused, RecordsLost, StoreUnavailable
from headwater.views.feed import Change, ChangeFeed
from headwater.views.follower import Follower
from headwater.views.letters import read_dead_letters, replay_dead_letters
from headwater.views.manage import Progress, VersionStatus, create, drop, rebuild, status, swap
from headwater.views.running import ViewsRunner
from headwater.views.view import Answer, View

__all__ = [
    "Answer",
    "BadView",
    "Change",
    "ChangeFeed",
    "Definition",
    "Fenced",
    "Follower",
    "NotCovered",
    "Progress",
    "RecordRefused",
    "RecordsLost",
    "StoreUnavailable",
    "VersionStatus",
    "View",
    "ViewsRunner",
    "create",
    "declare",
    "drop",
    "find_definition",
    "load_definitions",
    "read_dead_letters",
    "rebuild",
    "replay_dead_letters",
    "status",
    "swap",
    "token_of_commit",
]
