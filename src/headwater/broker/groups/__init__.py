"""Consumer groups: who reads which partition, and how far each group has got.

Pure state machines (`classic`, `consumer`, `offsets`, put together by `coordinator`) are fed with (request, now) and
return effects: records for `__consumer_offsets`, answers, what to do once the records are on disk. They know no
socket, no clock and no log. `driver` is the only part that does: it appends, waits for durability, answers, and keeps
the timer.

The invariant of the whole package: nothing that a client is told can be forgotten by a crash, because an answer that
depends on records, its own or earlier ones of the same group, waits until they are on disk.
"""
