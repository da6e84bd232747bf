"""Tests of ACLs and the authorizer."""
