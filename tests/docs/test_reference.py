"""The reference is what the code says today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def generated() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[str, str] = module.pages()
    return pages


def test_the_reference_pages_are_up_to_date() -> None:
    stale = [name for name, text in generated().items() if (DOCS / "reference" / name).read_text() != text]
    if stale:
        pytest.fail(f"docs/reference has fallen behind the code in {', '.join(stale)}: run `make reference`")
