"""Groups on their way between the protocols, with members of both (KIP-848). Pure."""
