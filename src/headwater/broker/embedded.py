"""A broker inside this process: for programs, notebooks and tests.

with Broker() as broker:
    Producer({"bootstrap.servers": broker.bootstrap_servers})
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import EnvironmentFailed

if TYPE_CHECKING:
    from headwater.broker.runtime import Runtime

__all__ = ["Broker"]

# The process is somebody else's: `select`, which PySpark's bridge and others use, takes no descriptor beyond 1,023.
OPEN_FILES_MAX = 256

STOP_TIMEOUT_S = 30.0  # closing writes what is unwritten; past this something is stuck and the thread is left behind


class Broker:
    """A real broker on its own thread. Without `data` it uses a temporary directory that is thrown away with it.

    `settings` are Kafka's broker settings with underscores for dots: `Broker(num_partitions=4)`.
    """

    def __init__(self, data: str | Path | None = None, listen: str = "127.0.0.1:0", **settings: object) -> None:
        self._data = data
        self._settings = {name.replace("_", "."): _text(value) for name, value in settings.items()}
        self._settings.setdefault("listeners", listen if "://" in listen else f"PLAINTEXT://{listen}")
        self._runtime: Runtime | None = None
        self._thread: threading.Thread | None = None
        self._temporary: str | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect to; only while it runs."""
        if self._runtime is None:
            raise EnvironmentFailed("the broker is not running; call start() or use it in a `with` statement")
        return ",".join(f"{listener.host}:{listener.port}" for listener in self._runtime.listeners)

    @property
    def data(self) -> Path:
        """The directory that holds the log."""
        if self._data is None and self._temporary is None:
            raise EnvironmentFailed("a broker without `data` has a directory only while it runs")
        return Path(self._data or self._temporary or "")

    def start(self) -> Broker:
        """Open the data directory and serve; returns when clients can connect."""
        from headwater.broker.runtime import Runtime

        if self._runtime is not None:
            return self
        if self._data is None:
            self._temporary = tempfile.mkdtemp(prefix="headwater-")
        try:
            self._runtime = Runtime(str(self.data), self._settings, open_files_max=OPEN_FILES_MAX)
        except BaseException:
            self._throw_away()
            raise
        self._thread = threading.Thread(target=self._runtime.run, name="headwater-broker", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop serving, write everything and, without `data`, throw the directory away."""
        if self._runtime is None or self._thread is None:
            return
        self._runtime.stop()
        self._thread.join(STOP_TIMEOUT_S)
        stuck = self._thread.is_alive()
        self._runtime = self._thread = None
        self._throw_away()
        if stuck:
            raise EnvironmentFailed(f"the broker did not stop within {STOP_TIMEOUT_S:.0f} s")

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _throw_away(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
