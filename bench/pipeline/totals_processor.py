"""The running aggregate as a user of `transformWithStateInPandas` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

__all__ = ["Totals"]


class Totals(StatefulProcessor):
    """A count and a sum per user in one ValueState."""

    def init(self, handle: Any) -> None:
        self._state = handle.getValueState("totals", "n bigint, total bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:
        n, total = self._state.get() if self._state.exists() else (0, 0)
        for frame in rows:
            n += len(frame)
            total += int(frame["amount"].sum())
        self._state.update((n, total))
        yield pd.DataFrame({"user": [key[0]], "n": [n], "total": [total]})

    def close(self) -> None:
        """Nothing is held."""
