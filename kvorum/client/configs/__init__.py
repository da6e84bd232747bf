"""Configs as rows of an answer, and the requests about them."""
