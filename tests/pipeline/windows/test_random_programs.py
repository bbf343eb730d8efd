"""Random windows over random rows with stragglers, in random batches: they leave what DuckDB says of all rows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.pipeline.windows.feeding import LAST, Feed, Row, accumulated, clock, interleaved

from headwater.pipeline import aggregates as agg
from headwater.pipeline.aggregates import Aggregate
from headwater.pipeline.stateful.operator import Operator
from headwater.pipeline.windows.definition import Words
from headwater.pipeline.windows.fixed import FixedWindows
from headwater.pipeline.windows.per_event import Sliding
from headwater.pipeline.windows.sessions import Sessions

COLUMNS = {"user": pa.string(), "who": pa.string(), "amount": pa.float64(), "row": pa.int64()}
SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # where windows are counted from

# name -> the aggregate, the same in SQL, and whether SQL has it over a RANGE
AGGREGATES: dict[str, tuple[Aggregate, str, bool]] = {
    "n": (agg.count(), "count(*)", True),
    "total": (agg.sum("amount"), "sum(amount)", True),
    "average": (agg.mean("amount"), "avg(amount)", True),
    "spread": (agg.stddev("amount"), "stddev_samp(amount)", True),
    "lowest": (agg.min("amount"), "min(amount)", True),
    "highest": (agg.max("amount"), "max(amount)", True),
    "people": (agg.count_distinct("who"), "count(distinct who)", True),
    "p90": (agg.percentile("amount", 0.9), "quantile_cont(amount, 0.9)", True),
    "best": (agg.top("amount", 2), "list(amount order by amount desc)[1:2]", False),
    "names": (agg.collect_set("who"), "list_sort(list(distinct who))", False),
}


@dataclass(frozen=True)
class Program:
    """A window, and the SQL of it over the table `given`, whose `t` are microseconds."""

    operator: Operator
    sql: str
    delay: int
    upserts: bool


def program(chance: random.Random) -> Program:
    kind = chance.choice(["tumbling", "hopping", "session", "sliding"])
    key = chance.choice([(), ("user",), ("user", "who")])
    size, hop = chance.randint(1, 40), chance.randint(1, 20)
    allowed = [name for name, (_, _, ranges) in AGGREGATES.items() if ranges or kind != "sliding"]
    names = sorted(chance.sample(allowed, chance.randint(1, 4)))
    made = {name: AGGREGATES[name][0] for name in names}
    sql = {name: AGGREGATES[name][1] for name in names}
    upserts = kind != "sliding" and chance.random() < 0.4
    words = Words(
        emit=chance.choice(["close", "change"]),
        output="upsert" if upserts else "changelog",
        late="correct",
        keep_closed="1 day",
    )
    operator: Operator
    if kind == "sliding":
        operator, query = Sliding(size, key=key, aggregates=made, words=words), sliding_sql(size, key, sql)
    elif kind == "session":
        operator, query = Sessions(size, key=key, aggregates=made, words=words), session_sql(size, key, sql)
    else:
        hop = size if kind == "tumbling" else hop
        operator = FixedWindows(kind, size, hop, key=key, aggregates=made, words=words)
        query = fixed_sql(size, hop, key, sql)
    return Program(operator, query, chance.randint(0, 20), upserts)


def fixed_sql(size: int, hop: int, key: tuple[str, ...], aggregates: dict[str, str]) -> str:
    h, s = hop * SECOND, size * SECOND
    starts = f"range((t - {s}) // {h} + 1, t // {h} + 1)"
    chosen = ", ".join([*key, f"w * {h} as s", f"w * {h} + {s} as e", *_named(aggregates)])
    return f"select {chosen} from (select *, unnest({starts}) as w from given) group by {', '.join([*key, 'w'])}"


def session_sql(gap: int, key: tuple[str, ...], aggregates: dict[str, str]) -> str:
    by = f"partition by {', '.join(key)}" if key else ""
    first = f"select *, coalesce(t - lag(t) over ({by} order by t) > {gap * SECOND}, true) as first from given"
    numbered = f"select *, sum(first::int) over ({by} order by t rows unbounded preceding) as w from ({first})"
    chosen = ", ".join([*key, "min(t) as s", f"max(t) + {gap * SECOND} as e", *_named(aggregates)])
    return f"select {chosen} from ({numbered}) group by {', '.join([*key, 'w'])}"


def sliding_sql(size: int, key: tuple[str, ...], aggregates: dict[str, str]) -> str:
    by = f"partition by {', '.join(key)}" if key else ""
    over = [f"{sql} over w as {name}" for name, sql in aggregates.items()]
    window = f"window w as ({by} order by t range between {size * SECOND} preceding and current row)"
    return f"select row, {', '.join(over)} from given {window}"


def _named(aggregates: dict[str, str]) -> list[str]:
    return [f"{sql} as {name}" for name, sql in aggregates.items()]


def rows_of(chance: random.Random) -> list[Row]:
    return [
        {
            "user": chance.choice(["ann", "bob"]),
            "who": chance.choice(["x", "y", "z"]),
            "amount": chance.randint(-50, 50) / 10,
            "row": number,
            "_time": clock("10:00") + timedelta(seconds=chance.randint(0, 240) / 2),
            "_producer": chance.choice(["p1", "p2"]),
        }
        for number in range(chance.randint(1, 60))
    ]


def by_duckdb(sql: str, rows: list[Row]) -> list[dict[str, Any]]:
    given = pa.Table.from_pylist([{**row, "t": _micros(row["_time"])} for row in rows])
    with duckdb.connect() as connection:
        connection.register("given", given)
        found = connection.execute(sql)
        names = [column[0] for column in found.description or []]
        return [dict(zip(names, one, strict=True)) for one in found.fetchall()]


def _micros(at: Any) -> int:
    micros: int = (at - EPOCH) // timedelta(microseconds=1)
    return micros


def comparable(row: dict[str, Any], names: list[str]) -> tuple[str, ...]:
    return tuple(str(round(value, 6) + 0.0 if isinstance(value, float) else value) for value in map(row.get, names))


def check(seed: int) -> None:
    chance = random.Random(seed)
    made, rows = program(chance), rows_of(chance)
    feed = Feed(made.operator, COLUMNS, delay=made.delay)
    ends = [{**rows[0], "_time": LAST, "_producer": name, "row": -1} for name in ("p1", "p2")]
    sizes = [chance.randint(1, 20) for _ in range(60)]
    out = pa.concat_tables([feed.batches(rows, sizes), feed.batch(ends)])
    key = [*made.operator.keys_of(), "window_start"] if made.upserts else []
    left = [row for row in accumulated(out, key) if not _of_the_end(row)]
    for row in left:
        if "window_start" in row:
            row |= {"s": _micros(row["window_start"]), "e": _micros(row["window_end"])}
    wanted = by_duckdb(made.sql, rows)
    names = list(wanted[0]) if wanted else ["n"]  # with hops longer than windows there may be none
    found = sorted(comparable(row, names) for row in left)
    assert found == sorted(comparable(row, names) for row in wanted), f"seed {seed}: {made.sql}"


def _of_the_end(row: Row) -> bool:
    return bool((row.get("window_end") or row["_time"]) > clock("20:00"))


@pytest.mark.parametrize("seed", range(40))
def test_a_random_program_leaves_what_sql_says_of_all_its_rows(seed: int) -> None:
    check(seed)


@pytest.mark.soak
def test_a_thousand_random_programs_leave_what_sql_says_of_all_their_rows() -> None:
    for seed in range(1_000, 2_000):
        check(seed)


@pytest.mark.parametrize("kind", ["hopping", "session", "sliding"])
def test_two_hours_replayed_ten_times_in_shuffled_interleavings_give_the_same_bytes(kind: str) -> None:
    chance = random.Random(11)
    rows = [
        {
            "user": f"user {chance.randint(0, 20)}",
            "amount": chance.random(),
            "_time": clock("10:00") + timedelta(seconds=second - (chance.randint(0, 90) if second > 120 else 0)),
            "_producer": chance.choice(["p1", "p2"]),
        }
        for second in range(0, 7200, 6)
    ]
    first = [{**rows[0], "_producer": name, "_time": clock("09:00")} for name in ("p1", "p2")]
    end = [{**rows[0], "_producer": name, "_time": LAST} for name in ("p1", "p2")]
    results = []
    for replay in range(10):
        columns = {"user": pa.string(), "amount": pa.float64()}
        feed = Feed(_operator(kind), columns, delay="30 seconds")
        sizes = [2, *(random.Random(replay).randint(50, 400) for _ in range(30))]
        results.append(feed.batches([*interleaved([*first, *rows], replay), *end], sizes))
    assert results[0].num_rows > 500
    assert all(result.equals(results[0]) for result in results)


def _operator(kind: str) -> Operator:
    aggregates = {
        "n": agg.count(),
        "total": agg.sum("amount"),
        "last": agg.last("amount"),
        "all": agg.collect("amount"),
    }
    given: dict[str, Any] = {"key": ["user"], "aggregates": aggregates, "words": Words()}
    if kind == "hopping":
        return FixedWindows("hopping", "1 minute", "20 seconds", **given)
    return Sessions("1 minute", **given) if kind == "session" else Sliding("1 minute", **given)
