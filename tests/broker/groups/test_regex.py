"""Regular expressions over topic names: Python's meaning, linear time, refusals."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.groups.regex import InvalidPattern, TopicPattern

PATTERNS = (
    ".*",
    "abc",
    "a|b",
    "^abc.*$",
    "[a-c]+x?",
    "(ab)*c{2,3}",
    "[^a]b",
    r"\w+-\d+",
    r"[\w-]+\D",
    "(a|b)+?c",
    "a{0,2}",
    "(?i)AbC",
    "(a*)*b",
    "",
    "x(?:yz)+",
    "^$",
    "a.c",
    "a$|^b",
)


@pytest.mark.parametrize("pattern", PATTERNS)
@given(name=st.text("abcxyz-19A", max_size=8))
def test_it_matches_whole_names_as_python_does(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name) == bool(re.fullmatch(pattern, name))


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "[",
        "*a",
        r"(a)\1",
        "(?=a)",
        "(?<!a)b",
        "(?>a)",
        "a++",
        r"\bword",
        "(?i:a)b",
        "(a{100}){100}{100}",
        "a" * 5_000,
    ],
)
def test_what_is_no_regular_expression_of_a_regular_language_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        TopicPattern(pattern)


def test_a_pattern_that_makes_backtracking_explode_takes_linear_time() -> None:
    pattern = TopicPattern("(a+)+b")
    started = time.thread_time()
    assert not pattern.matches("a" * 249)
    assert time.thread_time() - started < 1.0  # s of this thread's own, however busy the machine
