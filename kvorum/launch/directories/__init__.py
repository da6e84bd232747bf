"""A node's directories: who they belong to, and the metadata log in them."""
