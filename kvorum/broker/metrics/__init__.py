"""The metrics of a broker for Prometheus, and the metrics that clients push."""
