"""A message between two nodes of a script."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.raft.model.messages import Request, Response

ADMIN = 0
"""The clients that ask for changes of the voter set."""


@dataclass(eq=False, slots=True)
class Message:
    """A message on its way. correlation_id, life: those of the request at its sender; an answer
    carries the same ones.
    """

    sender: int
    receiver: int
    payload: Request | Response
    correlation_id: int
    life: int = 0
    is_response: bool = False
