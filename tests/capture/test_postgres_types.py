"""Every built-in type, exactly: the same from the snapshot and from the stream."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from tests.capture.support import Capturing, Database


def number(value: int) -> str:
    """An unscaled decimal, as Connect puts it into JSON."""
    size = (value + (value < 0)).bit_length() // 8 + 1
    return base64.b64encode(value.to_bytes(size, "big", signed=True)).decode()


def data(content: bytes) -> str:
    return base64.b64encode(content).decode()


def free(value: int, scale: int) -> dict[str, Any]:
    return {"scale": scale, "value": number(value)}


def point(x: float, y: float) -> dict[str, Any]:
    return {"x": x, "y": y, "wkb": data(struct.pack("<BIdd", 1, 1, x, y)), "srid": None}


DAY_US = 86_400_000_000
MONTH_US = 365.25 / 12 * DAY_US

# declared type, SQL value, what the topic says
VALUES: list[tuple[str, str, Any]] = [
    ("bool", "true", True),
    ("bool", "false", False),
    ("int2", "-32768", -32768),
    ("int4", "2147483647", 2147483647),
    ("int8", "-9223372036854775808", -(2**63)),
    ("oid", "4294967295", 4294967295),
    ("float4", "1.1", 1.1),
    ("float8", "0.1", 0.1),
    ("float8", "'1e308'", 1e308),
    ("float8", "5e-324", 5e-324),
    ("float8", "'NaN'", "NaN"),
    ("float8", "'-Infinity'", "-Infinity"),
    ("float4", "'Infinity'", "Infinity"),
    ("numeric(10,2)", "12.34", number(1234)),
    ("numeric(10,2)", "-0.05", number(-5)),
    ("numeric(5,0)", "128", number(128)),
    ("numeric(38,10)", "-1234567890123456789012345678.0123456789", number(-12345678901234567890123456780123456789)),
    ("numeric(3,-2)", "12345", number(123)),
    ("numeric", "3.1415926535897932384626433832795028841971", free(31415926535897932384626433832795028841971, 40)),
    ("numeric", "1e30", free(10**30, 0)),
    ("numeric", "-0.10", free(-10, 2)),
    ("money", "-1234.56", number(-123456)),
    ("text", "E'tab\\tline\\nback\\\\slash \"quote\" %s é 🐘'", 'tab\tline\nback\\slash "quote" %s é 🐘'),
    ("text", "''", ""),
    ("text", "'\\N'", "\\N"),
    ("varchar(5)", "'abc'", "abc"),
    ("char(5)", "'abc'", "abc  "),
    ('"char"', "'x'", "x"),
    ("name", "'pg_class'", "pg_class"),
    ("bytea", "'\\x00ff5c0a'", data(b"\x00\xff\x5c\x0a")),
    ("bytea", "''", ""),
    ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("json", '\'{"b": 1,  "a": [null]}\'', '{"b": 1,  "a": [null]}'),
    ("jsonb", '\'{"b": 1,  "a": "x\\\\n"}\'', '{"a": "x\\\\n", "b": 1}'),
    ("date", "'1970-01-02'", 1),
    ("date", "'0001-01-01'", -719162),
    ("date", "'0044-03-15 BC'", -735160),
    ("date", "'12345-06-07'", 3789548),
    ("date", "'infinity'", 2**31 - 1),
    ("date", "'-infinity'", -(2**31)),
    ("time", "'13:14:15.123456'", 47655123456),
    ("time", "'24:00'", DAY_US),
    ("time(3)", "'13:14:15.123'", 47655123),
    ("timetz", "'10:15:30.5+02'", "08:15:30.5Z"),
    ("timetz", "'00:15:30+02:30'", "21:45:30Z"),
    ("timestamp", "'2024-02-29 12:00:00.000001'", 1709208000000001),
    ("timestamp", "'1969-12-31 23:59:59.999999'", -1),
    ("timestamp(3)", "'2024-02-29 12:00:00.123'", 1709208000123),
    ("timestamp", "'infinity'", 9223372036825200000),
    ("timestamp", "'-infinity'", -9223372036832400000),
    ("timestamptz", "'2024-01-31 13:51:30.123456+02'", "2024-01-31T11:51:30.123456Z"),
    ("timestamptz", "'2024-01-31 11:51:30+00'", "2024-01-31T11:51:30.000000Z"),
    ("timestamptz", "'infinity'", "infinity"),
    ("timestamptz", "'-infinity'", "-infinity"),
    ("interval", "'1 day 02:03:04.5'", DAY_US + 7384500000),
    ("interval", "'-1 day +02:03:04'", -DAY_US + 7384000000),
    ("interval", "'1 year 2 mons'", int(14 * MONTH_US)),
    ("interval", "'-00:00:00.000001'", -1),
    ("bit(1)", "B'1'", True),
    ("bit(10)", "B'1000000001'", data(b"\x01\x02")),
    ("varbit", "B'101'", data(b"\x05")),
    ("inet", "'192.168.0.1/24'", "192.168.0.1/24"),
    ("cidr", "'10.0.0.0/8'", "10.0.0.0/8"),
    ("macaddr", "'08:00:2b:01:02:03'", "08:00:2b:01:02:03"),
    ("macaddr8", "'08:00:2b:01:02:03:04:05'", "08:00:2b:01:02:03:04:05"),
    ("point", "'(1.5,-2)'", point(1.5, -2)),
    ("line", "'{1,2,3}'", "{1,2,3}"),
    ("lseg", "'[(0,0),(1,1)]'", "[(0,0),(1,1)]"),
    ("box", "'(1,1),(0,0)'", "(1,1),(0,0)"),
    ("path", "'((0,0),(1,1))'", "((0,0),(1,1))"),
    ("polygon", "'((0,0),(1,1),(2,0))'", "((0,0),(1,1),(2,0))"),
    ("circle", "'<(1,2),3>'", "<(1,2),3>"),
    ("int4range", "'[1,5)'", "[1,5)"),
    ("numrange", "'(,2.5]'", "(,2.5]"),
    ("tstzrange", "'[2024-01-01 00:00+00,infinity]'", '["2024-01-01 00:00:00+00",infinity]'),
    ("int4multirange", "'{[1,3),[5,7)}'", "{[1,3),[5,7)}"),
    ("tsvector", "'a fat:2 cat'", "'a' 'cat' 'fat':2"),
    ("tsquery", "'fat & cat'", "'fat' & 'cat'"),
    ("pg_lsn", "'16/B374D848'", "16/B374D848"),
    ("xid8", "'12'", "12"),
    ("regclass", "'pg_class'", "pg_class"),
    ("int4[]", "'{1,NULL,-3}'", [1, None, -3]),
    ("int4[]", "'{}'", []),
    ("int8[]", "'{{1,2},{3,4}}'", [[1, 2], [3, 4]]),
    ("int4[]", "'[2:3]={5,6}'", [5, 6]),
    ("int2[]", "'{{{1}},{{2}}}'", [[[1]], [[2]]]),
    ("text[]", '\'{a,"b,c","NULL",NULL,"q\\"\\\\","","{x}"}\'', ["a", "b,c", "NULL", None, 'q"\\', "", "{x}"]),
    ("varchar(3)[]", "'{ab}'", ["ab"]),
    ("bool[]", "'{t,f}'", [True, False]),
    ("float8[]", "'{0.1,NaN}'", [0.1, "NaN"]),
    ("numeric(5,2)[]", "'{1.25,NULL}'", [number(125), None]),
    ("numeric[]", "'{1.5}'", [free(15, 1)]),
    ("date[]", "'{1970-01-03}'", [2]),
    ("timestamptz[]", "'{\"2024-01-31 11:51:30+00\"}'", ["2024-01-31T11:51:30.000000Z"]),
    ("timestamp[]", "'{\"1970-01-01 00:00:01\"}'", [1000000]),
    ("timestamp(3)[]", "'{\"1970-01-01 00:00:01\"}'", [1000]),
    ("interval[]", "'{\"1 day\"}'", [DAY_US]),
    ("money[]", "'{1.00,2.50}'", [number(100), number(250)]),
    ("uuid[]", "'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("jsonb[]", "array['{\"a\": 1}'::jsonb]", ['{"a": 1}']),
    ("bytea[]", "array['\\x00ff'::bytea]", [data(b"\x00\xff")]),
    ("varbit[]", "'{101}'", [data(b"\x05")]),
    ("point[]", "array['(1,2)'::point]", [point(1, 2)]),
    ("name[]", "'{pg_class}'", ["pg_class"]),
    ("box[]", "array['(1,1),(0,0)'::box]", "{(1,1),(0,0)}"),
    ("int4range[]", "array['[1,2)'::int4range]", ["[1,2)"]),
    ("mood", "'so \"so\"'", 'so "so"'),
    ("mood[]", "'{sad}'", ["sad"]),
    ("positive", "5", 5),
    ("price", "1.25", number(125)),
    ("positive[]", "'{1,2}'", [1, 2]),
    ("person", "row('Ada', 36)", "(Ada,36)"),
    ("person[]", "array[row('Ada \"A\"', 36)::person]", ['("Ada ""A""",36)']),
    ("weird name", "'b'", "b"),
]

TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'so \"so\"')",
    "CREATE DOMAIN positive AS int CHECK (value > 0)",
    "CREATE DOMAIN price AS numeric(8,2)",
    "CREATE TYPE person AS (name text, age int)",
    "CREATE TYPE \"weird name\" AS ENUM ('a', 'b')",
)


def declared(type_name: str) -> str:
    return f'"{type_name}"' if " " in type_name else type_name


@pytest.fixture
def wide(database: Database) -> Database:
    database.run(*TYPES)
    columns = ", ".join(f"c{i} {declared(kind)}" for i, (kind, _, _) in enumerate(VALUES))
    database.run(f"CREATE TABLE wide (id int PRIMARY KEY, {columns})")
    return database


def insert(database: Database, number: int) -> None:
    database.run(f"INSERT INTO wide VALUES ({number}, {', '.join(value for _, value, _ in VALUES)})")


def wrong(row: dict[str, Any]) -> list[tuple[str, str, Any, Any]]:
    return [
        (kind, value, row[f"c{i}"], expected)
        for i, (kind, value, expected) in enumerate(VALUES)
        if row[f"c{i}"] != expected or type(row[f"c{i}"]) is not type(expected)
    ]


def test_every_value_is_exact_in_the_snapshot_and_in_the_stream(wide: Database, capturing: Capturing) -> None:
    insert(wide, 1)
    capturing.start()
    insert(wide, 2)
    read, inserted = capturing.until("wide", 2)
    assert wrong(read.after) == []
    assert wrong(inserted.after) == []


