"""Tests of Streams groups."""
