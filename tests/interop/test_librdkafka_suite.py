"""librdkafka's own tests, as they are: what passes on Kafka passes on ours.

Left out: tests of its mock broker, of TLS and SASL, of share groups, those that need Kafka's scripts or several
brokers, and those that measure. Each test is a process of its own, so that one that hangs costs only itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.broker.servers import headwater, kafka

from .conftest import OURS
from .librdkafka import outcomes, runner

# why -> numbers of tests
LEFT_OUT = {
    "no broker of ours": (0, 6, 9, 16, 25, 35, 43, 47, 58, 59, 66, 72, 78, 80, 95, 121, 131, 136, 149, 151, 152),
    "its mock broker": (55, 68, 75, 76, 104, 105, 106, 117, 120, 125, 138, 139, 143, 144, 145, 146, 147, 148, 150),
    "TLS, SASL, access lists": (97, 115, 119, 124, 126, 128, 133, 134, 135, 142),
    "several brokers": (101,),
    "measures, or waits for many minutes": (37, 38, 79, 88, 94, 123),
    "Kafka's scripts": (77,),
}
SETTINGS = ["num.partitions=4", "group.initial.rebalance.delay.ms=0"]
TEST_TIMEOUT_S = 180


@pytest.mark.timeout(4 * 3_600)
def test_what_passes_on_kafka_passes_on_ours(tmp_path: Path) -> None:
    tests = runner()
    left_out = {f"{number:04}" for numbers in LEFT_OUT.values() for number in numbers}
    names = tuple(sorted({file.name[:4] for file in tests.glob("[01][0-9][0-9][0-9]-*.c*")} - left_out))
    found = {}
    for name, server in ((OURS, headwater), ("kafka", kafka)):
        folder = tmp_path / name
        folder.mkdir()
        with server(SETTINGS) as running:
            found[name] = outcomes(tests, running.bootstrap, names, folder, timeout_s=TEST_TIMEOUT_S)
    ours, peer = found[OURS], found["kafka"]
    print({test: (ours[test], peer[test]) for test in names if "PASSED" not in (ours[test], peer[test])})
    assert not [test for test in names if peer[test] == "PASSED" and ours[test] != "PASSED"]
