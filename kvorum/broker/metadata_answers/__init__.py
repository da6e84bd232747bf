"""The parts of Metadata answers: topics, brokers, and the wait while a leader is suspected dead."""
