"""`headwater config`: the effective settings and where each comes from."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from headwater.settings import load_settings

HELP = "the effective settings and where each comes from"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (default: headwater.toml, if there)")
    parser.add_argument("--json", action="store_true", help="for programs")


def run(arguments: argparse.Namespace) -> int:
    settings = load_settings(file=arguments.config)
    if arguments.json:
        shown = {s.name: {"value": v.shown(s), "source": v.source, "purpose": s.purpose} for s, v in settings}
        print(json.dumps(shown, indent=2))
        return 0
    width = max(len(setting.name) for setting, _ in settings)
    for setting, value in settings:
        print(f"{setting.name:<{width}}  {value.shown(setting) or '(none)':<32}  {value.source:<14}  {setting.purpose}")
    return 0
