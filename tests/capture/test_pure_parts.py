"""Types, arrays, times, visibility, progress: pure functions against independent answers."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture.envelope import row_template
from headwater.capture.pg_arrays import array_of
from headwater.capture.pg_copy import copy_values
from headwater.capture.pg_times import date_days, timestamp_us, zoned_time, zoned_timestamp
from headwater.capture.pg_types import TypeInfo, codec_of, two_complement
from headwater.capture.pg_visibility import ChangeLog, Visibility
from headwater.capture.progress import Progress
from headwater.capture.schema import STRING

EPOCH = date(1970, 1, 1)


@given(st.dates())
def test_days_are_those_of_the_calendar(day: date) -> None:
    assert int(date_days(day.isoformat().encode())) == (day - EPOCH).days


@given(st.datetimes())
def test_timestamps_are_microseconds(moment: datetime) -> None:
    text = moment.isoformat(sep=" ").encode()
    assert int(timestamp_us(text)) == (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)


@given(st.datetimes(timezones=st.just(UTC)))
def test_zoned_timestamps_read_back(moment: datetime) -> None:
    text = moment.isoformat(sep=" ").replace("+00:00", "+00").encode()
    shown = json.loads(zoned_timestamp(text))
    assert datetime.fromisoformat(shown) == moment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"0044-03-15 12:00:00+00 BC", "-0043-03-15T12:00:00.000000Z"),
        (b"12345-06-07 01:02:03.5+00", "+12345-06-07T01:02:03.500000Z"),
    ],
)
def test_zoned_timestamps_beyond_four_digits(text: bytes, expected: str) -> None:
    assert json.loads(zoned_timestamp(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [(b"23:30:00-01", "00:30:00Z"), (b"00:00:00+15:59:59", "08:00:01Z"), (b"24:00:00+00", "00:00:00Z")],
)
def test_zoned_times_wrap_around_midnight(text: bytes, expected: str) -> None:
    assert json.loads(zoned_time(text)) == expected


@given(st.integers())
def test_decimals_are_javas_big_integers(number: int) -> None:
    data = two_complement(number)
    assert int.from_bytes(data, "big", signed=True) == number
    shorter = data[1:]
    assert not shorter or int.from_bytes(shorter, "big", signed=True) != number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3))
def test_a_fixed_decimal_reads_back(value: Decimal) -> None:
    codec = codec_of(1, (20 << 16 | 3) + 4, {1: TypeInfo("numeric")})
    assert codec.convert is not None
    data = base64.b64decode(json.loads(codec.convert(f"{value:f}".encode())))
    assert int.from_bytes(data, "big", signed=True) == Fraction(value) * 1000  # exact, as Decimal is not


nested = st.recursive(
    st.lists(st.one_of(st.none(), st.text()), min_size=1, max_size=4),
    lambda inner: st.lists(inner, min_size=1, max_size=3),
    max_leaves=8,
)


def as_postgres(value: object) -> str:
    if isinstance(value, list):
        return "{" + ",".join(map(as_postgres, value)) + "}"
    if value is None:
        return "NULL"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


@given(nested)
def test_arrays_of_any_text_read_back(items: list[object]) -> None:
    convert = array_of(STRING).convert
    assert convert is not None
    assert json.loads(convert(as_postgres(items).encode())) == items


@given(st.lists(st.one_of(st.none(), st.text())))
def test_copied_rows_read_back(values: list[str | None]) -> None:
    def escaped(text: str | None) -> bytes:
        if text is None:
            return b"\\N"
        for character, letter in (
            ("\\", "\\"),
            ("\t", "t"),
            ("\n", "n"),
            ("\r", "r"),
            ("\b", "b"),
            ("\f", "f"),
            ("\v", "v"),
        ):
            text = text.replace(character, "\\" + letter)
        return text.encode()

    expected = [None if value is None else value.encode() for value in values] or [b""]
    assert copy_values(b"\t".join(map(escaped, values))) == expected


def convert(name: str, text: str) -> object:
    codec = codec_of(1, -1, {1: TypeInfo(name)})
    assert codec.convert is not None
    return json.loads(codec.convert(text.encode()))


def test_types_of_servers_that_the_tests_do_not_have() -> None:
    assert convert("xml", '<a b="c"/>') == '<a b="c"/>'
    assert json.loads(str(convert("hstore", '"a"=>"1", "b c"=>NULL, "q\\"\\\\"=>"x=>y, z"'))) == {
        "a": "1",
        "b c": None,
        'q"\\': "x=>y, z",
    }
    assert convert("ltree", "a.b") == "a.b"
    assert convert("citext", "Text") == "Text"
    assert convert("vector", "[1,2]") == "[1,2]"


def test_an_unknown_type_is_a_string() -> None:
    assert codec_of(99, -1, {}) is STRING


def test_a_template_leaves_hidden_columns_out() -> None:
    assert row_template(["a%", None, 'b"', None]) % (b"1", b"2", b"3", b"4") == b'{"a%":1,"b\\"":3}'
    assert row_template([None]) % (b"1",) == b"{}"
    assert row_template([]) % () == b"{}"


def test_a_snapshot_sees_what_committed_before_it() -> None:
    seen = Visibility.parse("10:20:12,15")
    assert [xid for xid in (9, 10, 12, 15, 19, 20, 25) if seen.sees(xid)] == [9, 10, 19]


def test_transaction_ids_wrap_around() -> None:
    """The stream has 32 bits of an id that has 64."""
    epoch = 3 << 32
    seen = Visibility.parse(f"{epoch + 5}:{epoch + 10}:{epoch + 7}")
    assert seen.sees(5)
    assert not seen.sees(7)
    assert seen.sees((1 << 32) - 3)  # of the epoch before
    assert not seen.sees(11)


def test_a_chunk_leaves_out_what_the_stream_has_newer() -> None:
    changes = ChangeLog()
    changes.watch(1)
    changes.transaction(100, 12)
    changes.note(1, b"a")
    changes.transaction(200, 15)
    changes.note(1, b"b")
    assert changes.stale(1, Visibility.parse("13:13:")) == {b"b"}
    assert changes.stale(1, Visibility.parse("20:20:")) == set()
    changes.transaction(300, 30)
    changes.note(1, None)
    assert changes.stale(1, Visibility.parse("20:20:")) is None


def test_a_chunk_is_read_again_when_too_much_changed_to_remember() -> None:
    changes = ChangeLog(keys_max=1)
    changes.watch(1)
    changes.transaction(100, 12)
    changes.note(1, b"a")
    changes.note(1, b"b")
    assert not changes.complete(1, Visibility.parse("12:12:"))
    assert changes.complete(1, Visibility.parse("13:13:"))


def test_a_restart_begins_before_what_no_chunk_has_seen() -> None:
    changes = ChangeLog()
    changes.watch(1)
    changes.transaction(100, 12)
    changes.transaction(200, 13)
    assert changes.oldest() == 100
    changes.seen(Visibility.parse("13:13:"))
    assert changes.oldest() == 200
    changes.unwatch(1)
    assert changes.oldest() is None


def test_progress_estimates_from_this_runs_speed() -> None:
    progress = Progress(total=1000, rows=400, started=10.0)
    assert progress.describe(10.0)["eta_s"] is None
    progress.advance(500, 12.0)
    assert progress.describe(12.0) == {"rows": 500, "total": 1000, "percent": 50.0, "eta_s": 10.0, "done": False}
    progress.advance(1500, 20.0)
    assert progress.describe(20.0)["percent"] == 99.9  # the estimate was too low: never 100 before the end
    progress.finish(1500)
    assert progress.describe(20.0) == {"rows": 1500, "total": 1500, "percent": 100.0, "eta_s": 0.0, "done": True}
