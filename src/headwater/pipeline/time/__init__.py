"""Time: event time per producer, processing time, and the clocks of devices.

    clicks = event_time(topic(spark, "clicks", ...), "at", delay="10 seconds", producer="device", ticks=True)

How it works: `settings` (the columns), `marks` (before the shuffle), `keeper` (in each partition of the operator).
"""

from headwater.pipeline.time.clocks import device_time
from headwater.pipeline.time.event import event_time, processing_time

__all__ = ["device_time", "event_time", "processing_time"]
