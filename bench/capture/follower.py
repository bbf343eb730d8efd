"""Our capture in a process of its own until it has written N records; prints one JSON line, like its Java peer.

usage: python -m bench.capture.follower BOOTSTRAP SETTINGS-AS-JSON EVENTS
"""

from __future__ import annotations

import json
import resource
import sys
import time

from headwater import capture

POLL_S = 0.002


def main(bootstrap: str, settings: str, wanted: int) -> None:
    with capture.Postgres(bootstrap=bootstrap, **json.loads(settings)) as running:
        while "slot" not in running.status():
            running.check()
            time.sleep(POLL_S)
        connected = time.perf_counter()  # its peer counts from its first event on: a little later
        while running.events < wanted:
            running.check()
            time.sleep(POLL_S)
        seconds, count, cpu_s = time.perf_counter() - connected, running.events, time.process_time()
    line = {
        "events": count,
        "seconds": seconds,
        "cpu_s": cpu_s,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
