"""The cluster in one process, in virtual time, from one seed."""
