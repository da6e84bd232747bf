"""Migration of groups between the two protocols, with members of both meanwhile (KIP-848). Pure."""
