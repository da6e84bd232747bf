"""The name of a fault, and the line by which progress, traces and reports tell of it. Pure."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from kvorum.chaos.targets import Target

#: The toxicity, in per cent, of a fault that spares no connection.
EVERY_CONNECTION = 100


class NamedFault:
    """The questions that every fault answers.

    func: the name under which experiments, histories, schedules and reports know the fault.
    unsaid: the fields that `text` leaves out.
    """

    __slots__ = ()
    func: ClassVar[str]
    unsaid: ClassVar[tuple[str, ...]] = ()

    def text(self) -> str:
        """One line for progress, traces and reports: `cut active-controller -> one:brokers`."""
        return " ".join([self.func, *self._ends(), *self._details()])

    def _ends(self) -> list[str]:
        """The nodes that are hit, where a word needs no name before it."""
        return []

    def _details(self) -> list[str]:
        """The other fields that are set."""
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if field.name not in self.unsaid
        }
        return [f"{name}={_text_of(value)}" for name, value in values.items() if value]


def _text_of(value: object) -> str:
    if isinstance(value, Target):
        return value.text()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


class FaultOfNodes(NamedFault):
    """A fault of nodes: `kill one:brokers`."""

    __slots__ = ()
    unsaid = ("target", "duration_ms")
    target: Target

    def _ends(self) -> list[str]:
        return [self.target.text()]


class FaultOfLink(NamedFault):
    """A fault of the bytes from source to destination."""

    __slots__ = ()
    unsaid = ("source", "destination", "both_ways", "duration_ms", "toxicity")
    source: Target
    destination: Target
    both_ways: bool

    def _ends(self) -> list[str]:
        return [self.source.text(), "<->" if self.both_ways else "->", self.destination.text()]

    def _details(self) -> list[str]:
        toxicity: int = getattr(self, "toxicity", EVERY_CONNECTION)
        share = [] if toxicity == EVERY_CONNECTION else [f"toxicity={toxicity}"]
        return [*super()._details(), *share]
