"""Simulated devices: each has a clock of its own, some wrong by minutes, and goes offline now and then.

While offline a device keeps its requests and sends them in one go when it is back: the backlog that looks like a
burst by processing time and like the steady trickle it was by event time.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.demo.story import Event

__all__ = ["Devices"]

DEVICES = 12
WRONG_CLOCKS = {3: 7 * 60_000, 7: -4 * 60_000, 11: 45 * 60_000}  # device -> how far its clock is ahead, ms
OFFLINE_CHANCE = 0.004  # a tick
OFFLINE_MS = (15_000, 60_000)
BACKLOG_MAX = 2_000  # requests a device keeps while it is offline; it drops the oldest beyond

_PATHS = ("/feed", "/item", "/search", "/basket")


@dataclass
class _Device:
    number: int
    sequence: int
    online_at_ms: int = 0
    backlog: deque[dict[str, object]] = field(default_factory=lambda: deque(maxlen=BACKLOG_MAX))


class Devices:
    """All devices; pure and seeded like the people."""

    def __init__(self, seed: int, first_sequence: int) -> None:
        self._chance = random.Random(seed)
        self._devices = [_Device(number, first_sequence) for number in range(1, DEVICES + 1)]

    def step(self, now_ms: int, requests: int) -> Iterator[Event]:
        """About `requests` requests are made in this tick; those of devices that are offline stay with them."""
        for _ in range(requests):
            self._request(self._chance.choice(self._devices), now_ms)
        for device in self._devices:
            if device.online_at_ms > now_ms:
                continue
            yield from self._send(device, now_ms)
            if self._chance.random() < OFFLINE_CHANCE:
                device.online_at_ms = now_ms + self._chance.randint(*OFFLINE_MS)

    def _request(self, device: _Device, now_ms: int) -> None:
        device.sequence += 1
        occurred = now_ms + WRONG_CLOCKS.get(device.number, 0)
        request = {"device_id": f"d{device.number}", "sequence": device.sequence, "path": self._chance.choice(_PATHS)}
        device.backlog.append({**request, "occurred": occurred})

    def _send(self, device: _Device, now_ms: int) -> Iterator[Event]:
        sent = now_ms + WRONG_CLOCKS.get(device.number, 0)
        for request in device.backlog:
            yield Event("market.requests", f"d{device.number}", {**request, "sent": sent})
        device.backlog.clear()
