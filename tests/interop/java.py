"""Kafka's own Java tools, as processes."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.kafka_peer import QUIET, classpath

__all__ = ["events", "java", "tool"]

TIMEOUT_S = 120
_TOOLS = "org.apache.kafka.tools."


def java(main_class: str, *arguments: str, stdin: str = "", check: bool = True) -> str:
    """Run a class to its end; its standard output, with standard error when it fails."""
    command = ["java", "-Xmx256M", "-XX:TieredStopAtLevel=1", *QUIET, "-cp", classpath(), main_class, *arguments]
    done = subprocess.run(command, input=stdin, text=True, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert not check or done.returncode == 0, f"{main_class} {arguments}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def tool(name: str, *arguments: str, stdin: str = "", check: bool = True) -> str:
    """One of `org.apache.kafka.tools`."""
    return java(_TOOLS + name, *arguments, stdin=stdin, check=check)


def events(printed: str) -> list[dict[str, Any]]:
    """The JSON lines that the Verifiable tools print."""
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def properties(folder: Path, lines: Sequence[str]) -> str:
    """A properties file's path."""
    with tempfile.NamedTemporaryFile("w", suffix=".properties", dir=folder, delete=False) as file:
        file.write("\n".join(lines) + "\n")
    return file.name
