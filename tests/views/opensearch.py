"""A real OpenSearch node for interop tests, from Maven jars resolved once into `.peers/opensearch/`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.kafka_peer import PEERS, free_port
from bench.report import wait_for_port

__all__ = ["OpenSearchServer"]

VERSION, LOG4J = "2.19.6", "2.25.4"
SOURCE = Path(__file__).with_name("OpenSearchNode.java")
_ARTIFACTS = [
    ("org.opensearch", "opensearch", VERSION),
    ("org.opensearch.plugin", "transport-netty4-client", VERSION),
    ("org.apache.logging.log4j", "log4j-core", LOG4J),
]


class OpenSearchServer:
    """One node with its own folder and ports; use it as a context manager."""

    def __init__(self) -> None:
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="headwater-opensearch-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"opensearch:http://127.0.0.1:{self.port}"

    def start(self) -> OpenSearchServer:
        libs = _jars()
        (self._folder / "config").mkdir(exist_ok=True)
        words = ["java", "-Xmx512M", "-cp", f"{libs}:{libs}/*", "OpenSearchNode", str(self._folder), str(self.port)]
        self._process = subprocess.Popen(
            [*words, str(free_port())], stdout=subprocess.DEVNULL, stderr=(self._folder / "errors").open("ab")
        )
        wait_for_port(self.port, self._process, 120)
        return self

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def __enter__(self) -> OpenSearchServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def _jars() -> Path:
    libs = PEERS / "opensearch" / VERSION
    if not (libs / "OpenSearchNode.class").exists():
        dependencies = "".join(
            f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version></dependency>"
            for g, a, v in _ARTIFACTS
        )
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "pom.xml").write_text(
                '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
                "<groupId>headwater</groupId><artifactId>opensearch-peer</artifactId><version>1</version>"
                f"<dependencies>{dependencies}</dependencies></project>"
            )
            words = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
            subprocess.run(words, cwd=folder, check=True)
        subprocess.run(["javac", "-cp", f"{libs}/*", "-d", str(libs), str(SOURCE)], check=True)
    return libs
