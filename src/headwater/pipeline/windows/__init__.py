"""Windows: tumbling, hopping, sliding, session."""

from headwater.pipeline.windows.comparing import compare, deviations
from headwater.pipeline.windows.fixed import hopping, tumbling
from headwater.pipeline.windows.per_event import sliding
from headwater.pipeline.windows.sessions import session

__all__ = ["compare", "deviations", "hopping", "session", "sliding", "tumbling"]
