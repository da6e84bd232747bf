"""The driver of a core: its log, files and vote on disk, its requests over gRPC."""
