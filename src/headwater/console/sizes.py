"""Sizes on disk, where the broker's metrics are served: Kafka's protocol as its clients speak it does not say them."""

from __future__ import annotations

import re
import urllib.request

__all__ = ["Sizes"]

TIMEOUT_S = 2.0
RESPONSE_BYTES_MAX = 16 << 20  # metrics of some 50,000 partitions

_LOG_BYTES = re.compile(r'^headwater_log_bytes\{topic="([^"]+)",partition="\d+"\} (\d+)$', re.MULTILINE)


class Sizes:
    """Reads `headwater_log_bytes` from the broker's metrics; knows nothing without an address."""

    def __init__(self, address: str) -> None:
        self._address = address

    def by_topic(self) -> dict[str, int]:
        if not self._address:
            return {}
        try:
            with urllib.request.urlopen(f"http://{self._address}/metrics", timeout=TIMEOUT_S) as response:
                text = response.read(RESPONSE_BYTES_MAX).decode()
        except OSError:
            return {}
        sizes: dict[str, int] = {}
        for topic, size in _LOG_BYTES.findall(text):
            sizes[topic] = sizes.get(topic, 0) + int(size)
        return sizes
