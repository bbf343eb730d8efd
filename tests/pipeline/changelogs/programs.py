"""Random programs of changelog operators, each with the SQL that says what it must add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import duckdb

from headwater.pipeline import aggregates, changelogs, joins
from headwater.testing.streams import Stream, StreamTest

SOURCES = "abcd"
BATCHES_MAX = 7
ROWS_MAX = 6  # of a batch
VALUES = (None, 0, 1, 2)


@dataclass
class Node:
    """A stream, the query that gives the same table, and the columns of both."""

    stream: Stream
    sql: str
    columns: list[str]


class Program:
    """One random program over random changelogs, fed in random batches."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.test = StreamTest(partitions=self.random.choice([1, 2, 3]))
        self.sources = {name: self.test.stream(self._schema(name), name) for name in SOURCES}
        self.there: dict[str, list[tuple[Any, ...]]] = {name: [] for name in SOURCES}
        self._unused = list(SOURCES)
        self._fresh = 0
        self.node = self._node(self.random.randint(1, 3))
        self._feed()

    @staticmethod
    def _schema(name: str) -> str:
        return f"{name}1 long, {name}2 long, {name}3 string, _weight int"

    def _feed(self) -> None:
        for _ in range(self.random.randint(1, BATCHES_MAX)):
            with self.test.batch():
                for _ in range(self.random.randint(0, ROWS_MAX)):
                    self._change(self.random.choice(SOURCES))

    def _change(self, name: str) -> None:
        """A row comes, or one that is there goes."""
        rows = self.there[name]
        weight = -1 if rows and self.random.random() < 0.4 else 1
        if weight < 0:
            row = rows.pop(self.random.randrange(len(rows)))
        else:
            row = (self.random.choice(VALUES), self.random.choice(VALUES), self.random.choice([None, "p", "q"]))
            rows.append(row)
        values = dict(zip((f"{name}1", f"{name}2", f"{name}3"), row, strict=True))
        self.test.feed(self.sources[name], [{**values, "_weight": weight}])

    def _node(self, depth: int) -> Node:
        if depth == 0 or not self._unused:
            return self._source()
        makers: list[Callable[[int], Node]] = [self._one_input, self._two_inputs]
        return self.random.choice(makers if len(self._unused) > 1 else makers[:1])(depth - 1)

    def _source(self) -> Node:
        name = self._unused.pop() if self._unused else self.random.choice(SOURCES)
        columns = [f"{name}1", f"{name}2", f"{name}3"]
        return Node(self.sources[name], f"SELECT {', '.join(columns)} FROM {name}", columns)

    def _some(self, columns: list[str], least: int = 1) -> list[str]:
        return sorted(self.random.sample(columns, self.random.randint(least, len(columns))))

    def _one_input(self, depth: int) -> Node:
        kind = self.random.choice(["distinct", "aggregate", "top", "double", "upserts"])
        node = self._node(depth)
        if kind == "distinct":
            columns = self._some(node.columns)
            sql = f"SELECT DISTINCT {', '.join(columns)} FROM ({node.sql})"
            return Node(changelogs.distinct(node.stream, columns), sql, columns)
        if kind == "double":
            both = changelogs.union(node.stream, changelogs.consolidate(node.stream))
            return Node(both, f"({node.sql}) UNION ALL ({node.sql})", node.columns)
        if kind == "aggregate":
            return self._aggregate(node)
        return self._top(node)

    def _aggregate(self, node: Node) -> Node:
        key, value = self._some(node.columns), self.random.choice(node.columns)
        number = str(node.stream.schema.field(value).type) != "string"
        names = [n for n in ("count", "min", "max", "sum", "mean") if number or n not in ("sum", "mean")]
        chosen = sorted(self.random.sample(names, self.random.randint(1, 2)))
        self._fresh += 1
        named = {f"{n}_{self._fresh}": getattr(aggregates, n)(value) for n in chosen}
        functions = {"mean": "avg"}
        columns = [f"{functions.get(n, n)}({value}) AS {n}_{self._fresh}" for n in chosen]
        sql = f"SELECT {', '.join([*key, *columns])} FROM ({node.sql}) GROUP BY {', '.join(key)}"
        return Node(changelogs.aggregate(node.stream, key, named), sql, [*key, *named])

    def _top(self, node: Node) -> Node:
        key = self._some(node.columns)
        order = [c for c in node.columns if node.stream.schema.field(c).type != "string"] or node.columns
        ways = {c: self.random.choice(["asc", "desc"]) for c in order}
        rest = [c for c in node.columns if c not in order]
        words = [f"{c} {way}" for c, way in ways.items()] + [f"{c} {ways[order[0]]}" for c in rest]
        nulls = {"asc": "NULLS FIRST", "desc": "NULLS LAST"}
        if any(w.endswith("asc") != words[0].endswith("asc") for w in words if w.split()[0] in rest):
            words = [f"{w.split()[0]} desc" for w in words]
        n = self.random.randint(1, 3)
        ordering = ", ".join(f"{w} {nulls[w.split()[1]]}" for w in words)
        self._fresh += 1
        rank = f"rank_{self._fresh}" if self.random.random() < 0.5 else None
        shown = [*node.columns, *([f"r AS {rank}"] if rank else [])]
        sql = (
            f"SELECT {', '.join(shown)} FROM (SELECT *, row_number() OVER (PARTITION BY {', '.join(key)} "
            f"ORDER BY {ordering}) AS r FROM ({node.sql})) WHERE r <= {n}"
        )
        stream = changelogs.top_n(node.stream, key, words, n, rank=rank)
        return Node(stream, sql, [*node.columns, *([rank] if rank else [])])

    def _two_inputs(self, depth: int) -> Node:
        left, right = self._node(depth), self._node(depth)
        pairs = [
            (a, b)
            for a in left.columns
            for b in right.columns
            if left.stream.schema.field(a).type == right.stream.schema.field(b).type
        ]
        kind = self.random.choice(["join", "join", "semi", "anti"])
        if not pairs or set(left.columns) & set(right.columns):
            return left
        a, b = self.random.choice(pairs)
        if kind != "join":
            function = changelogs.semi_join if kind == "semi" else changelogs.anti_join
            word = "EXISTS" if kind == "semi" else "NOT EXISTS"
            sql = f"SELECT * FROM ({left.sql}) l WHERE {word} (SELECT 1 FROM ({right.sql}) r WHERE l.{a} = r.{b})"
            return Node(function(left.stream, right.stream, {a: b}), sql, left.columns)
        how = self.random.choice(["inner", "left", "right", "full"])
        rest = [c for c in left.columns if c != a] + [c for c in right.columns if c != b]
        sql = (
            f"SELECT {', '.join([f'coalesce(l.{a}, r.{b}) AS {a}', *rest])} "
            f"FROM ({left.sql}) l {how.upper()} JOIN ({right.sql}) r ON l.{a} = r.{b}"
        )
        return Node(joins.tables(left.stream, right.stream, {a: b}, how=how), sql, [a, *rest])

    def expected(self) -> Counter[tuple[Any, ...]]:
        """What the query gives over the tables as they are at the end."""
        with duckdb.connect() as database:
            for name, rows in self.there.items():
                database.execute(f"CREATE TABLE {name} ({name}1 BIGINT, {name}2 BIGINT, {name}3 VARCHAR)")
                if rows:
                    database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
            query = f"SELECT {', '.join(self.node.columns)} FROM ({self.node.sql})"
            return Counter(database.execute(query).fetchall())

    def found(self, table: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row[name] for name in self.node.columns) for row in table)
