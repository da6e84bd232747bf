"""What a broker tells Prometheus, and the metrics that clients push."""
