"""Queries whose driver, workers, executors or broker are killed, and what is in their topics afterwards."""
