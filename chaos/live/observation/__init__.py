"""What each node of a live cluster says of the cluster, asked of that node alone."""
