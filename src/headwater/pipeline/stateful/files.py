"""Where a state's history lies: local directories, and whatever Arrow or fsspec reaches (S3, HDFS, ...).

Invariant: a file appears whole under its name or not at all. Locally by writing beside it and renaming, both forced to
disk; on object stores by their own put, which is atomic.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import pyarrow.fs

__all__ = ["Files", "LocalFiles", "RemoteFiles", "files_at"]


class Files(Protocol):
    """A folder of immutable files; names may contain '/'."""

    where: str

    def read(self, name: str) -> bytes | None:
        """The file's bytes; None when there is none."""
        ...

    def head(self, name: str, length: int) -> bytes | None:
        """The first bytes of the file; None when there is none."""
        ...

    def write(self, name: str, chunks: Iterable[bytes]) -> int:
        """Create or replace the file as a whole; the bytes written."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; empty when there is no such folder."""
        ...

    def delete(self, name: str) -> None:
        """Remove the file if it is there."""
        ...


class LocalFiles:
    """A folder on this machine, or mounted."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.where = str(root)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def head(self, name: str, length: int) -> bytes | None:
        try:
            with (self.root / name).open("rb") as file:
                return file.read(length)
        except FileNotFoundError:
            return None

    def write(self, name: str, chunks: Iterable[bytes]) -> int:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
        try:
            with beside.open("wb") as file:
                written = sum(file.write(chunk) for chunk in chunks)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        self._sync_folder(path.parent)
        return written

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.root / folder) if not name.startswith("."))
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    @staticmethod
    def _sync_folder(folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class RemoteFiles:
    """A folder of an Arrow file system: renames where files grow in place (HDFS), puts where there are objects."""

    def __init__(self, system: Any, root: str, where: str) -> None:
        self._system, self._root, self.where = system, root.rstrip("/"), where
        self._renames = system.type_name == "hdfs"

    def read(self, name: str) -> bytes | None:
        try:
            with self._system.open_input_stream(self._path(name)) as stream:
                data: bytes = stream.read()
                return data
        except FileNotFoundError:
            return None

    def head(self, name: str, length: int) -> bytes | None:
        try:
            with self._system.open_input_file(self._path(name)) as file:
                data: bytes = file.read(length)
                return data
        except FileNotFoundError:
            return None

    def write(self, name: str, chunks: Iterable[bytes]) -> int:
        path = self._path(name)
        if self._renames:
            self._system.create_dir(path.rsplit("/", 1)[0], recursive=True)
        target = f"{path}.{uuid.uuid4().hex[:12]}.tmp" if self._renames else path
        with self._system.open_output_stream(target) as stream:
            written = sum(stream.write(chunk) or len(chunk) for chunk in chunks)
        if self._renames:
            self.delete(name)
            self._system.move(target, path)
        return written

    def names(self, folder: str) -> list[str]:
        selector = pyarrow.fs.FileSelector(self._path(folder), allow_not_found=True)
        found = self._system.get_file_info(selector)
        return sorted(info.base_name for info in found if not info.base_name.endswith(".tmp"))

    def delete(self, name: str) -> None:
        try:
            self._system.delete_file(self._path(name))
        except FileNotFoundError:
            return

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def files_at(location: str, options: Mapping[str, Any] | None = None) -> Files:
    """The folder at a path or URI. `options` go to the file system (for S3: endpoint_override, region, scheme ...)."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return LocalFiles(parts.path if parts.scheme else location)
    path = f"{parts.netloc}{parts.path}"
    if parts.scheme in ("s3", "s3a", "s3n"):
        return RemoteFiles(pyarrow.fs.S3FileSystem(**(options or {})), path, location)
    if parts.scheme in ("hdfs", "viewfs", "gs", "gcs", "abfs", "abfss"):
        system, root = pyarrow.fs.FileSystem.from_uri(location)
        return RemoteFiles(system, root, location)
    import fsspec

    handler = pyarrow.fs.FSSpecHandler(fsspec.filesystem(parts.scheme, **(options or {})))
    return RemoteFiles(pyarrow.fs.PyFileSystem(handler), path, location)
