"""Regular expressions over topic names, matched in time linear in the name: no client's pattern stalls the broker.

KIP-848 has the broker resolve a member's pattern (Kafka uses RE2/J, which never backtracks). Here Python's parser reads
the pattern, and the part of it that describes a regular language is turned into a state machine: states that are
reached together are one state of a table that is filled in as names are seen. What is left out is what RE2 leaves out
too: back-references, look-around, atomic groups; they are refused when the member subscribes, like a syntax error.
The syntax is Python's: `\\pN`, `\\Q..\\E` and `[[:alpha:]]` of RE2 are not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import _constants as op  # type: ignore[attr-defined]  # the parser behind `re`: stable since 3.11
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from headwater.errors import BadInput

__all__ = ["PATTERN_LENGTH_MAX", "InvalidPattern", "TopicPattern"]

PATTERN_LENGTH_MAX = 4_096  # characters: generous beside topic names of at most 249
STATES_MAX = 20_000  # of the machine: `(a{100}){100}` and the like are refused, not unrolled
TABLE_ROWS_MAX = 2_000  # sets of states remembered; beyond that the table starts anew
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")

_EPSILON = 0  # edge that consumes nothing
_START = 1  # edge that may be taken at the beginning of the name only
_END = 2  # ... at its end only


class InvalidPattern(BadInput):
    """Not a regular expression this broker can resolve."""


class TopicPattern:
    """A compiled pattern. `matches` is a match of the whole name."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise InvalidPattern(f"the pattern has {len(pattern)} characters, more than {PATTERN_LENGTH_MAX}")
        try:
            tree = parser.parse(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise InvalidPattern(f"{pattern!r}: {error}") from error
        self._flags: int = tree.state.flags
        self._moves: list[list[tuple[Any, int]]] = []  # consuming edges: (test of a character, target)
        self._free: list[list[tuple[int, int]]] = []  # edges that consume nothing: (kind, target)
        self._accept = self._state()
        try:
            self._first = self._build(tree, self._accept)
        except RecursionError as error:
            raise InvalidPattern(f"{pattern!r} is nested too deeply") from error
        self._table: dict[frozenset[int], dict[str, frozenset[int]]] = {}

    def matches(self, name: str) -> bool:
        states = self._reach((self._first,), at_start=True, at_end=not name)
        last = len(name) - 1
        for position, character in enumerate(name):
            states = self._step(states, character, at_end=position == last)
            if not states:
                return False
        return self._accept in states

    def _step(self, states: frozenset[int], character: str, *, at_end: bool) -> frozenset[int]:
        row = self._table.get(states)
        if row is None:
            if len(self._table) >= TABLE_ROWS_MAX:
                self._table.clear()
            row = self._table[states] = {}
        key = character + "$" if at_end else character
        reached = row.get(key)
        if reached is None:
            hit = [target for state in states for test, target in self._moves[state] if test(character)]
            reached = row[key] = self._reach(hit, at_start=False, at_end=at_end)
        return reached

    def _reach(self, states: Iterable[int], *, at_start: bool, at_end: bool) -> frozenset[int]:
        seen = set(states)
        todo = list(seen)
        while todo:
            for kind, target in self._free[todo.pop()]:
                allowed = kind == _EPSILON or (kind == _START and at_start) or (kind == _END and at_end)
                if allowed and target not in seen:
                    seen.add(target)
                    todo.append(target)
        return frozenset(seen)

    # -- building, back to front: each part is given the state that follows it

    def _state(self) -> int:
        if len(self._moves) >= STATES_MAX:
            raise InvalidPattern(f"the pattern needs more than {STATES_MAX} states")
        self._moves.append([])
        self._free.append([])
        return len(self._moves) - 1

    def _build(self, parts: Iterable[tuple[Any, Any]], following: int) -> int:
        for code, argument in reversed(list(parts)):
            following = self._part(code, argument, following)
        return following

    def _part(self, code: Any, argument: Any, following: int) -> int:
        if code in (op.MAX_REPEAT, op.MIN_REPEAT):  # greedy or not is the same for a whole match
            least, most, parts = argument
            return self._repeat(least, most, parts, following)
        if code is op.BRANCH:
            return self._choice([self._build(branch, following) for branch in argument[1]])
        if code is op.SUBPATTERN:
            _, add, remove, parts = argument
            if add or remove:
                raise InvalidPattern("flags inside a group are not supported")
            return self._build(parts, following)
        if code is op.AT:
            return self._anchor(argument, following)
        test = self._test(code, argument)
        state = self._state()
        self._moves[state].append((test, following))
        return state

    def _choice(self, targets: list[int]) -> int:
        state = self._state()
        self._free[state] = [(_EPSILON, target) for target in targets]
        return state

    def _anchor(self, where: Any, following: int) -> int:
        kinds = {op.AT_BEGINNING: _START, op.AT_BEGINNING_STRING: _START, op.AT_END: _END, op.AT_END_STRING: _END}
        if where not in kinds:
            raise InvalidPattern("word boundaries are not supported")
        state = self._state()
        self._free[state] = [(kinds[where], following)]
        return state

    def _repeat(self, least: int, most: int, parts: Any, following: int) -> int:
        if most is op.MAXREPEAT:
            loop = self._state()
            self._free[loop] = [(_EPSILON, self._build(parts, loop)), (_EPSILON, following)]
            following = loop
        else:
            end = following
            for _ in range(most - least):
                following = self._choice([self._build(parts, following), end])
        for _ in range(least):
            following = self._build(parts, following)
        return following

    def _test(self, code: Any, argument: Any) -> Any:
        if self._flags & re.IGNORECASE:
            sensitive = self._sensitive(code, argument)
            return lambda character: sensitive(character.lower()) or sensitive(character.upper())
        return self._sensitive(code, argument)

    def _sensitive(self, code: Any, argument: Any) -> Any:
        if code is op.LITERAL:
            return lambda character: ord(character) == argument
        if code is op.NOT_LITERAL:
            return lambda character: ord(character) != argument
        if code is op.ANY:
            return lambda character: True
        if code is op.RANGE:
            low, high = argument
            return lambda character: low <= ord(character) <= high
        if code is op.CATEGORY:
            return _category(argument)
        if code is op.IN:
            negated = argument[0][0] is op.NEGATE
            tests = [self._sensitive(*item) for item in argument[negated:]]
            return lambda character: any(test(character) for test in tests) is not negated
        raise InvalidPattern(f"{str(code).lower()} is not supported: it is not part of a regular language")


def _category(which: Any) -> Any:
    """ASCII, as in RE2: topic names have nothing else."""
    known = {
        op.CATEGORY_DIGIT: lambda character: "0" <= character <= "9",
        op.CATEGORY_NOT_DIGIT: lambda character: not "0" <= character <= "9",
        op.CATEGORY_SPACE: str.isspace,
        op.CATEGORY_NOT_SPACE: lambda character: not character.isspace(),
        op.CATEGORY_WORD: _WORD.__contains__,
        op.CATEGORY_NOT_WORD: lambda character: character not in _WORD,
    }
    return known[which]
