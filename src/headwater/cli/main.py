"""The `headwater` command: finds the subcommand's module, parses, runs, and turns errors into one clear line.

A subcommand is a module `headwater/cli/<name>.py` with

    HELP: str                                    one line for `headwater --help`
    def add_arguments(parser) -> None            its options
    def run(arguments) -> int                    the exit code

It is imported only when it is called, so that `headwater start` pays for nothing else.

Exit codes: 0 done; 1 it failed, standard error says why and what to do; 2 the command line was not understood;
130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from headwater import __version__
from headwater.errors import HeadwaterError

__all__ = ["COMMANDS", "main"]

# name -> what `headwater --help` says; the order is the order in which a newcomer meets them
COMMANDS: dict[str, str] = {
    "start": "run the broker: a durable log that Kafka clients talk to",
    "topics": "list, create, describe, change and delete topics",
    "produce": "write records, from the command line or standard input",
    "consume": "read records, from the beginning, an offset, a time or the end",
    "groups": "consumer groups: members, positions, lag; reset them",
    "capture": "follow a database into topics",
    "view": "derived stores that follow topics: create, status, rebuild, swap, drop",
    "pipeline": "prepare Spark's connector; see what pipelines are doing",
    "console": "the web page over all of it",
    "demo": "the whole system, end to end, on this machine",
    "config": "the effective settings and where each comes from",
    "doctor": "check this machine and say what to do",
    "dump": "show what is in a log file, an index or a partition's folder",
    "verify": "check every byte of a data directory",
    "completion": "print the shell completion script",
}


class Command(Protocol):
    """What a module in `headwater/cli/` provides."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] and words[0] in COMMANDS:
        return _run_command(words[0], words[1:])
    parser = _overview()
    parser.parse_args(words)  # prints help or version, or the usage error
    parser.print_help()
    return 0


def _run_command(name: str, words: list[str]) -> int:
    command = load(name)
    parser = argparse.ArgumentParser(prog=f"headwater {name}", description=command.HELP, allow_abbrev=False)
    command.add_arguments(parser)
    try:
        return command.run(parser.parse_args(words))
    except HeadwaterError as error:
        print(f"headwater {name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output (`| head`) has seen enough
        sys.stderr.close()
        return 0


def load(name: str) -> Command:
    try:
        return cast("Command", import_module(f"headwater.cli.{name}"))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("headwater"):
            raise
        raise HeadwaterError(
            f"`headwater {name}` needs the package {error.name!r}; install it with: pip install 'headwater[all]'"
        ) from error


def _overview() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="headwater",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        description="Event streams in one Python package: one durable log, everything else follows it.",
        usage="headwater COMMAND [options]",
        epilog=f"commands:\n{commands}\n\n`headwater COMMAND --help` says what a command takes. "
        "First time here? `headwater doctor`, then `headwater demo`.",
    )
    parser.add_argument("--version", action="version", version=f"headwater {__version__}")
    parser.add_argument("command", nargs="?", choices=[*COMMANDS], metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
