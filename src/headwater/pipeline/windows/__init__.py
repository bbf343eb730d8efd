"""Windows: tumbling and hopping."""

from headwater.pipeline.windows.fixed import hopping, tumbling

__all__ = ["hopping", "tumbling"]
