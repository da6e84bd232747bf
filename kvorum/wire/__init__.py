"""The Kafka protocol: framing, served versions, fast and generic codecs, error replies."""
