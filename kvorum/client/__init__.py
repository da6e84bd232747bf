"""Clients of a cluster: connections, logins, and the requests of commands, console and lab."""
