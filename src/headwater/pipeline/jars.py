"""Spark's Kafka connector: four jars, pinned by checksum, fetched once, offline ever after.

The connector for the Spark we use does not resolve as one dependency, so the four jars that make it up are taken one
by one, without their own dependencies, by the Ivy that PySpark's wheel contains; no other tool is needed. A jar counts
only if its SHA-256 is the one below. They live in `~/.cache/headwater/jars`, or in the directory `HEADWATER_JARS`.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headwater.pipeline.errors import JarsMissing

__all__ = ["JARS", "Jar", "jar_directory", "java_command", "missing_jars", "prepare_jars"]

FETCH_TIMEOUT_S = 300.0  # one jar of at most 9 MB; past this the network counts as unreachable
JAVA_VERSION_MIN = 17  # what Spark 4 needs

_log = logging.getLogger("headwater.pipeline")


@dataclass(frozen=True, slots=True)
class Jar:
    """One artefact at one version, and the only bytes it may have."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    def is_in(self, directory: Path) -> bool:
        path = directory / self.file_name
        return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == self.sha256


JARS = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.2",
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.13.1",
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    ),
)


def jar_directory() -> Path:
    """Where the jars are kept: `HEADWATER_JARS`, or the user's cache."""
    given = os.environ.get("HEADWATER_JARS")
    return Path(given) if given else Path.home() / ".cache" / "headwater" / "jars"


def missing_jars(directory: Path | None = None) -> list[Jar]:
    """The jars that are not there, or are there with other bytes."""
    where = directory or jar_directory()
    return [jar for jar in JARS if not jar.is_in(where)]


def prepare_jars(directory: Path | None = None, progress: Callable[[str], None] = _log.info) -> list[Path]:
    """Fetch what is missing, verify everything, and return the four paths. Needs the network only the first time."""
    where = directory or jar_directory()
    if missing_jars(where):
        java_command()  # its absence is the better message
        where.mkdir(parents=True, exist_ok=True)
        with _locked(where):
            for number, jar in enumerate(JARS, start=1):
                _ensure(jar, where, f"[{number}/{len(JARS)}]", progress)
    return [where / jar.file_name for jar in JARS]


def java_command() -> str:
    """The Java that Spark will use: `JAVA_HOME`'s, or the one on the path."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH, and JAVA_HOME is not set"
        raise JarsMissing(
            f"Spark needs Java {JAVA_VERSION_MIN} or later, but there is no `java` {where}; "
            f"install one (Debian: apt-get install openjdk-{JAVA_VERSION_MIN}-jre-headless) or set JAVA_HOME"
        )
    return found


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One process fetches; the others wait and find the work done."""
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ensure(jar: Jar, directory: Path, step: str, progress: Callable[[str], None]) -> None:
    if jar.is_in(directory):
        progress(f"{step} {jar.file_name} is there")
        return
    progress(f"{step} fetching {jar.file_name}")
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        _fetch(jar, Path(scratch))
        fetched = Path(scratch) / jar.file_name
        if not jar.is_in(Path(scratch)):
            digest = hashlib.sha256(fetched.read_bytes()).hexdigest()
            raise JarsMissing(
                f"{jar.file_name} came with SHA-256 {digest}, but it must be {jar.sha256}; something between here and "
                "the repository changes it: fetch it elsewhere and put it into " + str(directory)
            )
        fetched.replace(directory / jar.file_name)  # atomic: a half-written jar is never seen


def _fetch(jar: Jar, into: Path) -> None:
    import pyspark

    ivy = str(Path(pyspark.__file__).parent / "jars" / "*")
    command = [java_command(), "-cp", ivy, "org.apache.ivy.Main", "-cache", str(into / "ivy")]
    command += ["-dependency", jar.group, jar.artifact, jar.version, "-notransitive", "-confs", "default"]
    command += ["-types", "jar", "-retrieve", str(into / "[artifact]-[revision].[ext]")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise JarsMissing(
            f"fetching {jar.file_name} took more than {FETCH_TIMEOUT_S:.0f} s; is there a network?"
        ) from error
    if not (into / jar.file_name).is_file():
        tail = " | ".join((done.stdout + done.stderr).strip().splitlines()[-4:])
        raise JarsMissing(
            f"could not fetch {jar.file_name} ({jar.group}:{jar.artifact}:{jar.version}). It is needed once, with a "
            f"network; or copy the four jars into {jar_directory()} (setting HEADWATER_JARS). Ivy said: {tail}"
        )
