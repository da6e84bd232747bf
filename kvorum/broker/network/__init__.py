"""The Kafka listener: sockets, frames, one connection's requests in order, requests that wait."""
