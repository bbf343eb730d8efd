"""`headwater dump` and `headwater verify` on a real directory, whole and damaged in every way."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from headwater.cli.main import main
from headwater.filesystem import SystemFilesystem
from headwater.log.settings import FOREVER_MS, LogSettings
from headwater.log.verifying import verify_directory
from log.support import Store, batch, idempotent, keyed, transactional

SETTINGS = LogSettings(segment_bytes=450, segment_ms=FOREVER_MS, index_interval_bytes=100)


def made(path: Path) -> Path:
    """Segments with everything in them, closed cleanly."""
    store = Store(path)
    log = store.log(SETTINGS)
    for number in range(4):
        log.append(batch(f"v{number}", "w", timestamp=store.clock.now_ms()), leader_epoch=0)
        log.append(idempotent(number, "i", producer_id=11), leader_epoch=0)
        store.clock.advance(10)
    log.append(transactional(0, "gone"), leader_epoch=0)
    log.append_marker(7, 0, commit=False, coordinator_epoch=0, leader_epoch=0)
    log.append(transactional(1, "kept"), leader_epoch=1)
    log.append_marker(7, 0, commit=True, coordinator_epoch=0, leader_epoch=1)
    log.append(keyed([("k", None)], codec=1), leader_epoch=1)
    store.close()
    return path


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("data"))


@pytest.fixture
def copy(directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(directory, tmp_path / "copy"))


def found(directory: Path) -> list[tuple[str, int]]:
    return [
        (Path(each.path).name, each.position) for each in verify_directory(SystemFilesystem(), str(directory)).damage
    ]


def test_a_whole_directory_is_as_it_was_written(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(directory)]) == 0
    assert "all as it was written" in capsys.readouterr().out
    assert main(["verify", str(directory), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["partitions"] == 1
    assert document["segments"] > 1
    assert document["records"] == 17
    assert document["damage"] == []


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_every_flipped_byte_is_found_and_named(copy: Path, suffix: str) -> None:
    rng = random.Random(4)
    looked_at = 0
    for file in sorted((copy / "events-0").glob(f"*{suffix}")):
        content = file.read_bytes()
        for position in range(len(content)):
            damaged = bytearray(content)
            damaged[position] ^= 1 << rng.randrange(8)
            file.write_bytes(damaged)
            assert file.name in {name for name, _ in found(copy)}, f"byte {position} of {file.name}"
            looked_at += 1
        file.write_bytes(content)
    assert looked_at > 0
    assert found(copy) == []


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_files_cut_anywhere_are_found(copy: Path, suffix: str) -> None:
    """Where whole batches or entries are missing at the end, something else tells."""
    for file in sorted((copy / "events-0").glob(f"*{suffix}")):
        content = file.read_bytes()
        for size in range(len(content)):
            file.write_bytes(content[:size])
            whole_entries = suffix == ".index" and size % 8 == 0  # an index may have fewer entries
            whole_entries |= suffix == ".timeindex" and size % 12 == 0
            assert found(copy) or whole_entries, f"{file.name} cut to {size} bytes"
        file.write_bytes(content)


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "events-0/leader-epoch-checkpoint",
        "events-0/partition.metadata",
    ],
)
def test_small_files_that_cannot_be_read_are_found(copy: Path, name: str) -> None:
    (copy / name).write_bytes(b"\0garbage\n")
    assert Path(name).name in {file for file, _ in found(copy)}


def test_missing_indexes_and_segments_are_found(copy: Path) -> None:
    index = min((copy / "events-0").glob("*.index"))
    content = index.read_bytes()
    index.unlink()
    assert found(copy) == [(index.name, 0)]
    index.write_bytes(content)
    logs = sorted((copy / "events-0").glob("*.log"))
    for file in (copy / "events-0").glob(f"{logs[1].stem}.*"):
        file.unlink()
    assert (logs[2].name, 0) in found(copy)


def test_a_wrong_leader_epoch_is_found(copy: Path) -> None:
    file = min((copy / "events-0").glob("*.log"))
    content = bytearray(file.read_bytes())
    content[15] = 9
    file.write_bytes(content)
    assert found(copy) == [(file.name, 12)]


def test_damage_is_named_and_the_exit_code_says_so(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = min((copy / "events-0").glob("*.log"))
    content = bytearray(file.read_bytes())
    content[100] ^= 1  # in the second batch
    file.write_bytes(content)
    assert main(["verify", str(copy)]) == 3
    out = capsys.readouterr().out
    assert str(file) in out
    assert "checksum" in out
    assert main(["verify", str(copy), "--json"]) == 3
    damage = json.loads(capsys.readouterr().out)["damage"]
    assert [(each["file"], each["position"]) for each in damage] == [(str(file), 80)]
    assert main(["dump", str(file)]) == 3
    assert "checksum" in capsys.readouterr().out


def test_a_directory_in_use_is_not_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path)
    assert main(["verify", str(tmp_path)]) == 1
    assert "in use" in capsys.readouterr().err
    store.close()
    assert main(["verify", str(tmp_path / "nothing")]) == 1
    assert "not a directory" in capsys.readouterr().err


def test_dump_shows_batches_and_records(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = sorted(str(file) for file in (directory / "events-0").glob("*.log"))
    assert main(["dump", "--json", "--records", *logs]) == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    values = [item["value"] for item in items if "value" in item and item["key"] == "k"]
    assert values == ["v0", "w", "i", "v1", "w", "i", "v2", "w", "i", "v3", "w", "i", "gone", "kept", None]
    assert [item["marker"] for item in items if "marker" in item] == ["abort", "commit"]
    assert [item["codec"] for item in items if "codec" in item][-1] == "gzip"
    assert main(["dump", logs[0]]) == 0
    assert "base_offset: 0" in capsys.readouterr().out


def test_dump_shows_a_whole_folder(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["dump", "--json", str(directory / "events-0"), str(directory / "recovery-point-offset-checkpoint")]) == 0
    )
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_kind: dict[str, list[dict[str, object]]] = {}
    for item in items:
        by_kind.setdefault(Path(item["file"]).suffix or Path(item["file"]).name, []).append(item)
    assert {item["leader_epoch"]: item["start_offset"] for item in by_kind["leader-epoch-checkpoint"]} == {0: 0, 1: 14}
    assert [item["producer_id"] for item in by_kind[".txnindex"]] == [7]
    assert {11, 7} <= {item["producer_id"] for item in by_kind[".snapshot"]}
    assert by_kind["recovery-point-offset-checkpoint"][0]["offset"] == 17
    assert by_kind[".index"]
    assert by_kind[".timeindex"]


def test_dump_says_what_it_cannot_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert main(["dump", str(tmp_path / "notes.txt")]) == 1
    assert "is no file of the log" in capsys.readouterr().err
    assert main(["dump", str(tmp_path)]) == 1
    assert "no files of the log" in capsys.readouterr().err
