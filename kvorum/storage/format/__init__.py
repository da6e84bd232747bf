"""Record batches and records as bytes: read, check, build, compress."""
