"""`headwater start`: the broker in the foreground, until SIGTERM or Ctrl-C.

Settings come from headwater's own sources (`headwater.toml`, environment, command line) for data, listen and metrics,
and under Kafka's names from a file (`--config server.properties`, or the section [kafka] of a TOML file) and `--set
NAME=VALUE`.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headwater.errors import SettingError
from headwater.settings import FILE_NAME, KAFKA_SECTION, load_settings

__all__ = ["HELP", "add_arguments", "run"]

_log = logging.getLogger("headwater.cli")

HELP = "Run the broker: a durable log that Kafka clients talk to."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", help="where the log is kept (default: headwater-data/log)")
    parser.add_argument("--listen", metavar="HOST:PORT", help="where clients connect (default: 127.0.0.1:9092)")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics and /healthz there")
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="Kafka's server.properties, or a TOML file with a section [kafka]"
    )
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a broker setting under Kafka's name; repeatable",
    )
    parser.add_argument("--verbose", action="store_true", help="also tell what is normal")


def run(arguments: argparse.Namespace) -> int:
    level = logging.INFO if arguments.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    given = {"broker.data": arguments.data, "broker.listen": arguments.listen, "broker.metrics": arguments.metrics}
    kafka, toml = _from_file(arguments.config)
    settings = load_settings(given, file=toml)
    kafka.update(_assignments(arguments.set))
    data = kafka.pop("log.dirs", kafka.pop("log.dir", None))
    if arguments.data is not None or data is None:
        data = settings["broker.data"]
    if arguments.listen is not None or "listeners" not in kafka:
        kafka["listeners"] = f"PLAINTEXT://{settings['broker.listen']}"
    return _serve(data, kafka, settings["broker.metrics"])


def _serve(data: str, kafka: Mapping[str, str], metrics: str) -> int:
    from headwater.broker.runtime import Runtime

    os.makedirs(data, exist_ok=True)
    runtime = Runtime(data, kafka, metrics=metrics)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: runtime.stop())
    where = ",".join(f"{listener.host}:{listener.port}" for listener in runtime.listeners)
    also = f", metrics at http://{runtime.metrics_address}/metrics" if runtime.metrics_address else ""
    print(f"headwater is ready: bootstrap.servers={where} (data in {data}{also})", flush=True)
    runtime.run()
    return 0


def _from_file(file: Path | None) -> tuple[dict[str, str], Path | None]:
    """Kafka's settings of the file, and the file again if it is one of headwater's own."""
    if file is not None and file.suffix != ".toml":
        return dict(_known(file, _properties(file))), None
    path = file or Path(FILE_NAME)
    if not path.exists():
        return {}, file
    try:
        document = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} is not TOML: {error}") from error
    return dict(_known(path, _flat(document.get(KAFKA_SECTION, {})))), file


def _known(file: Path, settings: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Only what applies here: a file written for Kafka also speaks of replicas, controllers and thread pools."""
    from headwater.broker.configs.broker import BROKER_KEYS

    for name, value in settings:
        if name in BROKER_KEYS or name == "log.dir":
            yield name, value
        else:
            _log.warning("%s: %s does not apply to this broker and is ignored", file, name)


def _properties(file: Path) -> Iterator[tuple[str, str]]:
    """Lines `name=value`; blank ones and those that start with # say nothing."""
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise SettingError(f"cannot read {file}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        name, separator, value = text.partition("=")
        if not separator:
            raise SettingError(f"{file}, line {number}: {text!r} is not NAME=VALUE")
        yield name.strip(), value.strip()


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """TOML's dotted keys are tables in tables; Kafka's names are one string."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            yield prefix + key, ",".join(map(str, value))
        else:
            yield prefix + key, str(value).lower() if isinstance(value, bool) else str(value)


def _assignments(texts: list[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise SettingError(f"--set {text!r}: write NAME=VALUE, for example --set num.partitions=4")
        yield name.strip(), value.strip()
