"""Rules of the core broken one at a time: `make mutants`. See `run`."""
