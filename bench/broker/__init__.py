"""Our broker and Apache Kafka, one after the other, under the same load on the same machine."""
