"""One partition on disk: batches, segments, indexes, recovery, retention, compaction."""
