"""The tour: lessons on a live cluster, each a claim and the commands that show it."""
