"""Wrong clocks of devices, set right by three timestamps."""

from __future__ import annotations

import pytest

from headwater.pipeline.errors import BadOption, WrongType
from headwater.pipeline.time import device_time, event_time
from headwater.testing.streams import StreamTest

ROWS = "id long, occurred timestamp, sent timestamp, received timestamp"


def test_the_devices_offset_is_added_to_what_it_said() -> None:
    test = StreamTest()
    rows = test.stream(ROWS)
    right = device_time(rows, "occurred", "sent", "received", max_offset="1 hour")
    test.feed(
        rows,
        """
        id | occurred | sent     | received
        1  | 09:00:00 | 09:10:00 | 10:10:00
        2  | 10:00:00 | 10:00:00 | 09:00:00
        3  | 03:00:00 | 03:00:05 | 10:00:00
        4  | 10:00:09 | 10:00:05 | 10:00:06
        5  | null     | 10:00:05 | 10:00:06
        """,
    )
    right.assert_rows(
        """
        id | _occurred | _clock_offset | _clock_suspect
        1  | 10:00:00  | 3600000000    | false
        2  | 09:00:00  | -3600000000   | false
        3  | 09:59:55  | 25195000000   | true
        4  | 10:00:10  | 1000000       | true
        5  | null      | 1000000       | null
        """
    )
    assert event_time(right, "_occurred").schema.names[-1] == "_time"


def test_the_corrected_time_is_late_by_the_networks_delay_and_never_early() -> None:
    test = StreamTest()
    rows = test.stream(ROWS)
    right = device_time(rows, "occurred", "sent", "received")
    # the clock is an hour behind; it happened at 10:00:00, was sent at 10:10:00, and took 3 seconds on the way
    test.feed(rows, [{"id": 1, "occurred": "09:00:00", "sent": "09:10:00", "received": "10:10:03"}])
    right.assert_rows("id | _occurred\n1 | 10:00:03")


def test_columns_of_another_type_are_refused() -> None:
    rows = StreamTest().stream(ROWS)
    with pytest.raises(WrongType, match="column 'id' is int64"):
        device_time(rows, "occurred", "id", "received")
    with pytest.raises(BadOption, match="must be more than zero"):
        device_time(rows, "occurred", "sent", "received", max_offset=0)
