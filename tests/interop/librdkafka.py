"""librdkafka's own tests: the source that the crate rdkafka-sys carries, built once into `.peers/librdkafka/`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

__all__ = ["outcomes", "runner"]

# A package of nothing but the dependency, so that cargo fetches the crate by its name
MANIFEST = """[package]
name = "librdkafka-tests"
version = "0.0.0"
[lib]
path = "nothing.rs"
[dependencies]
rdkafka-sys = "=4.10.0+2.12.1"
"""
FOLDER = Path(__file__).resolve().parents[2] / ".peers" / "librdkafka"
BUILD_TIMEOUT_S = 1_800
CONFIGURE = ("./configure", "--disable-ssl", "--disable-gssapi", "--disable-curl")


def runner() -> Path:
    """The folder of the built test program."""
    given = os.environ.get("HEADWATER_LIBRDKAFKA")
    source = Path(given) if given else FOLDER / "vendor" / "rdkafka-sys" / "librdkafka"
    if not source.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "Cargo.toml").write_text(MANIFEST)
        (FOLDER / "nothing.rs").touch()
        subprocess.run(("cargo", "vendor"), cwd=FOLDER, check=True, capture_output=True, timeout=BUILD_TIMEOUT_S)
    tests = source / "tests"
    if not (tests / "test-runner").exists():
        for command, folder in ((CONFIGURE, source), (("make", "libs"), source), (("make", "test-runner"), tests)):
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=BUILD_TIMEOUT_S)
    return tests


def outcomes(tests: Path, bootstrap: str, names: tuple[str, ...], folder: Path, *, timeout_s: float) -> dict[str, str]:
    """PASSED, FAILED or SKIPPED by test: each in a process of its own, one after the other."""
    found = {}
    config = folder / "test.conf"
    config.write_text(f"bootstrap.servers={bootstrap}\ntest.topic.random=true\n")
    for name in names:
        report = folder / f"{name}.json"
        environment = {
            **os.environ,
            "TESTS": name,
            "RDKAFKA_TEST_CONF": str(config),
            "TEST_REPORT": str(report),
            "TEST_KAFKA_VERSION": "4.0.0",
            "LD_LIBRARY_PATH": f"{tests.parent / 'src'}:{tests.parent / 'src-cpp'}",
        }
        try:
            subprocess.run(
                ["./test-runner", "-p1", "-E"],
                cwd=tests,
                env=environment,
                timeout=timeout_s,
                capture_output=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            found[name] = "TIMEOUT"
            continue
        found[name] = _state(report)
    return found


def _state(report: Path) -> str:
    try:
        document = json.loads(report.read_text())
    except (OSError, ValueError):
        return "CRASHED"
    states = [test["state"] for test in document["tests"].values()]
    return str(states[0]) if states else "SKIPPED"
