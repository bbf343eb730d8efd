"""The two readers as processes: ours, and Debezium's engine from its jars."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.kafka_peer import PEERS

__all__ = ["Measured", "debezium", "headwater", "started_debezium", "started_headwater"]

DEBEZIUM_VERSION = "3.6.1.Final"
SOURCE = Path(__file__).with_name("DebeziumFollower.java")
TIMEOUT_S = 600
_ARTIFACTS = [
    ("io.debezium", "debezium-api", DEBEZIUM_VERSION),
    ("io.debezium", "debezium-embedded", DEBEZIUM_VERSION),
    ("io.debezium", "debezium-connector-postgres", DEBEZIUM_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a reader said at its end; the processor time is of its whole life, start-up included."""

    events: int
    seconds: float
    cpu_s: float
    peak_mib: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0

    @property
    def rate(self) -> float:
        return self.events / self.seconds

    @property
    def events_per_cpu_s(self) -> float:
        return self.events / self.cpu_s


def headwater(bootstrap: str, settings: Mapping[str, Any], events: int) -> Measured:
    with started_headwater(bootstrap, settings, events) as process:
        return _result(process)


def debezium(port: int, slot: str, mode: str, events: int, *properties: str, output: str = "-") -> Measured:
    with started_debezium(port, slot, mode, events, *properties, output=output) as process:
        return _result(process)


@contextmanager
def started_headwater(bootstrap: str, settings: Mapping[str, Any], events: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "bench.capture.follower", bootstrap, json.dumps(settings), str(events)]
    yield from _run(command)


@contextmanager
def started_debezium(
    port: int, slot: str, mode: str, events: int, *properties: str, output: str = "-"
) -> Iterator[subprocess.Popen[bytes]]:
    libs = _libs()
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    command = ["java", quiet, "-cp", f"{libs}:{libs}/*", "DebeziumFollower", str(port), slot, mode, str(events), output]
    yield from _run([*command, *properties])


def _run(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _result(process: subprocess.Popen[bytes]) -> Measured:
    out, _ = process.communicate(timeout=TIMEOUT_S)
    if process.returncode != 0 or not out.strip():
        raise RuntimeError(f"a reader ended with {process.returncode}: {out.decode()}")
    return Measured(**json.loads(out.splitlines()[-1]))


def _libs() -> Path:
    """Debezium's jars and our follower, compiled; resolved on first use."""
    given = os.environ.get("HEADWATER_DEBEZIUM_LIBS")
    libs = Path(given) if given else PEERS / "debezium" / DEBEZIUM_VERSION
    if not any(libs.glob(f"debezium-embedded-{DEBEZIUM_VERSION}.jar")):
        _resolve(libs)
    compiled = libs / "DebeziumFollower.class"
    if not compiled.exists() or compiled.stat().st_mtime < SOURCE.stat().st_mtime:
        subprocess.run(["javac", "-cp", f"{libs}/*", "-d", str(libs), str(SOURCE)], check=True)
    return libs


def _resolve(libs: Path) -> None:
    if shutil.which("mvn") is None:
        raise RuntimeError("Debezium needs Maven (`mvn`) to take its jars; install it or set HEADWATER_DEBEZIUM_LIBS")
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in _ARTIFACTS
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>headwater</groupId><artifactId>debezium-peer</artifactId><version>1</version>"
            f"<dependencies>{dependencies}</dependencies></project>"
        )
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
        subprocess.run(command, cwd=folder, check=True)
