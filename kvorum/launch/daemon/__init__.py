"""The parts of any node's process: signals, logs, the service manager, tracing."""
