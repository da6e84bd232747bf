"""Fetch from both ends: a leader's answers, and the followers that ask."""
