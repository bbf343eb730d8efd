"""Client quotas: how many bytes and how much of the broker's time a client id (or user) may use.

Set by AlterClientQuotas on entities (user, client-id, or both; a null name is the default of its kind) and kept in the
cluster's metadata. The most specific entity with a limit counts, in Kafka's order. A client beyond its limit is told
how long to wait (throttle_time_ms) and not read for as long; nothing is refused.

A rate is measured over the last `quota.window.num` - 1 whole samples of `quota.window.size.seconds` and the one
running, as Kafka does. The wait is what brings the rate back to its limit: (rate - limit) / limit x window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headwater.broker.call import ANONYMOUS

if TYPE_CHECKING:
    from headwater.broker.cluster import Cluster
    from headwater.broker.configs import BrokerConfig
    from headwater.broker.loop import Loop

__all__ = ["LIMITS", "Entity", "Quotas"]

CONSUMER = "consumer_byte_rate"
PRODUCER = "producer_byte_rate"
REQUEST = "request_percentage"

# what can be limited, and what it means
LIMITS = {
    CONSUMER: "bytes per second fetched",
    PRODUCER: "bytes per second produced",
    REQUEST: "percent of the broker's time",
}

WINDOW_WAIT_MS_MAX = 30_000  # the longest single throttling; a client that is still beyond its limit is throttled again
CLIENTS_REMEMBERED_MAX = 10_000  # rates kept; the ones not used for longest make room

Entity = tuple[tuple[str, str | None], ...]  # (("client-id", "a"), ("user", None)), sorted by type


class Quotas:
    """Limits by entity, rates by client."""

    def __init__(self, cluster: Cluster, config: BrokerConfig, loop: Loop) -> None:
        self._cluster = cluster
        self._loop = loop
        self._sample_ms = 1000.0 * config.number("quota.window.size.seconds")
        self._samples = config.number("quota.window.num")
        self._limits: dict[Entity, dict[str, float]] = {}
        self._rates: dict[tuple[str, Entity], _Rate] = {}
        self.limits_requests = False  # whether any request quota is set: time is only measured then
        self.limits_bytes = False
        for key, value in cluster.facts.of_kind("quota"):
            self._limits[_entity(key[1])] = {name: float(limit) for name, limit in value.items()}
        self._note_kinds()

    # -- administration

    def entities(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        return iter(sorted(self._limits.items(), key=repr))

    def limits_of(self, entity: Entity) -> Mapping[str, float]:
        return self._limits.get(entity, {})

    def replace(self, entity: Entity, limits: Mapping[str, float]) -> Any:
        """Set all limits of an entity (none: forget it); a promise kept when it is on disk."""
        saved = self._cluster.put({("quota", entity): dict(limits) or None})
        if limits:
            self._limits[entity] = dict(limits)
        else:
            self._limits.pop(entity, None)
        self._rates.clear()
        self._note_kinds()
        return saved

    # -- enforcement

    def charge_bytes(self, kind: str, principal: str, client_id: str | None, count: int) -> int:
        """Count bytes of a client; for how many milliseconds it must now wait (0: within its limit)."""
        return self._charge(kind, principal, client_id, float(count)) if self.limits_bytes else 0

    def charge_request(self, client_id: str | None, elapsed_ns: int, principal: str = ANONYMOUS) -> int:
        """Count time spent for a client: 100 percent is one processor, the one that this broker has."""
        return self._charge(REQUEST, principal, client_id, elapsed_ns / 1e7)

    def _charge(self, kind: str, principal: str, client_id: str | None, amount: float) -> int:
        entity, limit = self._limit(kind, principal, client_id)
        if entity is None:
            return 0
        key = (kind, entity)
        rate = self._rates.pop(key, None) or _Rate(self._sample_ms, self._samples)
        self._rates[key] = rate  # now the most recently used
        if len(self._rates) > CLIENTS_REMEMBERED_MAX:
            del self._rates[next(iter(self._rates))]
        return min(rate.add(amount, limit, self._loop.monotonic_ms()), WINDOW_WAIT_MS_MAX)

    def _limit(self, kind: str, principal: str, client_id: str | None) -> tuple[Entity | None, float]:
        """The most specific limit, and the entity that shares it (defaults are per client, not shared by all)."""
        user, client = principal.removeprefix("User:"), client_id or ""
        for in_users, in_clients in _PRECEDENCE:
            wanted: list[tuple[str, str | None]] = []
            shared: list[tuple[str, str | None]] = []
            for kind_of_name, choice, name in (("client-id", in_clients, client), ("user", in_users, user)):
                if choice is not None:
                    wanted.append((kind_of_name, name if choice else None))
                    shared.append((kind_of_name, name))
            limit = self._limits.get(tuple(wanted), {}).get(kind)
            if limit is not None:
                return tuple(shared), limit
        return None, 0.0

    def _note_kinds(self) -> None:
        kinds = {kind for limits in self._limits.values() for kind in limits}
        self.limits_requests = REQUEST in kinds
        self.limits_bytes = bool(kinds & {CONSUMER, PRODUCER})


# (user, client): True a name, False the default, None not part of the entity; most specific first, as Kafka's
# documentation lists them
_PRECEDENCE = (
    (True, True), (True, False), (True, None), (False, True), (False, False), (False, None), (None, True), (None,
    False),
)  # fmt: skip


class _Rate:
    """A sum over the last samples."""

    __slots__ = ("_sample_ms", "_samples", "_starts", "_sums")

    def __init__(self, sample_ms: float, samples: int) -> None:
        self._sample_ms = sample_ms
        self._samples = samples
        self._starts: list[float] = []
        self._sums: list[float] = []

    def add(self, amount: float, limit: float, now_ms: float) -> int:
        """Milliseconds to wait after adding `amount`."""
        if not self._starts or now_ms - self._starts[-1] >= self._sample_ms:
            self._starts.append(now_ms)
            self._sums.append(0.0)
        self._sums[-1] += amount
        while self._starts[0] <= now_ms - self._sample_ms * self._samples:
            del self._starts[0], self._sums[0]
        # as Kafka: samples not there yet count as quiet ones, so that a first burst is not throttled
        window_s = max(now_ms - self._starts[0], self._sample_ms * (self._samples - 1)) / 1000
        rate = sum(self._sums) / window_s
        return round((rate - limit) / limit * window_s * 1000) if rate > limit else 0


def _entity(parts: tuple[tuple[str, str | None], ...]) -> Entity:
    return tuple(sorted(parts, key=lambda part: part[0]))
