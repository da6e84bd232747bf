"""What each node of a live cluster says about the cluster when that node alone is asked."""
