"""A small marketplace with a feed: the whole system, end to end, on one machine."""
