"""A piece of a segment file, on its way to a socket."""

from __future__ import annotations

import os

from headwater.errors import Corrupted
from headwater.log.files import LogFile

__all__ = ["FileRegion"]


class FileRegion:
    """Bytes [position, position + length) of a file. Readable while it is held, also if its segment is deleted."""

    __slots__ = ("_file", "length", "position")

    def __init__(self, file: LogFile, position: int, length: int) -> None:
        self._file = file
        self.position = position
        self.length = length

    @property
    def path(self) -> str:
        return self._file.path

    def fileno(self) -> int:
        """The file's descriptor; valid until the owner's thread touches another log file."""
        return self._file.descriptor()

    def read(self) -> bytes:
        content = self._file.read(self.length, self.position) if self.length else b""
        if len(content) != self.length:
            raise self._cut_short(len(content))
        return content

    def send(self, socket_fd: int, skip: int = 0) -> int:
        """Send what follows the first `skip` bytes with sendfile; how many bytes went. BlockingIOError as the socket
        says.
        """
        sent = os.sendfile(socket_fd, self._file.descriptor(), self.position + skip, self.length - skip)
        if sent == 0 and skip < self.length:
            raise self._cut_short(skip)
        return sent

    def _cut_short(self, there: int) -> Corrupted:
        return Corrupted(
            self._file.path, self.position + there, f"the file ends within a region of {self.length} bytes"
        )

    def __len__(self) -> int:
        return self.length
