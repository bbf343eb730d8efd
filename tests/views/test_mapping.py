"""From the rows of a changelog to the rows of a view."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.views.errors import BadView, RecordRefused
from headwater.views.expressions import compile_expression
from headwater.views.mapping import RowMapping

ROW = {"id": 1, "name": "Ada", "address": {"city": "Paris", "geo": {"lat": 48.8}}, "tags": ["a"]}


def mapped(row: dict[str, Any], **steps: Any) -> Any:
    return RowMapping(**steps).compile("v")([row])[0]


def test_steps_run_in_their_documented_order() -> None:
    row = mapped(
        ROW,
        flatten=True,
        filter="address_city == 'Paris'",
        compute={"upper": "upper(name)", "both": "upper + '-' + address_city"},
        rename={"both": "label"},
        select=["id", "label", "absent"],
        function=lambda rows: [{**row, "n": len(rows)} for row in rows],
    )
    assert row == {"id": 1, "label": "ADA-Paris", "absent": None, "n": 1}


def test_flattening_names_columns_by_their_path() -> None:
    assert mapped(ROW, flatten=True) == {
        "id": 1,
        "name": "Ada",
        "address_city": "Paris",
        "address_geo_lat": 48.8,
        "tags": ["a"],
    }


def test_a_function_leaves_rows_out_and_sees_only_those_that_are_in() -> None:
    seen: list[int] = []

    def odd(rows: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
        seen.extend(row["n"] for row in rows)
        return [row if row["n"] % 2 else None for row in rows]

    apply = RowMapping(filter="n > 1", function=odd).compile("v")
    assert apply([{"n": 1}, {"n": 2}, {"n": 3}]) == [None, None, {"n": 3}]
    assert seen == [2, 3]


def test_a_function_that_fails_or_loses_rows_refuses_them() -> None:
    with pytest.raises(RecordRefused, match="ZeroDivisionError"):
        mapped({"n": 0}, function=lambda rows: [{"x": 1 / row["n"]} for row in rows])
    with pytest.raises(RecordRefused, match="0 rows of 1"):
        mapped({"n": 0}, function=lambda rows: [])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n + 1", 4),
        ("missing is None", True),
        ("coalesce(missing, name)", "Ada"),
        ("name in ('Ada', 'Bob') and not flag", True),
        ("nested['a'][0]", 7),
        ("'big' if n > 2 else 'small'", "big"),
        ("f'{name}-{n}'", "Ada-3"),
        ("lower(name)", "ada"),
    ],
)
def test_expressions(text: str, value: Any) -> None:
    row = {"n": 3, "name": "Ada", "flag": False, "nested": {"a": [7]}}
    assert compile_expression(text, "test")(row) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "name.upper()",
        "(lambda: 1)()",
        "[x for x in y]",
        "2 ** 10",
        "'x' * 1000000000",
        "'%999999999d' % 1",
        "f'{n:>999999999}'",
        "open('f')",
        "a; b",
        "",
        "x" * 5_000,
    ],
)
def test_what_is_no_expression_is_refused_when_the_view_is_defined(text: str) -> None:
    with pytest.raises(BadView):
        compile_expression(text, "test")


def test_an_expression_that_fails_refuses_the_row() -> None:
    with pytest.raises(RecordRefused, match="TypeError"):
        compile_expression("n > 1", "test")({"n": None})
