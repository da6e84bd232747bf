"""The parts of Metadata answers: topics, brokers, and the wait while a broker is suspected dead."""
