"""Windows: tumbling, hopping, session."""

from headwater.pipeline.windows.fixed import hopping, tumbling
from headwater.pipeline.windows.sessions import session

__all__ = ["hopping", "session", "tumbling"]
