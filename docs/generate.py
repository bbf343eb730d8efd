"""Writes `docs/reference/`: what the code says of itself, as pages. `make reference` runs it; a test compares.

cli.md        every command with its help
settings.md   every setting of headwater, and the broker's, topics' and groups' under Kafka's names
metrics.md    every metric of the broker
errors.md     every error a user can meet
api.md        every public name with its signature and documentation
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import headwater
from headwater.errors import HeadwaterError

FOLDER = Path(__file__).parent / "reference"
HELP_COLUMNS = "100"

# the packages whose `__all__` is for users; the others are for those who work on headwater
PUBLIC = (
    "headwater",
    "headwater.client",
    "headwater.positions",
    "headwater.status",
    "headwater.capture",
    "headwater.pipeline",
    "headwater.pipeline.windows",
    "headwater.pipeline.joins",
    "headwater.pipeline.changelogs",
    "headwater.pipeline.aggregates",
    "headwater.pipeline.time",
    "headwater.pipeline.stateful",
    "headwater.views",
    "headwater.testing",
)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)


def pages() -> dict[str, str]:
    """File name -> content."""
    made: dict[str, Callable[[], Iterator[str]]] = {
        "cli.md": _cli,
        "settings.md": _settings,
        "metrics.md": _metrics,
        "errors.md": _errors,
        "api.md": _api,
    }
    return {name: "\n".join(lines()).rstrip() + "\n" for name, lines in made.items()}


def _cli() -> Iterator[str]:
    from headwater.cli.main import COMMANDS, load

    os.environ["COLUMNS"] = HELP_COLUMNS  # argparse wraps to the terminal
    yield "# Commands\n"
    yield "Exit codes: 0 done; 1 it failed, and standard error says why and what to do; 2 the command line was not"
    yield "understood; 130 stopped by Ctrl-C.\n"
    for name in COMMANDS:
        parser = argparse.ArgumentParser(prog=f"headwater {name}", description=load(name).HELP, allow_abbrev=False)
        load(name).add_arguments(parser)
        yield f"## headwater {name}\n"
        yield from _help(parser)


def _help(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield "```text\n" + parser.format_help().strip() + "\n```\n"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in dict.fromkeys(action.choices.values()):
                yield from _help(one)


def _settings() -> Iterator[str]:
    from headwater.broker.configs import broker, group, topic
    from headwater.settings import SETTINGS

    yield "# Settings\n"
    yield "Later sources win: default, `headwater.toml`, environment, command line. `headwater config` shows what is"
    yield "in force and where it comes from.\n"
    yield "| setting | environment | default | what for |"
    yield "|---|---|---|---|"
    for setting in SETTINGS.values():
        default = f"`{setting.default}`" if setting.default else "none"
        yield f"| `{setting.name}` | `{setting.environment_variable}` | {default} | {setting.purpose} |"
    for title, keys in (
        ("The broker's, under Kafka's names", broker.BROKER_KEYS),
        ("A topic's", topic.TOPIC_KEYS),
        ("A group's", group.GROUP_KEYS),
    ):
        yield f"\n## {title}\n"
        yield "| setting | default |"
        yield "|---|---|"
        for name, key in sorted(keys.items()):
            yield f"| `{name}` | `{getattr(key, 'default', '')}` |"


def _metrics() -> Iterator[str]:
    from headwater.broker.runtime import Runtime

    yield "# Metrics\n"
    yield "`headwater start --metrics HOST:PORT` serves them at `/metrics` (Prometheus' text format), and `/healthz`.\n"
    yield "| metric | kind | what it says |"
    yield "|---|---|---|"
    with headwater.Broker() as embedded:
        from headwater.broker.exposition import expose

        runtime = embedded._runtime
        assert isinstance(runtime, Runtime)
        text = expose(runtime)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    for name, purpose in re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE):
        yield f"| `{name}` | {kinds[name]} | {purpose} |"


def _errors() -> Iterator[str]:
    for module in _modules("headwater"):
        importlib.import_module(module)  # a class is known to its base once its module is loaded
    yield "# Errors\n"
    yield "Every error that headwater raises on purpose is a `HeadwaterError`. Its message says what is wrong, where,"
    yield "and what to do next.\n"
    yield from _tree(HeadwaterError, 0)


def _modules(package: str) -> Iterator[str]:
    root = Path(headwater.__path__[0])
    for path in sorted(root.rglob("*.py")):
        if path.stem != "__main__":
            yield ".".join([package, *path.relative_to(root).with_suffix("").parts]).removesuffix(".__init__")


def _tree(kind: type[Exception], depth: int) -> Iterator[str]:
    says = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
    yield f"{'  ' * depth}* `{kind.__module__}.{kind.__name__}`: {says}"
    for one in sorted(kind.__subclasses__(), key=lambda each: each.__name__):
        if one.__module__.startswith("headwater."):
            yield from _tree(one, depth + 1)


def _api() -> Iterator[str]:
    yield "# Names\n"
    for package in PUBLIC:
        module = importlib.import_module(package)
        yield f"## {package}\n"
        yield f"{_first(module)}\n"
        for name in getattr(module, "__all__", ()):
            if not name.startswith("__"):
                yield from _entry(name, getattr(module, name))


def _first(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0]


def _entry(name: str, thing: Any) -> Iterator[str]:
    if isinstance(thing, ModuleType):
        return
    yield f"### {name}\n"
    if callable(thing):
        yield f"```text\n{name}{_signature(thing)}\n```\n"
        yield (inspect.getdoc(thing) or "").replace("\n#", "\n\\#") + "\n"
        if inspect.isclass(thing):
            for method, each in vars(thing).items():
                if not method.startswith("_") and callable(each):
                    yield f"* `{method}{_signature(each)}` {_first(each)}"
            yield ""
    else:
        yield f"`{repr(thing)[:200]}`\n"


def _signature(thing: Any) -> str:
    try:
        text = str(inspect.signature(thing))
    except (ValueError, TypeError):
        return "(…)"
    text = re.sub(r" (?:object )?at 0x[0-9a-f]+>", ">", text)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text).replace("'", "")


if __name__ == "__main__":
    main()
