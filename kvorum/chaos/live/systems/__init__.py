"""The systems that a live run can test: Kvorum, Apache Kafka, and a cluster that runs already."""
