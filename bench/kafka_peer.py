"""A real Apache Kafka as a single KRaft node, from Maven jars, for benchmarks and interop tests.

The jars are resolved once into `.peers/kafka/` with Maven; `HEADWATER_KAFKA_LIBS` names a folder that has them already.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.report import wait_for_port

__all__ = ["KafkaPeer", "classpath", "free_port", "kafka_peer", "run_tool"]

KAFKA_VERSION = "4.3.1"
ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".peers"

# what Kafka's own start script gives a broker
JVM = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
QUIET = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]

# group, name, version: all that a broker and its tools need, and a logger that writes to standard error
_ARTIFACTS = [
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-server", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-clients", KAFKA_VERSION),
    ("org.apache.kafka", "connect-file", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
]
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass(frozen=True, slots=True)
class KafkaPeer:
    """A running broker."""

    port: int
    process: subprocess.Popen[bytes]
    data: Path
    started: float  # time.monotonic() when the broker's process was

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def classpath() -> str:
    """Kafka's jars as a Java class path; resolved on first use."""
    given = os.environ.get("HEADWATER_KAFKA_LIBS")
    libs = Path(given) if given else PEERS / "kafka" / KAFKA_VERSION
    if not all(
        any(libs.glob(f"{name}-{KAFKA_VERSION}.jar")) for _, name, version in _ARTIFACTS if version == KAFKA_VERSION
    ):
        _resolve(libs)
    return f"{libs}/*"


def _resolve(libs: Path) -> None:
    if shutil.which("mvn") is None:
        raise RuntimeError(
            "the Kafka peer needs Maven (`mvn`) to take its jars; install it or set HEADWATER_KAFKA_LIBS"
        )
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in _ARTIFACTS
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>headwater</groupId><artifactId>kafka-peer</artifactId><version>1</version>"
            f"<dependencies>{dependencies}</dependencies></project>"
        )
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
        subprocess.run(command, cwd=folder, check=True)


@contextmanager
def kafka_peer(settings: Mapping[str, str] | None = None, *, directory: Path | None = None) -> Iterator[KafkaPeer]:
    """A broker on a free port with fresh storage, gone afterwards."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        port, controller = free_port(), free_port()
        data = Path(folder) / "data"
        properties = Path(folder) / "server.properties"
        lines = {
            **_SETTINGS,
            "controller.quorum.voters": f"{(settings or {}).get('node.id', '1')}@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(data),
            **(settings or {}),
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        run_tool("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(properties))
        started = time.monotonic()
        process = subprocess.Popen(
            ["java", *JVM, *QUIET, "-cp", classpath(), "kafka.Kafka", str(properties)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for_port(port, process)
            yield KafkaPeer(port, process, data, started)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run_tool(main_class: str, *arguments: str, timeout_s: float = 600) -> str:
    """A tool of Kafka's, run to its end; what it printed."""
    command = ["java", "-Xmx512M", *QUIET, "-cp", classpath(), main_class, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"{main_class} {' '.join(arguments)} exited with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        )
    return done.stdout
