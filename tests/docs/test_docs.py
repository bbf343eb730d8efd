"""Every Python block of the documents runs as it stands, and every path they cite exists.

The blocks of a page run in order in one namespace, which has the variables the page's reader has been told of:
`bootstrap` (a broker), and `spark` or `postgres_dsn` where a block uses them. A block fenced as ```python no-run is
shown only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"`((?:src|tests|bench|docs)/[\w./-]+)")


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        yield text.count("\n", 0, match.start(1)), match.group(1)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_cited_exists(page: Path) -> None:
    cited = {path.rstrip("./").split(":")[0] for path in _PATH.findall(page.read_text())}
    missing = sorted(path for path in cited if not (ROOT / path).exists())
    assert not missing, f"{page.relative_to(ROOT)} cites paths that are not there: {missing}"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(blocks(page))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_example_runs(
    page: Path, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"__name__": "__main__"}
    for line, source in blocks(page):
        for name in ("bootstrap", "spark", "postgres_dsn"):
            if name not in given and re.search(rf"\b{name}\b", source):
                given[name] = request.getfixturevalue(name)
        # padding with blank lines makes a traceback name the page's own line
        exec(compile("\n" * line + source, str(page), "exec"), given)
