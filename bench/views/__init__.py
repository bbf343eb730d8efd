"""Benchmarks of views: how fast they apply, how far they lag, what a rebuild costs readers."""
