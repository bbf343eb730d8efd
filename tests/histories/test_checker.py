"""The checker finds each anomaly in a history made by hand, and nothing in a correct one."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from histories.checker import check
from histories.history import Operation, Outcome, Read, Send, load, save

READER = 99


def send(value: int, offset: int | None, *, process: int = 1, at: float = 0.0, partition: str = "t-0") -> Operation:
    return Operation(process, at, at + 1, sends=(Send(partition, value, offset),))


def poll(*places: tuple[int, int], process: int = READER, at: float = 50.0, rewound: bool = False) -> Operation:
    reads = tuple(Read("t-0", offset, value) for offset, value in places)
    return Operation(process, at, at + 1, reads=reads, rewound=rewound)


def transaction(
    process: int,
    at: float,
    *,
    sends: tuple[Send, ...] = (),
    reads: tuple[Read, ...] = (),
    outcome: Outcome = Outcome.OK,
) -> Operation:
    return Operation(process, at, at + 3, outcome=outcome, sends=sends, reads=reads, committing=at + 2)


def kinds(*history: Operation) -> list[str]:
    return [anomaly.kind for anomaly in check(history)]


def test_a_correct_history_has_no_anomaly() -> None:
    assert (
        kinds(
            send(10, 0, at=0),
            send(11, 1, at=2),
            transaction(2, 4, sends=(Send("t-0", 12, 2), Send("t-1", 13, 0))),
            transaction(2, 8, sends=(Send("t-0", 14, 4),), outcome=Outcome.FAILED),
            poll((0, 10), (1, 11), at=3),
            poll((2, 12), (6, 15), at=20),
            replace(send(15, None, at=10), outcome=Outcome.UNKNOWN),
            Operation(8, 30, 31, reads=(Read("t-1", 0, 13),)),
        )
        == []
    )


def test_two_values_at_one_place() -> None:
    assert "inconsistent offset" in kinds(send(10, 0), send(11, 0, process=2), poll((0, 10)), poll((0, 11), process=8))


def test_one_value_at_two_places() -> None:
    assert kinds(send(10, 0), poll((0, 10), (1, 10))) == ["duplicate"]


def test_an_acknowledged_value_that_readers_passed() -> None:
    assert kinds(send(10, 0), send(11, 1, at=2), poll((1, 11))) == ["lost write"]


def test_an_acknowledged_value_without_an_offset_that_nobody_read() -> None:
    assert kinds(transaction(1, 0, sends=(Send("t-0", 10),))) == ["lost write"]


def test_an_acknowledged_value_behind_everything_that_was_read() -> None:
    assert kinds(send(10, 0), send(11, 1, at=2), poll((0, 10))) == ["unseen"]


def test_an_unacknowledged_value_may_be_missing_or_there() -> None:
    unknown = replace(send(10, None), outcome=Outcome.UNKNOWN)
    assert kinds(unknown) == []
    assert kinds(unknown, poll((0, 10))) == []


def test_a_value_of_an_aborted_transaction() -> None:
    aborted = transaction(1, 0, sends=(Send("t-0", 10, 0),), outcome=Outcome.FAILED)
    assert kinds(aborted, poll((0, 10))) == ["aborted read"]


def test_a_value_before_its_commit() -> None:
    assert kinds(transaction(1, 10, sends=(Send("t-0", 10, 0),)), poll((0, 10), at=10.5)) == ["early read"]
    assert kinds(transaction(1, 10, sends=(Send("t-0", 10, 0),)), poll((0, 10), at=11.5)) == []


def test_transactions_that_read_each_others_writes() -> None:
    first = transaction(1, 0, sends=(Send("t-0", 10, 0),), reads=(Read("t-1", 0, 11),))
    second = transaction(2, 0, sends=(Send("t-1", 11, 0),), reads=(Read("t-0", 0, 10),))
    assert kinds(first, second) == ["circular flow"]
    third = transaction(3, 9, sends=(Send("t-2", 12, 0),), reads=(Read("t-0", 0, 10), Read("t-1", 0, 11)))
    reader = Operation(READER, 50, 51, reads=(Read("t-2", 0, 12),))
    assert kinds(first, second, third, reader) == ["circular flow"], "who only listens is not part of the circle"


def test_a_chain_of_transactions_is_no_circle() -> None:
    chain = [
        transaction(each, 10.0 * each, sends=(Send("t-0", each, each),), reads=(Read("t-0", each - 1, each - 1),))
        for each in range(1, 20)
    ]
    assert kinds(*chain, poll(*((each, each) for each in range(20)), at=500)) == []


def test_a_reader_that_leaves_something_out_or_goes_back() -> None:
    sends = [send(10 + each, each, at=2.0 * each) for each in range(3)]
    others = poll((0, 10), (1, 11), (2, 12), process=8)
    assert kinds(*sends, others, poll((0, 10), (2, 12))) == ["skipped poll"]
    assert kinds(*sends, others, poll((0, 10)), poll((2, 12), at=60)) == ["skipped poll"]
    assert kinds(*sends, others, poll((0, 10), (0, 10))) == ["nonmonotonic poll"]
    assert kinds(*sends, others, poll((1, 11)), poll((0, 10), at=60)) == ["nonmonotonic poll"]
    assert kinds(*sends, others, poll((1, 11)), poll((0, 10), at=60, rewound=True)) == []


def test_gaps_that_nobody_can_read_are_not_skipped() -> None:
    assert kinds(send(10, 0), send(11, 5, at=2), poll((0, 10), (5, 11))) == []


def test_a_writer_whose_records_change_places() -> None:
    assert kinds(send(10, 1), send(11, 0, at=2), poll((0, 11), (1, 10))) == ["nonmonotonic send"]


@pytest.mark.parametrize("seed", range(20))
def test_random_correct_histories_pass_and_a_random_loss_in_them_is_found(seed: int) -> None:
    chance = random.Random(seed)
    log: list[int] = []
    history = []
    for step in range(200):
        value = 1000 + step
        committed = chance.random() < 0.8
        operation = transaction(
            chance.randrange(3),
            10.0 * step,
            sends=(Send("t-0", value, step),),
            outcome=Outcome.OK if committed else Outcome.FAILED,
        )
        history.append(operation)
        if committed:
            log.append(step)
    reading = poll(*((step, 1000 + step) for step in log), at=5000)
    assert check([*history, reading]) == []
    hidden = chance.randrange(len(log) - 1)
    lossy = replace(reading, reads=reading.reads[:hidden] + reading.reads[hidden + 1 :])
    assert [anomaly.kind for anomaly in check([*history, lossy])] == ["lost write"]


def test_histories_are_kept_in_files(tmp_path: Path) -> None:
    history = [send(10, 0), transaction(1, 3, sends=(Send("t-0", 11),), outcome=Outcome.UNKNOWN), poll((0, 10))]
    save(tmp_path / "history", history)
    assert list(load(tmp_path / "history")) == history
