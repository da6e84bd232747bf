"""A message between two nodes of a script."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.raft.messages import Request, Response

ADMIN = 0
"""The clients that ask for changes of the voter set."""


@dataclass(eq=False, slots=True)
class Message:
    """On its way. correlation_id, life: of the request at its sender, for the answer too."""

    sender: int
    receiver: int
    payload: Request | Response
    correlation_id: int
    life: int = 0
    is_response: bool = False
