"""The log is Kafka: topics, producers and consumers, security, starting offsets."""
