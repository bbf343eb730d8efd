"""`make bench-pipeline`: every bar of the pipeline, a JSON line each; ARGS="realtime ..." runs those named."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from bench.pipeline.bars import BARS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BARS)} (default: all)")
    names = parser.parse_args().names
    unknown = [name for name in names if name not in BARS]
    if unknown:
        parser.error(f"no bar is called {unknown[0]!r}; there are {', '.join(BARS)}")
    for name in names or BARS:
        module, function = BARS[name].split(":")
        getattr(import_module(f"bench.pipeline.{module}"), function)()
    return 0


if __name__ == "__main__":
    sys.exit(main())
