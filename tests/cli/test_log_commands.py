"""`headwater topics|produce|consume|groups`, against whatever broker the tests run with."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from headwater.cli.kafka import moment_ms
from headwater.cli.main import main

Command = Callable[..., str]


@pytest.fixture
def headwater(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command that must succeed; its standard output."""

    def run(*words: str) -> str:
        assert main([*words, "--bootstrap", bootstrap]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command that must fail with exit code 1 and one line on standard error: that line."""

    def run(*words: str) -> str:
        assert main([*words, "--bootstrap", bootstrap]) == 1
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.count("\n") == 1
        return shown.err

    return run


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# -- topics


def test_a_topics_life(headwater: Command, unique: str) -> None:
    name = f"life-{unique}"
    assert headwater("topics", "create", name, "--partitions", "2", "--config", "retention.ms=60000") == (
        f"created {name}\n"
    )
    assert name in headwater("topics", "list")
    listed = {row["topic"]: row for row in json.loads(headwater("topics", "list", "--json"))}
    assert listed[name] == {"topic": name, "partitions": 2, "records": 0}
    headwater("topics", "alter", name, "--partitions", "3", "--config", "segment.ms=5000", "--unset", "retention.ms")
    (described,) = json.loads(headwater("topics", "describe", name, "--json"))
    assert described["settings"] == {"segment.ms": "5000"}
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]
    assert headwater("topics", "describe", name).startswith(f"{name}: segment.ms=5000\nPARTITION  START  END\n")
    headwater("topics", "delete", name)
    assert name not in headwater("topics", "list")


def test_a_topic_that_is_not_there_is_said_to_be_so(headwater: Command, refused: Command, unique: str) -> None:
    headwater("topics", "create", f"orders-{unique}")
    assert f"did you mean 'orders-{unique}'?" in refused("topics", "describe", f"order-{unique}")
    for words in (("consume", "nothing-like-it"), ("topics", "delete", "nothing-like-it")):
        assert "there is no topic 'nothing-like-it'" in refused(*words)


def test_what_kafka_refuses_is_said_in_its_words(headwater: Command, refused: Command, unique: str) -> None:
    headwater("topics", "create", f"twice-{unique}")
    assert "TOPIC_ALREADY_EXISTS" in refused("topics", "create", f"twice-{unique}")
    assert "nothing to change" in refused("topics", "alter", f"twice-{unique}")
    assert "write NAME=VALUE" in refused("topics", "create", f"x-{unique}", "--config", "retention")


def test_a_broker_that_is_not_there_is_said_to_be_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("kafka", "topics"):
        monkeypatch.setattr(f"headwater.cli.{module}.TIMEOUT_S", 0.3)
    assert main(["topics", "list", "--bootstrap", "127.0.0.1:1"]) == 1
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err


def test_a_command_line_that_is_not_understood_is_exit_code_2() -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["topics", "explode"])
    assert stopped.value.code == 2


# -- records


def test_values_from_the_command_line_are_read_back(headwater: Command, unique: str) -> None:
    topic = f"values-{unique}"
    headwater("topics", "create", topic)
    told = headwater("produce", topic, "one", "two", "--key", "k", "--header", "h=1")
    assert told == f"2 records written to {topic} (partition 0: offsets 0 to 1)\n"
    found = records(headwater("consume", topic, "--until-end", "--json"))
    assert [(r["offset"], r["key"], r["value"], r["headers"]) for r in found] == [
        (0, "k", "one", [["h", "1"]]),
        (1, "k", "two", [["h", "1"]]),
    ]
    assert headwater("consume", topic, "--until-end", "--values") == "one\ntwo\n"
    shown = headwater("consume", topic, "--count", "1").split("  ")
    assert (shown[0], shown[2:]) == ("0:0", ["k", "one\n"])


def test_lines_of_standard_input_may_carry_their_keys(
    headwater: Command, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"lines-{unique}"
    headwater("topics", "create", topic)
    monkeypatch.setattr("sys.stdin", io.StringIO("a:1\nb:2\nno key\n"))
    result = json.loads(headwater("produce", topic, "--key-separator", ":", "--json"))
    assert result == {"topic": topic, "records": 3, "partitions": [{"partition": 0, "first": 0, "last": 2}]}
    found = records(headwater("consume", topic, "--until-end", "--json"))
    assert [(r["key"], r["value"]) for r in found] == [("a", "1"), ("b", "2"), (None, "no key")]


def test_what_consume_writes_produce_reads(headwater: Command, unique: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, copy = f"source-{unique}", f"copy-{unique}"
    lines = [
        {"key": "k", "value": "text ✓", "headers": [["a", None]], "timestamp": 1_795_000_000_000, "partition": 0},
        {"key": None, "value": {"base64": "/wD/"}, "headers": [], "timestamp": 1_795_000_000_001, "partition": 0},
        {"key": "deleted", "value": None, "headers": [], "timestamp": 1_795_000_000_002, "partition": 0},
    ]
    for topic in (source, copy):
        headwater("topics", "create", topic)
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(json.dumps(line) + "\n" for line in lines)))
    headwater("produce", source, "--from-json")
    written = headwater("consume", source, "--until-end", "--json")
    monkeypatch.setattr("sys.stdin", io.StringIO(written))
    headwater("produce", copy, "--from-json")
    again = records(headwater("consume", copy, "--until-end", "--json"))
    assert [{**each, "topic": source} for each in again] == records(written)
    assert [{key: each[key] for key in lines[0]} for each in again] == lines


def test_a_line_that_is_not_json_is_named(
    headwater: Command, refused: Command, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    headwater("topics", "create", f"bad-{unique}")
    monkeypatch.setattr("sys.stdin", io.StringIO('{"value": "x"}\nnot json\n'))
    assert "line 2 is not a record" in refused("produce", f"bad-{unique}", "--from-json")


def test_reading_starts_where_it_is_told(headwater: Command, refused: Command, unique: str) -> None:
    topic = f"start-{unique}"
    headwater("topics", "create", topic, "--partitions", "2")
    headwater("produce", topic, "0", "1", "2", "--partition", "1")

    def read(*words: str) -> str:
        return headwater("consume", topic, "--until-end", "--values", *words)

    assert read("--from", "1") == "1\n2\n"
    assert read("--from", "end") == ""
    assert read("--from=-1h", "--partition", "1") == "0\n1\n2\n"
    assert read("--from", "2000-01-01") == "0\n1\n2\n"
    assert "is none of" in refused("consume", topic, "--from", "yesterday")
    assert "has no partition 7" in refused("consume", topic, "--partition", "7")


def test_times_are_dates_moments_and_ages() -> None:
    assert moment_ms("1970-01-02T00:00:00+00:00") == 86_400_000
    hour = (moment_ms("-1h") or 0) - (moment_ms("-2h") or 0)
    assert abs(hour - 3_600_000) < 1_000
    assert moment_ms("soon") is None


# -- groups


def test_a_groups_positions_are_shown_and_put_elsewhere(headwater: Command, refused: Command, unique: str) -> None:
    topic, group = f"groups-{unique}", f"g-{unique}"
    headwater("topics", "create", topic)
    headwater("produce", topic, "0", "1", "2")
    assert headwater("consume", topic, "--group", group, "--count", "2", "--values") == "0\n1\n"
    assert group in headwater("groups", "list")
    (row,) = json.loads(headwater("groups", "describe", group, "--json"))
    assert (row["topic"], row["committed"], row["end"], row["lag"]) == (topic, 2, 3, 1)
    (moved,) = json.loads(headwater("groups", "reset", group, "--topic", topic, "--to", "beginning", "--json"))
    assert (moved["before"], moved["after"]) == (2, 0)
    headwater("groups", "reset", group, "--topic", topic, "--to", "99", "--dry-run")
    assert headwater("consume", topic, "--group", group, "--until-end", "--values") == "0\n1\n2\n"
    headwater("groups", "delete", group)
    assert "there is no group" in refused("groups", "describe", group)
