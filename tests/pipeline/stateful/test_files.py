"""Where the history lies: a local folder, S3, and anything fsspec reaches keep the same promises."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.pipeline.stateful.files import Files, LocalFiles, files_at

from .totals import Host


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, object]]:
    """The options of an S3 on this machine with one bucket."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"access_key": "test", "secret_key": "test"}
    secrets = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1", **secrets)
    client.create_bucket(Bucket="states")
    yield {"endpoint_override": f"{host}:{port}", "scheme": "http", "region": "us-east-1", **keys}
    server.stop()


@pytest.fixture(params=["local", "file", "s3", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    if request.param == "local":
        return files_at(str(tmp_path / "checkpoint"))
    if request.param == "file":
        return files_at((tmp_path / "checkpoint").as_uri())
    if request.param == "s3":
        return files_at(f"s3://states/{uuid.uuid4().hex}/checkpoint", request.getfixturevalue("s3"))
    return files_at(f"memory://{uuid.uuid4().hex}/checkpoint")


def test_a_file_is_there_as_a_whole_or_not_at_all(files: Files) -> None:
    assert files.read("a/b") is None
    assert files.head("a/b", 3) is None
    assert files.names("a") == []
    assert files.write("a/b", [b"hello ", b"world"]) == 11
    assert files.read("a/b") == b"hello world"
    assert files.head("a/b", 5) == b"hello"
    files.write("a/b", [b"again"])
    files.write("a/a", [b""])
    assert files.read("a/b") == b"again"
    assert files.names("a") == ["a", "b"]
    files.delete("a/b")
    files.delete("a/b")
    assert files.names("a") == ["a"]


def test_a_state_lives_there_and_another_host_goes_on_with_it(files: Files, tmp_path: Path) -> None:
    here, there = (Host(tmp_path, name, files=files) for name in ("here", "there"))
    for batch in range(3):
        here.run(batch, ("ann", 1))
    here.partition.snapshot()
    assert there.run(3, ("ann", 1)) == [("ann", 4, 4)]
    assert here.run(4, ("ann", 1)) == [("ann", 5, 5)]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        files.write("a/b", broken())
    assert files.names("a") == []
    assert list((tmp_path / "a").iterdir()) == []
