"""Capture beside Debezium's engine, on the same database in the same run."""
