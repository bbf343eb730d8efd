"""Positions translated through pipelines."""

from __future__ import annotations

from headwater.positions import Coverage, Position
from headwater.views.coverage import CoverageIndex


def at(topic: str, *offsets: int) -> Position:
    return Position({(topic, partition): offset for partition, offset in enumerate(offsets)})


def index(*coverages: Coverage) -> CoverageIndex:
    found = CoverageIndex()
    for coverage in coverages:
        found.add(coverage)
    return found


def test_a_position_in_the_views_own_topics_is_itself() -> None:
    assert index().translate(at("a", 5, 7), ["a", "b"]) == at("a", 5, 7)


def test_the_first_batch_that_covers_it_counts_with_what_was_written_before() -> None:
    found = index(
        Coverage("q", 0, 1, 0, at("in", 10), Position({("out", 0): 3})),
        Coverage("q", 0, 1, 1, at("in", 20), Position({("out", 1): 4})),
        Coverage("q", 0, 1, 2, at("in", 30), Position({("out", 0): 9})),
    )
    assert found.translate(at("in", 5), ["out"]) == Position({("out", 0): 3})
    assert found.translate(at("in", 11), ["out"]) == Position({("out", 0): 3, ("out", 1): 4})
    assert found.translate(at("in", 30), ["out"]) == Position({("out", 0): 9, ("out", 1): 4})
    assert found.translate(at("in", 31), ["out"]) is None


def test_every_task_must_have_got_there() -> None:
    found = index(Coverage("q", 0, 2, 0, at("in", 10), Position({("out", 0): 3})))
    assert found.translate(at("in", 5), ["out"]) is None
    found.add(Coverage("q", 1, 2, 0, at("in", 10), Position({("out", 1): 2})))
    assert found.translate(at("in", 5), ["out"]) == at("out", 3, 2)


def test_a_batch_that_wrote_nothing_covers_its_input_all_the_same() -> None:
    assert index(
        Coverage("q", 0, 1, 0, at("in", 10), at("out", 3)), Coverage("q", 0, 1, 1, at("in", 20), Position())
    ).translate(at("in", 15), ["out"]) == at("out", 3)


def test_positions_go_through_several_stages() -> None:
    found = index(
        Coverage("first", 0, 1, 0, at("in", 10), at("middle", 4)),
        Coverage("second", 0, 1, 0, at("middle", 3), at("out", 1)),
    )
    assert found.translate(at("in", 10), ["out"]) is None
    found.add(Coverage("second", 0, 1, 1, at("middle", 4), at("out", 2)))
    assert found.translate(at("in", 10), ["out"]) == at("out", 2)


def test_a_vector_over_followed_and_derived_topics_is_covered_in_all_of_them() -> None:
    found = index(Coverage("q", 0, 1, 0, at("in", 10), at("out", 3)))
    token = at("in", 10).merge(at("own", 7))
    assert found.translate(token, ["out", "own"]) == at("out", 3).merge(at("own", 7))


def test_several_pipelines_between_must_all_have_got_there() -> None:
    found = index(
        Coverage("left", 0, 1, 0, at("in", 10), at("a", 3)), Coverage("right", 0, 1, 0, at("in", 5), at("b", 2))
    )
    assert found.translate(at("in", 5), ["a", "b"]) == at("a", 3).merge(at("b", 2))
    assert found.translate(at("in", 10), ["a", "b"]) is None
    assert found.translate(at("in", 10), ["a"]) == at("a", 3)


def test_an_unrelated_topic_is_not_guessed_at() -> None:
    assert index(Coverage("q", 0, 1, 0, at("in", 10), at("out", 3))).translate(at("other", 1), ["out"]) is None


def test_queries_in_a_circle_end() -> None:
    found = index(Coverage("a", 0, 1, 0, at("x", 10), at("y", 3)), Coverage("b", 0, 1, 0, at("y", 10), at("x", 3)))
    assert found.translate(at("x", 1), ["out"]) is None
