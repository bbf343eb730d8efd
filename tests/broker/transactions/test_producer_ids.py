"""Producer ids are given out once: blocks are reserved before they are used."""

from __future__ import annotations

import pytest

from headwater.broker.promise import Promise
from headwater.broker.transactions.producer_ids import BLOCK_SIZE, ProducerIds
from headwater.errors import EnvironmentFailed


class Disk:
    def __init__(self) -> None:
        self.next = 0
        self.waiting: list[tuple[Promise[range], range]] = []
        self.answers = True

    def reserve(self, count: int) -> Promise[range]:
        promise: Promise[range] = Promise()
        self.waiting.append((promise, range(self.next, self.next + count)))
        self.next += count
        if self.answers:
            self.answer()
        return promise

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for promise, block in waiting:
            promise.resolve(block)


def test_ids_are_consecutive_over_blocks_and_never_repeat() -> None:
    ids = ProducerIds(Disk().reserve)
    assert [ids.take().result() for _ in range(3 * BLOCK_SIZE)] == list(range(3 * BLOCK_SIZE))


def test_nobody_gets_an_id_before_its_block_is_on_disk() -> None:
    disk = Disk()
    disk.answers = False
    ids = ProducerIds(disk.reserve)
    first, second = ids.take(), ids.take()
    assert not first.done
    assert len(disk.waiting) == 1, "one reservation serves all who wait"
    disk.answer()
    assert (first.result(), second.result()) == (0, 1)


def test_the_next_block_is_reserved_before_the_last_is_used_up() -> None:
    disk = Disk()
    ids = ProducerIds(disk.reserve)
    ids.take()
    disk.answers = False
    taken = [ids.take() for _ in range(BLOCK_SIZE - 1)]
    assert all(promise.done for promise in taken)
    assert len(disk.waiting) == 1


def test_a_disk_that_refuses_fails_those_who_wait_and_is_asked_again_by_the_next() -> None:
    disk = Disk()
    disk.answers = False
    ids = ProducerIds(disk.reserve)
    failed = ids.take()
    promise, _ = disk.waiting.pop()
    promise.fail(EnvironmentFailed("disk full"))
    with pytest.raises(EnvironmentFailed):
        failed.result()
    disk.answers = True
    assert ids.take().result() == BLOCK_SIZE


def test_a_disk_that_refuses_at_once_is_the_same() -> None:
    def refuse(count: int) -> Promise[range]:
        raise EnvironmentFailed("disk full")

    with pytest.raises(EnvironmentFailed):
        ProducerIds(refuse).take().result()
