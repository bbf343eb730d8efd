"""The marketplace's views: which topic each follows, and where its rows live."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["VIEWS", "VIEWS_FILE", "declare_views"]

VIEWS_FILE = "views.toml"

# view -> (topic, kind of store, the store's options)
VIEWS: dict[str, tuple[str, str, dict[str, object]]] = {
    "catalogue": ("shop.public.items", "tantivy", {"fields": {"title": "text", "description": "text"}}),
    "profiles": ("shop.public.profiles", "lmdb", {}),
    "orders": ("shop.public.orders", "sqlite", {}),
    "sales": ("market.taxed_orders", "delta", {"mode": "history"}),
    "requests": ("market.requests_per_window", "sqlite", {}),
    "outcomes": ("market.search_outcomes", "sqlite", {}),
    "click_through": ("market.click_through", "sqlite", {}),
    "visitors": ("market.visitors", "sqlite", {}),
    "timelines": ("market.timelines", "lmdb", {}),
}


def declare_views(folder: Path) -> Path:
    """Write `views.toml`; the same views give the same file."""
    lines = []
    for name, (topic, store, options) in VIEWS.items():
        place = folder / "views" / (f"{name}.db" if store == "sqlite" else store)
        place.parent.mkdir(parents=True, exist_ok=True)
        lines += [f"[{name}]", f"topic = {json.dumps(topic)}", f"store = {json.dumps(f'{store}:{place}')}"]
        lines += [f"{word} = {_toml(value)}" for word, value in (("options", options),) if value]
        lines.append("")
    file = folder / VIEWS_FILE
    file.write_text("\n".join(lines))
    return file


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + " }"
    return json.dumps(value)
