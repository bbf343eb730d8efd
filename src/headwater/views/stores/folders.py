"""What stores in folders share: a catalog in a file that changes atomically, and locks that die with their process."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.views.errors import StoreUnavailable
from headwater.views.stores import Catalog

__all__ = ["CatalogFile", "FileLock", "replace_file"]

LOCK_TIMEOUT_S = 10.0  # for whoever holds it to finish a batch; a process that is stopped keeps it
LOCK_POLL_S = 0.01

CATALOG = "catalog.json"


class FileLock:
    """An exclusive lock, free again when its holder closes it or dies. `release` may be called twice."""

    def __init__(self, path: Path, *, timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        end = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if time.monotonic() > end:
                    os.close(self._fd)
                    raise StoreUnavailable(
                        f"another process holds {path} and has not let go within {timeout_s:.0f} s"
                    ) from error
                time.sleep(LOCK_POLL_S)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class CatalogFile:
    """The catalog of a view in its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def read(self) -> Catalog:
        try:
            return Catalog.from_json((self._folder / CATALOG).read_text())
        except FileNotFoundError:
            return Catalog()

    def change(self, change: Callable[[Catalog], Catalog]) -> Catalog:
        with self.locked():
            new = change(self.read())
            replace_file(self._folder / CATALOG, new.to_json())
            return new

    @contextmanager
    def locked(self) -> Iterator[None]:
        lock = FileLock(self._folder / "catalog.lock")
        try:
            yield
        finally:
            lock.release()


def replace_file(path: Path, text: str) -> None:
    """Atomically, and on disk when it returns."""
    beside = path.with_suffix(".new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, text.encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(beside, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
