"""From pgoutput messages to committed transactions, in commit order.

Most transactions arrive whole, after their commit: their rows go straight through (`direct` is set and the reader
takes rows from there without asking). Large ones are streamed while still running, prepared ones arrive before their
commit: both are kept, in memory up to a bound and on disk beyond it, and come out when their commit does.
Rows of aborted subtransactions are left out then; what never commits is thrown away.

What comes out is a sequence of steps:

    Opened   a committed transaction begins
    Row      one of its messages (row change, relation, truncate, logical message); `at` is where its body begins
    Closed   it is complete; everything before `end_lsn` has been seen
    Outside  a message of no transaction (a non-transactional logical message, a type name), or a relation that holds
             at once although the transaction that it came with is not committed

Each unit (transaction or message) has one place in the database's log, and units come in the order of these places:
that is what makes (lsn, number of events) a position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.capture import pgoutput
from headwater.capture.spill import Spilled, SpillStore
from headwater.errors import InvariantViolated

__all__ = ["Assembler", "Closed", "Opened", "Outside", "Row", "Step", "Transaction"]

PLAIN_BODY = 1  # after the type byte
STREAMED_BODY = 5  # after the type byte and the transaction id

# message types whose body carries the transaction id inside a stream
_KEPT = frozenset(b"IUDTRYM")
_RELATION = b"R"[0]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed transaction: `lsn` is where its commit record is, its place in the order of everything."""

    xid: int
    lsn: int
    time_us: int


@dataclass(frozen=True, slots=True)
class Opened:
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Row:
    lsn: int
    data: bytes
    at: int


@dataclass(frozen=True, slots=True)
class Closed:
    transaction: Transaction
    end_lsn: int


@dataclass(frozen=True, slots=True)
class Outside:
    lsn: int
    data: bytes


Step = Opened | Row | Closed | Outside


@dataclass(slots=True)
class _Prepared:
    prepare_lsn: int
    rows: Spilled
    streamed: bool


class Assembler:
    """Fed with the messages in order; one per replication connection, since the server starts over with each."""

    def __init__(self, store: SpillStore) -> None:
        self._store = store
        self._streamed: dict[int, Spilled] = {}
        self._stream: tuple[int, Spilled] | None = None  # inside Stream Start .. Stream Stop
        self._preparing: tuple[int, Spilled] | None = None  # inside Begin Prepare .. Prepare
        self._prepared: dict[str, _Prepared] = {}
        self.direct: Transaction | None = None

    def oldest_prepared(self) -> int | None:
        """Where the oldest prepared transaction that awaits its commit was prepared.

        The server sends a prepared transaction again only if it is told that nothing from there on is done.
        """
        return min((p.prepare_lsn for p in self._prepared.values()), default=None)

    def idle(self) -> bool:
        """Whether no transaction is half-way through this connection."""
        return self.direct is None and self._stream is None and self._preparing is None

    def feed(self, lsn: int, data: bytes) -> Iterator[Step]:
        """The steps that this message completes."""
        kind = data[0]
        if self._stream is not None and kind in _KEPT:
            self._keep_streamed(lsn, data)
        elif self._preparing is not None and kind in _KEPT and not _outside(data):
            xid, rows = self._preparing
            rows.append(xid, lsn, data)
            if kind == _RELATION:  # announced once: transactions that commit before this one may rely on it
                yield Outside(lsn, data)
        elif kind in _KEPT:
            yield Outside(lsn, data) if self.direct is None or _outside(data) else Row(lsn, data, PLAIN_BODY)
        else:
            yield from self._control(chr(kind), data)

    def close(self) -> None:
        """Forget everything half-way: the server sends it again."""
        self._store.clear()

    def _keep_streamed(self, lsn: int, data: bytes) -> None:
        if self._stream is None:
            raise InvariantViolated("a streamed change outside of a stream")
        self._stream[1].append(int.from_bytes(data[1:5], "big"), lsn, data)

    def _control(self, kind: str, data: bytes) -> Iterator[Step]:
        if kind == "B":
            begin = pgoutput.begin(data)
            self.direct = Transaction(begin.xid, begin.commit_lsn, begin.time_us)
            yield Opened(self.direct)
        elif kind == "C":
            yield from self._commit(data)
        elif kind in "SEcAp":
            yield from self._streaming(kind, data)
        elif kind in "bPKr":
            yield from self._preparation(kind, data)
        elif kind != "O":  # an origin only says who replicated it to the source
            raise pgoutput.Malformed(f"unknown pgoutput message {kind!r}")

    def _commit(self, data: bytes) -> Iterator[Step]:
        commit, done = pgoutput.commit(data), self.direct
        if done is None:
            raise InvariantViolated(f"commit at {commit.commit_lsn:X} without its begin")
        self.direct = None
        yield Closed(done, commit.end_lsn)

    def _streaming(self, kind: str, data: bytes) -> Iterator[Step]:
        if kind == "S":
            xid = pgoutput.stream_start(data).xid
            rows = self._streamed.get(xid)
            if rows is None:
                rows = self._streamed[xid] = self._store.open()
            self._stream = xid, rows
        elif kind == "E":
            self._stream = None
        elif kind == "A":
            self._abort(pgoutput.stream_abort(data))
        elif kind == "p":
            prepared = pgoutput.prepare(data)
            rows = self._streamed.pop(prepared.xid, None) or self._store.open()
            self._prepared[prepared.gid] = _Prepared(prepared.prepare_lsn, rows, streamed=True)
        else:
            commit = pgoutput.stream_commit(data)
            rows = self._streamed.pop(commit.xid, None) or self._store.open()
            done = Transaction(commit.xid, commit.commit_lsn, commit.time_us)
            yield from _replay(done, commit.end_lsn, rows, STREAMED_BODY)

    def _abort(self, abort: pgoutput.StreamAbort) -> None:
        rows = self._streamed.get(abort.xid)
        if rows is None:
            return
        if abort.xid == abort.subtransaction:
            del self._streamed[abort.xid]
            rows.discard()
        else:
            rows.drop(abort.subtransaction)

    def _preparation(self, kind: str, data: bytes) -> Iterator[Step]:
        if kind == "b":
            self._preparing = pgoutput.begin_prepare(data).xid, self._store.open()
        elif kind == "P":
            prepared = pgoutput.prepare(data)
            if self._preparing is None:
                raise InvariantViolated(f"prepare of {prepared.gid!r} without its begin")
            self._prepared[prepared.gid] = _Prepared(prepared.prepare_lsn, self._preparing[1], streamed=False)
            self._preparing = None
        elif kind == "K":
            commit = pgoutput.commit_prepared(data)
            done = Transaction(commit.xid, commit.commit_lsn, commit.time_us)
            kept = self._prepared.pop(commit.gid, None)
            rows = kept.rows if kept else self._store.open()
            yield from _replay(done, commit.end_lsn, rows, STREAMED_BODY if kept and kept.streamed else PLAIN_BODY)
        else:
            kept = self._prepared.pop(pgoutput.rollback_prepared(data).gid, None)
            if kept is not None:
                kept.rows.discard()


def _replay(transaction: Transaction, end_lsn: int, rows: Spilled, at: int) -> Iterator[Step]:
    yield Opened(transaction)
    for lsn, data in rows.replay():
        yield Row(lsn, data, at)
    rows.discard()
    yield Closed(transaction, end_lsn)


def _outside(data: bytes) -> bool:
    """A logical message written outside of any transaction: flag bit 0 is clear."""
    return data[0] == b"M"[0] and not data[1] & 1
