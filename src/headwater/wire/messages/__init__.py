"""One module per Kafka API; each declares its request and response once, for all versions."""
