"""Access control: ACLs and the authorizer that answers by them. Pure."""
