"""What Metadata answers say of topics and brokers, and when they wait."""
