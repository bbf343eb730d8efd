"""What parts say of themselves, read back."""

from __future__ import annotations

from headwater import Broker
from headwater.client import Connection, Writer, ensure_topics
from headwater.status import BATCH_REPORTS, STATUS_TOPIC, Status, StatusBoard


def test_a_board_that_is_new_knows_the_last_of_many_reports() -> None:
    with Broker() as broker:
        log = Connection(broker.bootstrap_servers)
        ensure_topics(log, [STATUS_TOPIC], partitions=1)
        with Writer(log) as writer:
            for number in range(BATCH_REPORTS * 2 + 5):
                said = Status("view", "v", number, "running", {"rows": number})
                writer.write(STATUS_TOPIC, said.value(), key=said.key())
            writer.flush()
        board = StatusBoard(log)
        board.poll(2.0)
        (part,) = board.all(0)
        board.close()
    assert part["details"]["rows"] == BATCH_REPORTS * 2 + 4
