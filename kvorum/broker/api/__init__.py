"""The Kafka APIs, a file each; what their handlers share; and the table of all of them
(`registry`).

`ACCESS` in each file lists the permissions that its handler asks for. The lists of errors leave out
the authorization errors that follow from it. The coordinator errors 14 to 16 are
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR.
"""
