"""kafka-python's own integration tests, from its sdist, as they are: what passes on Kafka passes on ours.

The sdist leaves out two files that its tests import; `test/__init__.py` and a `test/service.py` for brokers that are
running already take their place. Tests that start brokers of their own (SASL, SSL) are skipped by the suite itself or
left out here; those of access lists fail on both, as neither broker has an authorizer.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from bench.broker.servers import headwater, kafka

from .conftest import OURS

SETTINGS = ["num.partitions=4", "node.id=0", "group.min.session.timeout.ms=1000"]
NEEDS_ITS_OWN_BROKER = ("test/integration/test_ssl_integration.py", "test/integration/test_sasl_integration.py")
EXTERNAL_SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    pass
"""
TIMEOUT_S = 600


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist of the kafka-python that is installed."""
    folder = tmp_path_factory.mktemp("kafka-python")
    version = __import__("kafka").__version__
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "kafka-python",
         f"kafka-python=={version}"],
        cwd=folder,
        check=True,
        timeout=TIMEOUT_S,
    )  # fmt: skip
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    root = next(path for path in folder.iterdir() if path.is_dir())
    (root / "test" / "__init__.py").touch()
    (root / "test" / "service.py").write_text(EXTERNAL_SERVICE)
    return root


def outcomes(name: str, suite: Path, folder: Path) -> dict[str, set[str]]:
    """The tests by outcome: PASSED, FAILED, ERROR."""
    with (headwater if name == OURS else kafka)(SETTINGS) as server:
        where = {"KAFKA_URI": f"kafka://{server.bootstrap}", "KAFKA_VERSION": "4.3.1", "KAFKA_ROOT": str(folder)}
        ignored = [f"--ignore={file}" for file in NEEDS_ITS_OWN_BROKER]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "test/integration",
                "-q",
                "-rA",
                "--tb=line",
                "--show-capture=no",
                *ignored,
            ],
            cwd=suite,
            env={**os.environ, **where},
            text=True,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    found: dict[str, set[str]] = {"PASSED": set(), "FAILED": set(), "ERROR": set()}
    for outcome, test in re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE):
        found[outcome].add(test)
    assert found["PASSED"], done.stdout[-3000:] + done.stderr[-3000:]
    return found


def test_what_passes_on_kafka_passes_on_ours(suite: Path, tmp_path: Path) -> None:
    ours, peer = (outcomes(name, suite, tmp_path) for name in (OURS, "kafka"))
    print({name: len(tests) for name, tests in ours.items()}, {name: len(tests) for name, tests in peer.items()})
    assert not peer["PASSED"] - ours["PASSED"], ours["FAILED"] | ours["ERROR"]
