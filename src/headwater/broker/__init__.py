"""Sockets and sessions, one handler per Kafka API, coordinators as pure state machines."""
