"""Nexmark: an online auction's events, and the 23 queries over them that stream processors are compared by."""
