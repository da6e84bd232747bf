"""A lake: chaos runs and exported metadata as partitioned Parquet, which the Spark job reads."""
