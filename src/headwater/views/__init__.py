"""Followers of the log into derived stores, each exactly once."""
