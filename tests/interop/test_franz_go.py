"""franz-go: the program in `franz/`, built from the module proxy, run as it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "franz"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("franz") / "franz"
    subprocess.run(["go", "build", "-o", str(target), "."], cwd=HERE, check=True, timeout=600)
    return target


def test_franz_go(server: str, unique: str, program: Path) -> None:
    done = subprocess.run([program, server, unique], text=True, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok ") == 7
