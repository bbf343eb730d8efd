"""One partition's state through its versions, whatever happened before: retries, other hosts, damage, duplicates."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.pipeline.stateful.errors import CorruptStateFile, StateFull, StateLost, StateMismatch
from headwater.pipeline.stateful.files import LocalFiles
from headwater.pipeline.stateful.history import History
from headwater.pipeline.stateful.partition import Partition
from headwater.pipeline.stateful.schema import Column, TableSpec
from headwater.pipeline.stateful.store import Store, discard_store
from headwater.pipeline.stateful.task import Step, run_task

from .totals import Host, program, rows


def test_a_batch_reads_what_the_one_before_it_left(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.run(0, ("ann", 5), ("bob", 1), ("ann", 2)) == [("ann", 2, 7), ("bob", 1, 1)]
    assert host.run(1, ("bob", 4)) == [("bob", 2, 5)]


def test_a_batch_that_is_run_again_gives_the_same_rows_and_counts_nothing_twice(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.run(0, ("ann", 5))
    first = host.run(1, ("ann", 2))
    written = host.changelog(2).stat().st_mtime_ns
    assert host.run(1, ("ann", 2)) == first
    assert host.changelog(2).stat().st_mtime_ns == written
    assert host.run(2, ("ann", 1)) == [("ann", 3, 8)]


def test_an_old_batch_that_is_run_again_by_a_zombie_changes_nothing(tmp_path: Path) -> None:
    host, zombie = Host(tmp_path), Host(tmp_path, "zombie")
    for batch in range(5):
        host.run(batch, ("ann", batch))
    before = {path.name: path.read_bytes() for path in host.folder.iterdir()}
    assert host.run(2, ("ann", 2)) == [("ann", 3, 3)]
    assert zombie.run(2, ("ann", 2)) == [("ann", 3, 3)]
    after = {path.name: path.read_bytes() for path in host.folder.iterdir()}
    assert before.keys() == after.keys()
    assert host.run(5, ("ann", 1)) == [("ann", 6, 11)]
    assert Host(tmp_path, "fresh").run(6, ("ann", 1)) == [("ann", 7, 12)]


@pytest.mark.parametrize("same_host", [True, False])
def test_speculative_attempts_of_a_batch_are_harmless(tmp_path: Path, same_host: bool) -> None:
    host = Host(tmp_path)
    other = host if same_host else Host(tmp_path, "other")
    host.run(0, ("ann", 5))
    with host.partition.at(1) as one, other.partition.at(1) as two:
        for version in (one, two):
            Step(program(), version.state).feed(rows([("ann", 1), ("bob", 2)]))
        host.partition.commit(one)
        other.partition.commit(two)
    assert host.run(2, ("ann", 1), ("bob", 1)) == [("ann", 3, 7), ("bob", 2, 3)]
    assert other.run(2, ("ann", 1), ("bob", 1)) == [("ann", 3, 7), ("bob", 2, 3)]


@pytest.mark.parametrize("behind", [0, 1, 3])
def test_another_host_steps_forward_by_the_changelogs(tmp_path: Path, behind: int) -> None:
    here, there = Host(tmp_path, "here"), Host(tmp_path, "there")
    for batch in range(4):
        here.run(batch, ("ann", 1))
        if batch < behind:
            there.run(batch, ("ann", 1))
    assert there.run(4, ("ann", 1)) == [("ann", 5, 5)]


def test_a_new_host_starts_from_a_snapshot_when_the_changelogs_before_it_are_gone(tmp_path: Path) -> None:
    host = Host(tmp_path, keep=1)
    for batch in range(6):
        host.run(batch, ("ann", 1), (f"user{batch}", 1))
        if batch in (2, 4):
            host.partition.snapshot()
    assert host.partition.history.changelogs() == [4, 5, 6]
    assert host.partition.history.snapshots() == [3, 5]
    assert Host(tmp_path, "new").run(6, ("ann", 1), ("user0", 1)) == [("ann", 7, 7), ("user0", 2, 2)]
    assert Host(tmp_path, "newer").run(3, ("ann", 1)) == [("ann", 4, 4)]


def test_old_versions_are_cleaned_up_and_small_states_are_snapshot_by_themselves(tmp_path: Path) -> None:
    host = Host(tmp_path, keep=10)
    for batch in range(100):
        host.run(batch, ("ann", 1))
    kept = sorted(path.name for path in host.folder.iterdir())
    assert len([name for name in kept if name.startswith("snapshot")]) >= 1
    assert len(kept) < 60
    assert host.run(90, ("ann", 1)) == [("ann", 91, 91)]


def _vanish(host: Host) -> None:
    shutil.rmtree(host.store)


def _discard(host: Host) -> None:
    discard_store(host.store)


def _garble(host: Host) -> None:
    discard_store(host.store)
    host.store.mkdir()
    (host.store / "data.mdb").write_bytes(b"not a store" * 4096)


@pytest.mark.parametrize("lose", [_vanish, _discard, _garble])
def test_a_local_store_that_is_lost_or_damaged_is_rebuilt(tmp_path: Path, lose: Callable[[Host], None]) -> None:
    host = Host(tmp_path)
    for batch in range(3):
        host.run(batch, ("ann", 1))
    lose(host)
    assert host.run(3, ("ann", 1)) == [("ann", 4, 4)]


@pytest.mark.parametrize("position", [3, 40, -20])
def test_a_damaged_changelog_is_never_applied_and_is_named(tmp_path: Path, position: int) -> None:
    host = Host(tmp_path)
    for batch in range(3):
        host.run(batch, ("ann", 1))
    data = bytearray(host.changelog(2).read_bytes())
    data[position] ^= 0xFF
    host.changelog(2).write_bytes(data)
    assert host.run(3, ("ann", 1)) == [("ann", 4, 4)]
    with pytest.raises(CorruptStateFile, match="changelog-000000000002"):
        Host(tmp_path, "new").run(4, ("ann", 1))


def test_a_changelog_that_is_missing_is_an_error_that_says_what_there_is(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for batch in range(3):
        host.run(batch, ("ann", 1))
    host.changelog(2).unlink()
    with pytest.raises(StateLost, match=r"version 3 cannot be rebuilt .* changelogs \[1\] to \[3\]"):
        Host(tmp_path, "new").run(3, ("ann", 1))


def test_a_kill_between_the_changelog_and_the_store_is_made_good_by_the_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path)
    host.run(0, ("ann", 1))
    with monkeypatch.context() as broken:
        broken.setattr(Store, "commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            host.run(1, ("ann", 2))
    assert host.changelog(2).exists()
    assert host.run(1, ("ann", 2)) == [("ann", 2, 3)]
    assert host.run(2, ("ann", 1)) == [("ann", 3, 4)]


def test_a_batch_run_again_with_other_rows_leads_to_a_new_line_that_all_hosts_follow(tmp_path: Path) -> None:
    host, other = Host(tmp_path), Host(tmp_path, "other")
    for each in (host, other):
        each.run(0, ("ann", 1))
        each.run(1, ("ann", 1))
    assert host.run(1, ("ann", 50)) == [("ann", 2, 51)]
    assert other.run(2, ("ann", 1)) == [("ann", 3, 52)]
    assert host.run(2, ("ann", 1)) == [("ann", 3, 52)]


def test_a_full_store_says_so_and_stays_at_its_version(tmp_path: Path) -> None:
    history = History(LocalFiles(tmp_path / "checkpoint"), "totals", 0)
    small = Partition(history, tmp_path / "small", program().tables, store_bytes_max=1 << 17)
    with small.at(0) as version:
        Step(program(), version.state).feed(rows([("ann", 1)]))
        small.commit(version)
    with small.at(1) as version:
        Step(program(), version.state).feed(rows([(f"user{n}", 1) for n in range(20_000)]))
        with pytest.raises(StateFull, match="more partitions, or a larger `state_bytes_max`"):
            small.commit(version)
    with small.at(1) as version:
        assert version.state["running"].range()["user"].to_pylist() == ["ann"]


def test_rows_that_come_one_by_one_are_answered_at_once_and_make_one_version(tmp_path: Path) -> None:
    host = Host(tmp_path)
    pieces = [rows([("ann", 1)]), rows([("bob", 1), ("ann", 2)]), rows([])]
    answers = run_task(program(), host.partition, 0, iter(pieces), as_they_come=True)
    assert [row["n"] for row in next(answers).to_pylist()] == [1]
    assert not host.changelog(1).exists()
    assert [(row["user"], row["n"]) for row in next(answers).to_pylist()] == [("ann", 2), ("bob", 1)]
    assert [table.num_rows for table in answers] == [0]
    assert host.changelog(1).exists()
    assert host.run(1, ("ann", 1)) == [("ann", 3, 4)]


def test_a_version_says_how_the_store_came_to_it(tmp_path: Path) -> None:
    here, there = Host(tmp_path, "here"), Host(tmp_path, "there")
    there.run(0, ("ann", 1))
    for batch in range(4):
        here.run(batch, ("ann", 1))
    found = []
    for host in (here, there, Host(tmp_path, "new")):
        with host.partition.at(4) as version:
            found.append((version.reached.how, version.reached.versions))
    assert found == [("here", 0), ("stepped", 3), ("rebuilt", 0)]


# ---- a partition that is not in every batch


def test_a_partition_that_is_not_in_every_batch_goes_on_from_its_newest_version(tmp_path: Path) -> None:
    host, other = Host(tmp_path, gaps=True), Host(tmp_path, "other", gaps=True)
    host.run(0, ("ann", 1))
    assert host.run(7, ("ann", 1)) == [("ann", 2, 2)]
    assert other.run(9, ("ann", 1)) == [("ann", 3, 3)]
    assert host.run(9, ("ann", 1)) == [("ann", 3, 3)]
    assert host.run(12, ("ann", 1)) == [("ann", 4, 4)]


def test_a_run_that_was_overtaken_is_refused_where_versions_have_gaps(tmp_path: Path) -> None:
    host = Host(tmp_path, gaps=True)
    host.run(0, ("ann", 1))
    host.run(9, ("ann", 1))
    with pytest.raises(StateMismatch, match="at version 10, ahead of batch 3"):
        host.run(3, ("ann", 1))


@pytest.mark.parametrize("other", ["host", "another"])
def test_two_tasks_with_rows_of_one_partition_are_refused_instead_of_one_undoing_the_other(
    tmp_path: Path, other: str
) -> None:
    host = Host(tmp_path, gaps=True)
    host.run_as("run1:0", 0, ("ann", 1))
    host.run_as("run1:0", 0, ("ann", 1))
    with pytest.raises(StateMismatch, match="tasks 0 and 4 both have rows of partition 0"):
        Host(tmp_path, other, gaps=True).run_as("run1:4", 0, ("bob", 1))
    host.run_as("run2:1", 0, ("ann", 5))  # another run may have other rows: its code was changed
    assert host.run(1, ("ann", 1)) == [("ann", 2, 6)]


# ---- state that changes its shape


def _with(tmp_path: Path, name: str, *values: Column, key: tuple[tuple[str, pa.DataType], ...] = ()) -> Partition:
    spec = TableSpec.of("t", key or [("k", pa.string())], values)
    return Partition(History(LocalFiles(tmp_path / "checkpoint"), "evolving", 0), tmp_path / name, [spec])


N, EXTRA = Column("n", pa.int64(), 0), Column("extra", pa.string(), "none")


def test_a_column_can_be_added_and_old_rows_have_its_default(tmp_path: Path) -> None:
    old = _with(tmp_path, "old", N)
    with old.at(0) as version:
        version.state["t"].put({"k": ["a", "b"]}, {"n": [1, 2]})
        old.commit(version)
    new = _with(tmp_path, "new", N, EXTRA)
    with new.at(1) as version:
        version.state["t"].put({"k": ["b", "c"]}, {"n": [5, 6], "extra": ["x", "y"]})
        new.commit(version)
    for host in ("new", "third"):
        with _with(tmp_path, host, N, EXTRA).at(2) as version:
            assert version.state["t"].range().table().to_pylist() == [
                {"k": "a", "n": 1, "extra": "none"},
                {"k": "b", "n": 5, "extra": "x"},
                {"k": "c", "n": 6, "extra": "y"},
            ]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ((Column("n", pa.int32(), 0),), "columns can be added, not changed or removed"),
        ((EXTRA,), "no such column"),
    ],
)
def test_a_column_cannot_be_changed_or_removed(tmp_path: Path, changed: tuple[Column, ...], problem: str) -> None:
    old = _with(tmp_path, "old", N)
    with old.at(0) as version:
        version.state["t"].put({"k": ["a"]}, {"n": [1]})
        old.commit(version)
    with pytest.raises(StateMismatch, match=problem), _with(tmp_path, "new", *changed).at(1):
        pass
    with (
        pytest.raises(StateMismatch, match="a key cannot change"),
        _with(tmp_path, "k", N, key=(("k", pa.int64()),)).at(1),
    ):
        pass


# ---- anything, in any order


@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),  # the host
            st.sampled_from(["next", "next", "next", "again", "lost", "snapshot", "killed"]),
            st.lists(st.tuples(st.sampled_from(["ann", "bob", "cy"]), st.integers(-5, 5)), max_size=4),
        ),
        max_size=20,
    )
)
@settings(max_examples=15, deadline=None)
def test_any_history_of_hosts_retries_losses_and_kills_gives_the_rows_of_a_run_without_them(
    events: list[tuple[str, str, list[tuple[str, int]]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("any")
    hosts = {name: Host(tmp_path, name, keep=3) for name in "abc"}
    done: list[list[tuple[str, int]]] = []
    totals: dict[str, tuple[int, int]] = {}
    for name, what, pairs in events:
        host = hosts[name]
        if what == "lost":
            discard_store(host.store)
        elif what == "snapshot" and host.store.exists():
            host.partition.snapshot()
        elif what == "again" and done:
            host.run(len(done) - 1, *done[-1])
        elif what == "killed":
            with host.partition.at(len(done)) as version:
                Step(program(), version.state).feed(rows(pairs))  # and no commit
        elif what == "next":
            for user, amount in pairs:
                n, total = totals.get(user, (0, 0))
                totals[user] = (n + 1, total + amount)
            expected = sorted((user, *totals[user]) for user in {user for user, _ in pairs})
            assert host.run(len(done), *pairs) == expected
            done.append(pairs)
    for host in hosts.values():
        with host.partition.at(len(done)) as version:
            kept = version.state["running"].range()
            assert dict(zip(kept["user"].to_pylist(), kept["rows"].to_pylist(), strict=True)) == {
                user: n for user, (n, _) in totals.items()
            }
            assert Step(program(), version.state).feed(rows([])).num_rows == 0
