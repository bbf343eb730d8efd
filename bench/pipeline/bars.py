"""Which bars there are: a name, and the function that measures it and prints its JSON lines (see `bench.report`)."""

from __future__ import annotations

__all__ = ["BARS"]

# name -> module of this package and its function without arguments
BARS = {
    "running": "running:throughput",
    "overhead": "running:overhead",
    "state": "state:size",
    "cluster": "state:cluster",
    "realtime": "realtime:run",
    "windows": "windows:run",
    "joins": "joins:run",
}
