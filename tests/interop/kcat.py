"""kcat from Debian's package: the one that is installed, or else unpacked into `.peers/kcat/` with its libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["kcat"]

FOLDER = Path(__file__).resolve().parents[2] / ".peers" / "kcat"
PACKAGES = ("kcat", "librdkafka1", "libyajl2")
TIMEOUT_S = 60


def kcat(*arguments: str, stdin: str = "") -> str:
    """Run it to its end; its standard output."""
    program, environment = _program()
    done = subprocess.run(
        [program, *arguments],
        input=stdin,
        text=True,
        capture_output=True,
        timeout=TIMEOUT_S,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, f"kcat {arguments}: {done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def _program() -> tuple[str, dict[str, str]]:
    installed = shutil.which("kcat")
    if installed is not None:
        return installed, dict(os.environ)
    if not (FOLDER / "usr" / "bin" / "kcat").exists():
        _unpack()
    libraries = ":".join(str(path) for path in (FOLDER / "usr" / "lib").glob("*-linux-gnu"))
    return str(FOLDER / "usr" / "bin" / "kcat"), {**os.environ, "LD_LIBRARY_PATH": libraries}


def _unpack() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", *PACKAGES], cwd=FOLDER, check=True, capture_output=True)
    for package in FOLDER.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(FOLDER)], check=True)
