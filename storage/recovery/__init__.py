"""What a start finds out about a log's folder, and what it need not."""
