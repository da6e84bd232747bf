"""The content of the page, from a sample of the cluster; the requests that it answers. Pure."""
