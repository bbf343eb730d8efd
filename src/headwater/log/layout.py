"""Names of a partition's files, and the batch header as the log's hot paths use it: a plain tuple.

Segments are named by their first offset, 20 digits, so that names sort as offsets do.
"""

from __future__ import annotations

from struct import Struct

__all__ = ["Header", "offset_of", "segment_name"]

LOG = ".log"
INDEX = ".index"
TIMES = ".timeindex"
ABORTED = ".txnindex"
SNAPSHOT = ".snapshot"
COVERED = ".covered"  # beside a segment that replaces others: the offset up to which it does
DELETED = ".deleted"  # renamed away; removed after file.delete.delay.ms, and at start
CLEANED = ".cleaned"  # compaction's output while it is written: of no value after a crash
TEMPORARY = ".tmp"  # a small file while it is written
SWAP = ".swap"  # compaction's finished output: replaces the segments it covers, also after a crash

EPOCHS_FILE = "leader-epoch-checkpoint"
METADATA_FILE = "partition.metadata"

# base offset, length of what follows, leader epoch, magic, crc, attributes, last offset delta, base timestamp,
# max timestamp, producer id, producer epoch, base sequence, record count
HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size  # 61
INITIAL = Struct(">qiibI")  # up to the checksum, which covers all the rest: what the log writes anew
LENGTH_FROM = 12  # the length field counts from here
CRC_FROM = 21  # the checksum covers everything from here
MAGIC = 2

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

RELATIVE_OFFSET_MAX = 2**31 - 1  # from a segment's base offset: what an index entry can say

Header = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


def offset_of(name: str) -> int | None:
    """The offset that a segment's or snapshot's file name carries; None for other files."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isdigit() else None
