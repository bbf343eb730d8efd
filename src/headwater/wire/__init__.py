"""Bytes ↔ frozen messages of the Kafka protocol. No I/O, clock or logging."""
