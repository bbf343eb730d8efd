"""The records of Kafka's internal topics, declared like messages."""
