"""`headwater view`: derived stores that follow topics.

headwater view create users --topic shop.public.users --store sqlite:users.db
headwater view run                       follow all declared views until Ctrl-C
headwater view status                    positions, lag, rows, rate, last error
headwater view rebuild users             a new version beside the old one, then swap
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.settings import Settings, load_settings

if TYPE_CHECKING:
    from headwater.client import Connection
    from headwater.views.definition import Definition
    from headwater.views.manage import Progress, VersionStatus

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Derived stores that follow topics: create, run, status, rebuild, swap, drop, get, replay."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = _action(actions, "create", "make a view: a declared one, or a new one that is then declared", views="?")
    _definition_arguments(create)
    run_ = _action(actions, "run", "follow views in the foreground, until Ctrl-C", views="*")
    run_.add_argument("--create", action="store_true", help="make declared views that do not exist yet")
    _action(actions, "list", "the declared views", views=None)
    _action(actions, "status", "position, lag, rows, rate and last error of every version", views="*")
    rebuild = _action(actions, "rebuild", "build a new version from offset 0 beside the old one, then swap", views=1)
    rebuild.add_argument("--no-swap", action="store_true", help="leave readers with the old version; see swap")
    rebuild.add_argument("--keep", action="store_true", help="swap, and keep the old version too")
    swap = _action(actions, "swap", "give readers another version: the newest that is ready, or the one named", views=1)
    swap.add_argument("--version", type=int, metavar="N")
    drop = _action(actions, "drop", "remove a version that is not read, or with --all the whole view", views=1)
    what = drop.add_mutually_exclusive_group(required=True)
    what.add_argument("--version", type=int, metavar="N")
    what.add_argument("--all", action="store_true")
    get = _action(actions, "get", "one row of a view", views=1)
    get.add_argument("key", help="the key; a JSON array when it has several columns")
    get.add_argument("--at-least", metavar="TOKEN", help="wait until the view covers this position")
    get.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS")
    serve = _action(actions, "serve", "rows, queries, searches and changes over HTTP, until Ctrl-C", views="*")
    serve.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:8081")
    serve.add_argument("--follow", action="store_true", help="follow the views too, in the same process")
    _action(actions, "replay", "produce a view's dead letters to their topics again", views=1)


def _action(actions: Any, name: str, text: str, *, views: str | int | None) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text, allow_abbrev=False)
    if views == 1:
        parser.add_argument("view")
    elif views is not None:
        parser.add_argument("views", nargs=views, metavar="VIEW")
    parser.add_argument("--file", metavar="FILE", help="the declared views (default: views.toml)")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="the log (default: 127.0.0.1:9092)")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--verbose", action="store_true", help="also tell what is normal")
    return parser


def _definition_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", action="append", metavar="TOPIC", help="what it follows; repeatable")
    parser.add_argument("--store", metavar="ADDRESS", help="sqlite:PATH, lmdb:PATH, postgresql://..., redis://... ...")
    parser.add_argument("--key", action="append", metavar="COLUMN", help="of the key; repeatable")
    parser.add_argument("--format", choices=["auto", "flat", "debezium", "weighted"])
    parser.add_argument("--select", metavar="COLUMN,...", help="the columns to keep")
    parser.add_argument("--filter", metavar="EXPRESSION", help="which rows are in the view")
    parser.add_argument("--function", metavar="MODULE:NAME", help="a function on a batch of rows")
    parser.add_argument("--on-error", choices=["dead-letter", "stop"])


def run(arguments: argparse.Namespace) -> int:
    level = logging.INFO if arguments.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    settings = load_settings({"log.bootstrap": arguments.bootstrap, "views.file": arguments.file})
    actions = {
        "create": _create,
        "run": _run,
        "list": _list,
        "status": _status,
        "rebuild": _rebuild,
        "swap": _swap,
        "drop": _drop,
        "get": _get,
        "serve": _serve,
        "replay": _replay,
    }
    return actions[arguments.action](arguments, settings)


def _create(arguments: argparse.Namespace, settings: Settings) -> int:
    from headwater.errors import BadInput
    from headwater.views.declared import declare, find_definition, load_definitions
    from headwater.views.manage import create

    file, name = Path(settings["views.file"]), arguments.views
    if name is None:
        names = list(load_definitions(file))
        if not names:
            raise BadInput(f"{file} declares no view: name one, with --topic and --store")
    elif arguments.topic or arguments.store:
        definition = _defined(name, arguments, settings)
        create(definition)
        declare(definition, file)
        names = [name]
    else:
        names = [name]
    for each in names:
        catalog = create(find_definition(each, file))
        _say(arguments, {"view": each, "active": catalog.active}, f"view {each}: version {catalog.active}")
    return 0


def _defined(name: str, arguments: argparse.Namespace, settings: Settings) -> Definition:
    from headwater.views.definition import Definition

    words = ("store", "key", "format", "filter", "function", "on_error")
    given = {word: getattr(arguments, word) for word in words if getattr(arguments, word) is not None}
    given.setdefault("store", f"sqlite:{settings['views.data']}/{name}.db")
    if arguments.select:
        given["select"] = arguments.select.split(",")
    return Definition.of(name, topics=arguments.topic or [], **given)


def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    from headwater.errors import BadInput
    from headwater.status import Reporter
    from headwater.views.manage import create
    from headwater.views.running import ViewsRunner

    definitions = _chosen(arguments.views, settings)
    if not definitions:
        raise BadInput(f"{settings['views.file']} declares no view; see headwater view create --help")
    if arguments.create:
        for definition in definitions:
            create(definition)
    runner = ViewsRunner(definitions, _connection(settings))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runner.request_stop())
    names = ", ".join(definition.name for definition in definitions)
    print(f"following {names} from {settings['log.bootstrap']}", flush=True)
    with Reporter(_connection(settings), "view", runner.reports):
        runner.run()
    failed = [each for each in runner.running() if each.state == "failed"]
    for each in failed:
        print(f"headwater view: {each.view} version {each.version}: {each.error}", file=sys.stderr)
    return 1 if failed else 0


def _list(arguments: argparse.Namespace, settings: Settings) -> int:
    from headwater.views.declared import load_definitions

    found = load_definitions(Path(settings["views.file"]))
    if arguments.json:
        print(json.dumps({name: definition.to_flat() for name, definition in found.items()}, indent=2))
    for definition in [] if arguments.json else found.values():
        print(f"{definition.name:<24}  {', '.join(definition.topics):<32}  {definition.shown_store()}")
    return 0


def _status(arguments: argparse.Namespace, settings: Settings) -> int:
    from headwater.errors import HeadwaterError
    from headwater.views.manage import status

    found, problems = [], {}
    for definition in _chosen(arguments.views, settings):
        try:
            found += [
                dataclasses.replace(each, store=definition.shown_store())
                for each in status(definition, _connection(settings))
            ]
        except HeadwaterError as error:
            problems[definition.name] = str(error)
    if arguments.json:
        print(json.dumps({"versions": [dataclasses.asdict(each) for each in found], "problems": problems}, indent=2))
    else:
        _print_statuses(found)
        for name, problem in problems.items():
            print(f"headwater view: {name}: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _print_statuses(found: list[VersionStatus]) -> None:
    print(f"{'VIEW':<20} {'VERSION':>7} {'STATE':<9} {'ROWS':>10} {'LAG':>8} {'SECONDS':>8} {'RATE/S':>9}  LAST ERROR")
    for each in found:
        state = "active" if each.active else each.state
        lag = "?" if each.lag_records is None else each.lag_records
        behind = "?" if each.lag_s is None else each.lag_s
        notes = each.error[:60] + ("  (declaration changed: rebuild it)" if each.outdated and each.active else "")
        print(
            f"{each.view:<20} {each.version:>7} {state:<9} {each.rows:>10} {lag:>8} {behind:>8} {each.rate:>9}  {notes}"
        )


def _rebuild(arguments: argparse.Namespace, settings: Settings) -> int:
    from headwater.views.manage import rebuild

    def progress(at: Progress) -> None:
        if arguments.json:
            print(json.dumps({**dataclasses.asdict(at), "percent": at.percent}), flush=True)
        else:
            left = "" if at.seconds_left is None else f", {at.seconds_left:.0f} s to go"
            text = f"version {at.version}: {at.percent:5.1f} %  {at.applied} of {at.total} records{left}"
            print(f"\r{text:<78}", end="", file=sys.stderr, flush=True)

    (definition,) = _chosen([arguments.view], settings)
    catalog = rebuild(
        definition,
        _connection(settings),
        swap_when_ready=not arguments.no_swap,
        keep_old=arguments.keep,
        progress=progress,
    )
    if not arguments.json:
        print(file=sys.stderr)
    _say(
        arguments,
        {"view": definition.name, "active": catalog.active, "versions": sorted(catalog.versions)},
        f"view {definition.name}: readers get version {catalog.active}",
    )
    return 0


def _swap(arguments: argparse.Namespace, settings: Settings) -> int:
    from headwater.views.manage import swap

    (definition,) = _chosen([arguments.view], settings)
    active = swap(definition, arguments.version).active
    _say(arguments, {"view": definition.name, "active": active}, f"view {definition.name}: readers get {active}")
    return 0


def _drop(arguments: argparse.Namespace, settings: Settings) -> int:
    from headwater.views.manage import drop

    (definition,) = _chosen([arguments.view], settings)
    drop(definition, None if arguments.all else arguments.version)
    what = "all of it" if arguments.all else f"version {arguments.version}"
    also = f"; its declaration is still in {settings['views.file']}" if arguments.all else ""
    _say(arguments, {"view": definition.name, "dropped": what}, f"view {definition.name}: dropped {what}{also}")
    return 0


def _get(arguments: argparse.Namespace, settings: Settings) -> int:
    from headwater.views.rows import key_from_text
    from headwater.views.view import View

    (definition,) = _chosen([arguments.view], settings)
    with (
        View(definition, _connection(settings)) as view,
        view.read(at_least=arguments.at_least, timeout=arguments.timeout) as answer,
    ):
        row = answer.get(key_from_text(arguments.key, answer.bookmark.key))
        body = {"row": row, "position": answer.position, "version": answer.version}
        print(json.dumps(body if arguments.json else row, ensure_ascii=False))
    return 0 if row is not None else 1


def _serve(arguments: argparse.Namespace, settings: Settings) -> int:
    import contextlib

    import uvicorn

    from headwater.errors import SettingError
    from headwater.views.running import ViewsRunner
    from headwater.views.serving import LOOPBACK, create_app

    host, _, port = arguments.listen.rpartition(":")
    if not host or not port.isdigit():
        raise SettingError(f"--listen is HOST:PORT, not {arguments.listen!r}")
    token = "" if host in LOOPBACK else settings["console.token"]
    if host not in LOOPBACK and not token:
        raise SettingError(f"{host} is not this machine alone: set a token first (HEADWATER_CONSOLE_TOKEN)")
    definitions = {definition.name: definition for definition in _chosen(arguments.views, settings)}
    app = create_app(definitions, _connection(settings), token=token)
    runner = ViewsRunner(definitions.values(), _connection(settings)) if arguments.follow else contextlib.nullcontext()
    with runner:
        print(f"views at http://{arguments.listen}/views", flush=True)
        uvicorn.run(app, host=host.strip("[]"), port=int(port), log_level="warning")
    return 0


def _replay(arguments: argparse.Namespace, settings: Settings) -> int:
    from headwater.views.letters import replay_dead_letters

    (definition,) = _chosen([arguments.view], settings)
    count = replay_dead_letters(_connection(settings), definition.name, definition.topics)
    _say(arguments, {"view": definition.name, "replayed": count}, f"view {definition.name}: {count} records replayed")
    return 0


def _chosen(names: list[str], settings: Settings) -> list[Definition]:
    from headwater.views.declared import find_definition, load_definitions

    file = Path(settings["views.file"])
    return [find_definition(name, file) for name in names] if names else list(load_definitions(file).values())


def _connection(settings: Settings) -> Connection:
    from headwater.client import Connection

    return Connection(settings["log.bootstrap"])


def _say(arguments: argparse.Namespace, body: dict[str, Any], text: str) -> None:
    print(json.dumps(body) if arguments.json else text)
