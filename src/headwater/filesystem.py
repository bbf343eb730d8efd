"""The disk as a dependency."""
