"""Views declared in a file, `views.toml`: a table for each.

[users]
topic = "shop.public.users"           # or topics = ["a", "b"]
store = "sqlite:headwater-data/views/users.db"
key = ["id"]                          # unless the records' own keys are the view's
format = "auto"                       # flat, debezium, weighted
flatten = true
filter = "active and country != 'XX'"
compute = { label = "upper(name)" }
rename = { mail = "email" }
select = ["id", "label", "email"]
function = "my.module:function"
on_error = "dead-letter"              # or stop
commit_interval_ms = 0
options = { }                         # the store's own
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from headwater.views.definition import Definition
from headwater.views.errors import BadView

__all__ = ["declare", "find_definition", "load_definitions"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def load_definitions(file: Path) -> dict[str, Definition]:
    """Every view of the file, checked; none when there is no file."""
    try:
        document = tomllib.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadView(f"{file} cannot be read as TOML: {error}") from error
    found = {}
    for name, body in document.items():
        if not isinstance(body, dict):
            raise BadView(f"{file}: {name!r} is not a view: write [{name}] and what it is below it")
        try:
            found[name] = Definition.of(name, **body)
        except TypeError as error:
            raise BadView(f"{file}: view {name}: {error}") from error
    return found


def find_definition(name: str, file: Path) -> Definition:
    found = load_definitions(file)
    if name not in found:
        there = f"it declares {', '.join(found)}" if found else "it declares none" if file.exists() else "no such file"
        raise BadView(f"there is no view {name!r} in {file}: {there}")
    return found[name]


def declare(definition: Definition, file: Path) -> None:
    """Add a view to the file's end; what is there stays as it is."""
    if definition.name in load_definitions(file):
        raise BadView(f"{file} declares a view {definition.name!r} already: change it there, then rebuild it")
    lines = [f"[{definition.name}]"]
    lines += [f"{_key(name)} = {_value(value)}" for name, value in definition.to_flat().items()]
    before = file.read_text() if file.exists() else ""
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(before + gap + "\n".join(lines) + "\n")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(name)} = {_value(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
