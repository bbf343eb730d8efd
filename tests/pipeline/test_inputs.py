"""What a batch read, from the offset log that Spark wrote before it ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.pipeline.errors import CheckpointConflict
from headwater.pipeline.inputs import BatchInput, read_batch_input

HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1}\n'


def test_the_ends_of_all_kafka_sources_are_the_position() -> None:
    found = BatchInput.parse(HEAD + '{"a":{"0":5,"1":6}}\n-\n{"b":{"0":7}}')
    assert found.position.offsets == {("a", 0): 5, ("a", 1): 6, ("b", 0): 7}


def test_a_topic_read_twice_is_read_as_far_as_both_have() -> None:
    assert BatchInput.parse(HEAD + '{"a":{"0":5}}\n{"a":{"0":3}}').position.offsets == {("a", 0): 3}


def test_other_sources_have_no_position_but_count_for_the_digest() -> None:
    rate, files = BatchInput.parse(HEAD + "12"), BatchInput.parse(HEAD + '{"logOffset":3}')
    assert rate.position.offsets == files.position.offsets == {}
    assert rate.digest != files.digest
    assert rate.digest == BatchInput.parse('v1\n{"batchTimestampMs":9}\n12').digest


def test_an_entry_that_cannot_be_read_says_where_it_should_be(tmp_path: Path) -> None:
    with pytest.raises(CheckpointConflict, match=f"cannot read the offset log of batch 3 at {tmp_path}/offsets/3"):
        read_batch_input(str(tmp_path), 3)


def test_a_checkpoint_is_found_under_any_name_spark_has_for_it(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text(HEAD + '{"a":{"0":5}}')
    for location in (str(tmp_path), f"{tmp_path}/", f"file:{tmp_path}", f"file://{tmp_path}"):
        assert read_batch_input(location, 0).position.offsets == {("a", 0): 5}, location
