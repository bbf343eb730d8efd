"""The broker's counters in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from headwater.broker.metrics import Times
from headwater.wire.apis import APIS

if TYPE_CHECKING:
    from headwater.broker.runtime import Runtime

__all__ = ["expose"]

Sample = tuple[Mapping[str, object], float]


def expose(runtime: Runtime) -> str:
    """All metrics, a family after the other."""
    return "".join(line + "\n" for family in _families(runtime) for line in family)


def _families(runtime: Runtime) -> Iterator[Iterable[str]]:
    metrics = runtime.metrics
    used = [key for key, count in metrics.requests.items() if count]
    yield _family(
        "requests_total", "counter", "Requests by API.", (({"api": APIS[k].name}, metrics.requests[k]) for k in used)
    )
    yield _family(
        "request_bytes_total",
        "counter",
        "Bytes of requests by API.",
        (({"api": APIS[k].name}, metrics.request_bytes[k]) for k in used),
    )
    yield _family(
        "request_seconds_total",
        "counter",
        "Time spent in requests by API, waiting not included.",
        (({"api": APIS[k].name}, metrics.request_ns[k] / 1e9) for k in used),
    )
    yield _family(
        "errors_total", "counter", "Errors by kind.", (({"kind": kind}, n) for kind, n in metrics.errors.items())
    )
    yield _family(
        "produced_bytes_total",
        "counter",
        "Bytes of batches appended by topic.",
        (({"topic": topic}, n) for topic, n in metrics.bytes_in.items()),
    )
    yield _family(
        "fetched_bytes_total",
        "counter",
        "Bytes of batches fetched by topic.",
        (({"topic": topic}, n) for topic, n in metrics.bytes_out.items()),
    )
    yield _family(
        "throttled_seconds_total",
        "counter",
        "Time clients were told to wait by quota.",
        (({"quota": quota}, n / 1e3) for quota, n in metrics.throttled_ms.items()),
    )
    yield _histogram("append_seconds", "Time to append one Produce request.", metrics.append_times)
    yield _histogram("sync_seconds", "Time of one fdatasync.", metrics.sync_times)
    yield _family("connections", "gauge", "Open connections.", [({}, metrics.connections_open)])
    yield _family("connections_opened_total", "counter", "Connections accepted.", [({}, metrics.connections_opened)])
    yield _family(
        "connections_refused_total",
        "counter",
        "Connections closed at once, by the bound they met.",
        (({"bound": bound}, n) for bound, n in metrics.connections_refused.items()),
    )
    yield from _logs(runtime)
    yield from _groups(runtime)


def _logs(runtime: Runtime) -> Iterator[Iterable[str]]:
    logs = [({"topic": p.topic, "partition": p.index}, p.log) for p in runtime.logs]
    yield _family("log_bytes", "gauge", "Size of a partition on disk.", ((where, log.size) for where, log in logs))
    yield _family(
        "log_start_offset", "gauge", "First offset kept.", ((where, log.log_start_offset) for where, log in logs)
    )
    yield _family(
        "high_watermark", "gauge", "Offset after the last durable record.", ((w, log.high_watermark) for w, log in logs)
    )
    yield _family(
        "log_failed",
        "gauge",
        "1 while a partition refuses writes because the disk failed.",
        ((where, int(log.failure is not None)) for where, log in logs),
    )


def _groups(runtime: Runtime) -> Iterator[Iterable[str]]:
    groups = runtime.groups_if_started
    committed = [] if groups is None else list(groups.committed_offsets())
    labels = [({"group": g, "topic": t, "partition": p}, t, p, offset) for g, t, p, offset in committed]
    yield _family("group_offset", "gauge", "Committed offset.", ((label, offset) for label, _, _, offset in labels))
    lags = []
    for label, topic, index, offset in labels:
        partition = runtime.logs.partition(topic, index)
        if partition is not None:
            lags.append((label, max(0, partition.log.high_watermark - offset)))
    yield _family("group_lag", "gauge", "Records not yet consumed by a group.", lags)


def _family(name: str, kind: str, purpose: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP headwater_{name} {purpose}"
    yield f"# TYPE headwater_{name} {kind}"
    for labels, value in samples:
        yield (
            f"headwater_{name}{_labels(labels)} {value:g}"
            if isinstance(value, float)
            else (f"headwater_{name}{_labels(labels)} {value}")
        )


def _histogram(name: str, purpose: str, times: Times) -> Iterator[str]:
    yield f"# HELP headwater_{name} {purpose}"
    yield f"# TYPE headwater_{name} histogram"
    for seconds, below in times.upto():
        yield f'headwater_{name}_bucket{{le="{seconds:g}"}} {below}'
    yield f'headwater_{name}_bucket{{le="+Inf"}} {times.count}'
    yield f"headwater_{name}_sum {times.total_ns / 1e9:g}"
    yield f"headwater_{name}_count {times.count}"


def _labels(labels: Mapping[str, object]) -> str:
    if not labels:
        return ""
    inside = ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items())
    return "{" + inside + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
