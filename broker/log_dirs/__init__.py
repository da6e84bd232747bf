"""The broker's data directories: which are online, and which replica lies where."""
