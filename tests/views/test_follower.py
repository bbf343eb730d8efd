"""The follower between a real log and a real store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.client import Connection, Writer, ensure_topics
from headwater.deadletters import DeadLetter
from headwater.positions import Position
from headwater.testing.waiting import eventually
from headwater.views.definition import Definition
from headwater.views.errors import RecordRefused, RecordsLost
from headwater.views.follower import Follower
from headwater.views.letters import read_dead_letters, replay_dead_letters
from headwater.views.life import add_version
from headwater.views.rows import Row
from headwater.views.stores import Store


class Rig:
    """One topic, one view in SQLite, and what is needed to look at both."""

    def __init__(self, bootstrap: str, folder: Path, name: str, **definition: Any) -> None:
        self.log, self.topic = Connection(bootstrap), f"topic-{name}"
        partitions = definition.pop("partitions", 1)
        ensure_topics(self.log, [self.topic], partitions=partitions)
        self.definition = Definition.of(f"v{name}", topic=self.topic, store=f"sqlite:{folder}/views.db", **definition)
        self.store: Store = self.definition.open_store()
        self.store.change_catalog(lambda catalog: add_version(catalog, self.definition.digest(), 0))

    def follower(self) -> Follower:
        return Follower(self.definition, self.log, self.store, 1)

    def write(self, *records: tuple[Any, Any], **more: Any) -> Position:
        with Writer(self.log) as writer:
            for key, value in records:
                body = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
                writer.write(self.topic, body, key=None if key is None else json.dumps(key).encode(), **more)
            return Position.from_token(writer.flush())

    def rows(self) -> list[Row]:
        with self.store.reader().snapshot() as found:
            return sorted(found.scan(), key=lambda row: str(row["id"]))


def test_a_view_holds_what_its_topic_says(bootstrap: str, unique: str, tmp_path: Path) -> None:
    rig = Rig(bootstrap, tmp_path, unique, partitions=3)
    with rig.follower() as follower:
        position = rig.write(*(({"id": i}, {"id": i, "n": i * i}) for i in range(500)), ({"id": 7}, None))
        assert follower.wait_until(position, 10)
        assert rig.rows() == sorted(({"id": i, "n": i * i} for i in range(500) if i != 7), key=lambda r: str(r["id"]))
    assert follower.bookmark.applied == 501


def test_a_follower_goes_on_where_the_one_before_stopped(bootstrap: str, unique: str, tmp_path: Path) -> None:
    rig = Rig(bootstrap, tmp_path, unique)
    first = rig.write(({"id": 1}, {"id": 1}))
    with rig.follower() as follower:
        assert follower.wait_until(first, 10)
    second = rig.write(({"id": 2}, {"id": 2}))
    with rig.follower() as follower:
        assert follower.wait_until(second, 10)
        assert follower.bookmark.applied == 2
    assert rig.rows() == [{"id": 1}, {"id": 2}]


def test_a_newer_follower_ends_the_older_one(bootstrap: str, unique: str, tmp_path: Path) -> None:
    rig = Rig(bootstrap, tmp_path, unique)
    with rig.follower() as older:
        assert older.wait_until(rig.write(({"id": 1}, {"id": 1})), 10)
        with rig.follower() as newer:
            eventually(lambda: newer.state == "following")
            assert newer.wait_until(rig.write(({"id": 2}, {"id": 2})), 10)
            eventually(lambda: older.state == "fenced", what="the older follower notices")
    assert rig.rows() == [{"id": 1}, {"id": 2}]


def test_poison_goes_to_the_dead_letters_with_reason_and_origin(bootstrap: str, unique: str, tmp_path: Path) -> None:
    rig = Rig(bootstrap, tmp_path, unique)
    with rig.follower() as follower:
        position = rig.write(
            ({"id": 1}, {"id": 1}), ({"id": 2}, b"poison"), ({"id": 3}, {"id": 3}), headers=[("trace", b"x")]
        )
        assert follower.wait_until(position, 10)
        assert rig.rows() == [{"id": 1}, {"id": 3}]
        assert follower.bookmark.refused == 1
    letters = list(read_dead_letters(rig.log, rig.definition.name, rig.definition.topics))
    assert len(letters) == 1
    letter: DeadLetter = letters[0]
    assert (letter.stage, letter.topic, letter.offset) == (f"view:{rig.definition.name}", rig.topic, 1)
    assert (letter.key, letter.value, letter.headers) == (b'{"id": 2}', b"poison", (("trace", b"x"),))
    assert "malformed" in letter.reason


def test_a_view_may_stop_at_poison_and_go_on_when_it_is_told_to(bootstrap: str, unique: str, tmp_path: Path) -> None:
    rig = Rig(bootstrap, tmp_path, unique, on_error="stop")
    rig.write(({"id": 1}, {"id": 1}), ({"id": 2}, b"poison"))
    with pytest.raises(RecordRefused, match=f"{rig.topic}-0 offset 1"):
        rig.follower().run()
    assert rig.rows() == []


def test_replayed_dead_letters_come_once(bootstrap: str, unique: str, tmp_path: Path) -> None:
    rig = Rig(bootstrap, tmp_path, unique, filter="n > 0")
    with rig.follower() as follower:
        assert follower.wait_until(rig.write(({"id": 1}, {"id": 1, "n": None}), ({"id": 2}, {"id": 2, "n": 1})), 10)
    corrected = Definition.of(
        rig.definition.name, topic=rig.topic, store=rig.definition.store, filter="n is None or n > 0"
    )
    assert replay_dead_letters(rig.log, corrected.name, corrected.topics) == 1
    assert replay_dead_letters(rig.log, corrected.name, corrected.topics) == 0
    with Follower(corrected, rig.log, rig.store, 1) as follower:
        assert follower.wait_until(Position({(rig.topic, 0): 3}), 10)
    assert [row["id"] for row in rig.rows()] == [1, 2]


def test_a_view_whose_records_are_gone_says_so(bootstrap: str, unique: str, tmp_path: Path) -> None:
    rig = Rig(bootstrap, tmp_path, unique)
    with rig.follower() as follower:
        assert follower.wait_until(rig.write(*(({"id": i}, {"id": i}) for i in range(5))), 10)
    admin = rig.log.admin()
    admin.delete_topics([rig.topic])[rig.topic].result(10)
    eventually(lambda: rig.topic not in rig.log.admin().list_topics(timeout=10).topics)
    ensure_topics(rig.log, [rig.topic], partitions=1)
    with pytest.raises(RecordsLost, match="rebuild"):
        rig.follower().run()


def test_new_partitions_are_followed(
    bootstrap: str, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka.cimpl import NewPartitions

    monkeypatch.setattr("headwater.views.follower.METADATA_INTERVAL_S", 0.1)
    rig = Rig(bootstrap, tmp_path, unique)
    with rig.follower() as follower:
        assert follower.wait_until(rig.write(({"id": 1}, {"id": 1})), 10)
        admin = rig.log.admin()
        admin.create_partitions([NewPartitions(rig.topic, 2)])[rig.topic].result(10)
        assert follower.wait_until(rig.write(({"id": 2}, {"id": 2}), partition=1), 20)
    assert rig.rows() == [{"id": 1}, {"id": 2}]


def test_positions_pass_over_the_markers_of_transactions(bootstrap: str, unique: str, tmp_path: Path) -> None:
    rig = Rig(bootstrap, tmp_path, unique)
    producer = rig.log.producer(transactional_id=f"tx-{unique}")
    producer.init_transactions()
    with rig.follower() as follower:
        for outcome in ("commit", "abort"):
            producer.begin_transaction()
            producer.produce(rig.topic, b'{"id": "%s"}' % outcome.encode(), b'{"id": "%s"}' % outcome.encode())
            producer.flush()
            producer.commit_transaction() if outcome == "commit" else producer.abort_transaction()
        assert follower.wait_until(Position({(rig.topic, 0): 4}), 10)
        assert rig.rows() == [{"id": "commit"}]
