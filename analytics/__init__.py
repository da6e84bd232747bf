"""The Spark job over exported metadata and histories; reads files, imports no other package."""