def test_the_roles_own_settings_change_nothing(wide: Database, capturing: Capturing) -> None:
    """Formats of dates, binary data and money are per database or role in PostgreSQL."""
    for name, value in (
        ("datestyle", "'German, DMY'"),
        ("intervalstyle", "iso_8601"),
        ("timezone", "'Asia/Kathmandu'"),
        ("bytea_output", "escape"),
        ("extra_float_digits", "-3"),
    ):
        wide.run(f'ALTER DATABASE "{wide.name}" SET {name} = {value}')
    insert(wide, 1)
    capturing.start()
    insert(wide, 2)
    read, inserted = capturing.until("wide", 2)
    assert wrong(read.after) == []
    assert wrong(inserted.after) == []


def test_nulls_are_null_in_every_type(wide: Database, capturing: Capturing) -> None:
    wide.run("INSERT INTO wide VALUES (1)")
    capturing.start()
    wide.run("INSERT INTO wide VALUES (2)")
    for event in capturing.until("wide", 2):
        assert {value for name, value in event.after.items() if name != "id"} == {None}


def test_decimals_as_strings_keep_what_numbers_cannot_say(database: Database, capturing: Capturing) -> None:
    database.run("CREATE TABLE d (id int PRIMARY KEY, n numeric, m money, f numeric(10,2))")
    capturing.start(decimals="string")
    database.run("INSERT INTO d VALUES (1, 'NaN', 1234.5, 1.5)", "INSERT INTO d VALUES (2, '-Infinity', -1, 0)")
    assert [e.after for e in capturing.until("d", 2)] == [
        {"id": 1, "n": "NaN", "m": "1234.50", "f": "1.50"},
        {"id": 2, "n": "-Infinity", "m": "-1.00", "f": "0.00"},
    ]


def test_decimals_as_doubles(database: Database, capturing: Capturing) -> None:
    database.run("CREATE TABLE d (id int PRIMARY KEY, n numeric)")
    capturing.start(decimals="double")
    database.run("INSERT INTO d VALUES (1, 1.5)", "INSERT INTO d VALUES (2, 'NaN')")
    assert [e.after["n"] for e in capturing.until("d", 2)] == [1.5, "NaN"]


def test_binary_data_as_hexadecimal(database: Database, capturing: Capturing) -> None:
    database.run("CREATE TABLE b (id int PRIMARY KEY, x bytea)")
    capturing.start(binary="hex")
    database.run("INSERT INTO b VALUES (1, '\\x00ff')")
    assert capturing.until("b", 1)[0].after["x"] == "00ff"


def test_extensions_are_captured(database: Database, capturing: Capturing) -> None:
    available = {name for (name,) in database.rows("SELECT name FROM pg_available_extensions")}
    if not {"hstore", "citext"} <= available:
        pytest.skip("this server has no hstore and citext")
    database.run("CREATE EXTENSION hstore", "CREATE EXTENSION citext")
    database.run("CREATE TABLE e (id int PRIMARY KEY, h hstore, c citext)")
    capturing.start()
    database.run('INSERT INTO e VALUES (1, \'a=>1, "b c"=>NULL, d=>"q\\""\', \'Text\')')
    after = capturing.until("e", 1)[0].after
    assert json.loads(after["h"]) == {"a": "1", "b c": None, "d": 'q"'}
    assert after["c"] == "Text"


def test_a_type_created_while_the_stream_runs_is_known(database: Database, capturing: Capturing) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    capturing.start(form="debezium-schema")
    database.run("CREATE TYPE colour AS ENUM ('red')", "ALTER TABLE t ADD c colour", "INSERT INTO t VALUES (1, 'red')")
    value = capturing.until("t", 1)[0].value
    after = next(f for f in value["schema"]["fields"] if f["field"] == "after")
    column = next(f for f in after["fields"] if f["field"] == "c")
    assert column["name"] == "io.debezium.data.Enum"
    assert column["parameters"] == {"allowed": "red"}
    assert value["payload"]["after"] == {"id": 1, "c": "red"}
