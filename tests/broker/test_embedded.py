"""A broker inside a process that is somebody else's."""

from __future__ import annotations

import os

from headwater import Broker
from headwater.client import Connection, Writer, ensure_topics

PARTITIONS = 400  # with three files each they would be 1,200 descriptors
SELECT_MAX = 1024  # FD_SETSIZE: `select` takes no descriptor from here on


def test_many_partitions_leave_descriptors_that_select_takes() -> None:
    with Broker() as broker:
        log = Connection(broker.bootstrap_servers)
        ensure_topics(log, ["wide"], partitions=PARTITIONS)
        with Writer(log) as writer:
            for partition in range(PARTITIONS):
                writer.write("wide", b"x", partition=partition)
            writer.flush()
        data = str(broker.data)
        held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_link(fd)]
        assert sum(path.startswith(data) for path in held) < SELECT_MAX // 2


def _is_link(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")
