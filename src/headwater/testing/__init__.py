"""Fixtures and harnesses for tests of streaming code."""

from headwater.testing.waiting import eventually

__all__ = ["eventually"]
