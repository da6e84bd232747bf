"""The Kafka protocol's edge: framing, served versions, hot codecs, cold codecs, error replies."""
