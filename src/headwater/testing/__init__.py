"""Fixtures and harnesses for tests of streaming code."""
