"""`headwater doctor`: looks at this machine and says what to do. Exit code 0 when nothing stands in the way.

A check gives a state (ok, note, problem), what was found, and, unless it is ok, what to do. Notes are about parts that
are optional; problems stop something that headwater itself needs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from headwater.errors import HeadwaterError
from headwater.settings import Settings, load_settings

__all__ = ["HELP", "Finding", "add_arguments", "run"]

HELP = "Check this machine and say what to do."

PYTHON_MIN = (3, 11)
JAVA_MIN = 17
DISK_BYTES_MIN = 2 << 30  # the demo with Spark's jars and its logs needs about 1 GiB
JAVA_TIMEOUT_S = 20.0
CONNECT_TIMEOUT_S = 2.0

OK, NOTE, PROBLEM = "ok", "note", "problem"

# extra -> the distributions that it is made of
_EXTRAS = {
    "pipeline": ("pyspark", "pyarrow", "lmdb", "polars"),
    "capture": ("psycopg",),
    "views": ("tantivy", "deltalake", "redis", "duckdb"),
    "console": ("starlette", "uvicorn"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    state: str
    found: str
    advice: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (default: headwater.toml, if there)")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(arguments: argparse.Namespace) -> int:
    findings = list(examine(load_settings(file=arguments.config)))
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print(findings)
    return 1 if any(finding.state == PROBLEM for finding in findings) else 0


def _print(findings: list[Finding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        print(f"{finding.state:<8} {finding.check:<{width}}  {finding.found}")
        if finding.advice:
            print(f"{'':<8} {'':<{width}}  → {finding.advice}")


def examine(settings: Settings) -> Iterator[Finding]:
    """All findings, in the order in which a newcomer needs them."""
    yield _python()
    yield _java()
    for extra, distributions in _EXTRAS.items():
        yield _extra(extra, distributions)
    yield _jars()
    yield _disk(Path(settings["broker.data"]))
    yield from _broker(settings)
    yield _port("console.listen", settings["console.listen"])


def _python() -> Finding:
    found = f"Python {platform.python_version()} at {sys.executable}"
    if sys.version_info < PYTHON_MIN:
        return Finding("python", PROBLEM, found, f"install Python {'.'.join(map(str, PYTHON_MIN))} or newer")
    return Finding("python", OK, found)


def _java() -> Finding:
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else "java"
    advice = f"Spark needs Java {JAVA_MIN} or newer: install one (Debian: apt-get install openjdk-17-jre-headless)"
    try:
        done = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("java", NOTE, f"{command} does not run: {error}", f"{advice}. The log and views work without")
    found = re.search(r'version "(\d+)(\.[^"]*)?"', done.stderr)
    version = int(found[1]) if found else 0
    if version < JAVA_MIN:
        return Finding("java", NOTE, f"{command} is Java {version or 'of an unknown version'}", advice)
    return Finding("java", OK, f"Java {version}{found[2] or '' if found else ''} ({command})")


def _extra(extra: str, distributions: tuple[str, ...]) -> Finding:
    versions, missing = [], []
    for name in distributions:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Finding(extra, NOTE, f"not installed: {', '.join(missing)}", f"pip install 'headwater[{extra}]'")
    return Finding(extra, OK, ", ".join(versions))


def _jars() -> Finding:
    try:
        from headwater.pipeline.jars import jar_directory, missing_jars
    except ModuleNotFoundError:
        return Finding("connector", NOTE, "needs the extra pipeline", "pip install 'headwater[pipeline]'")
    missing = missing_jars()
    if missing:
        return Finding(
            "connector", NOTE, f"{len(missing)} of Spark's connector jars are missing", "headwater pipeline prepare"
        )
    return Finding("connector", OK, f"Spark's Kafka connector in {jar_directory()}")


def _disk(data: Path) -> Finding:
    existing = next(folder for folder in (data.absolute(), *data.absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    found = f"{free / (1 << 30):.1f} GiB free for {data}"
    if not os.access(existing, os.W_OK):
        return Finding("disk", PROBLEM, f"{existing} cannot be written", "choose another folder: broker.data")
    if free < DISK_BYTES_MIN:
        return Finding("disk", PROBLEM, found, f"make room: at least {DISK_BYTES_MIN >> 30} GiB")
    return Finding("disk", OK, found)


def _broker(settings: Settings) -> Iterator[Finding]:
    """The log is either there, or there is room to start it."""
    bootstrap = settings["log.bootstrap"]
    if _answers(bootstrap):
        yield Finding("log", OK, _brokers(bootstrap))
        return
    yield Finding("log", NOTE, f"nothing answers at {bootstrap}", "headwater start")
    yield _port("broker.listen", settings["broker.listen"])


def _answers(bootstrap: str) -> bool:
    host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S):
            return True
    except (OSError, ValueError):
        return False


def _brokers(bootstrap: str) -> str:
    from confluent_kafka import KafkaException

    from headwater.client import Connection

    try:
        metadata_ = Connection(bootstrap).admin().list_topics(timeout=CONNECT_TIMEOUT_S)
    except (KafkaException, HeadwaterError) as error:
        return f"something listens at {bootstrap}, but does not answer as Kafka: {error}"
    return f"{len(metadata_.brokers)} broker(s) and {len(metadata_.topics)} topics at {bootstrap}"


def _port(setting: str, address: str) -> Finding:
    host, _, port = address.rpartition(":")
    problem = _cannot_bind(host.strip("[]"), int(port))
    if problem is None:
        return Finding(setting, OK, f"{address} is free")
    return Finding(setting, PROBLEM, f"{address}: {problem}", f"stop what uses it, or set {setting} to another port")


def _cannot_bind(host: str, port: int) -> str | None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return None
