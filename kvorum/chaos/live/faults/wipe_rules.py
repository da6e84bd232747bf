"""Which controllers may lose their disks without a loss of committed metadata. Pure.

A wiped controller comes back under its id and has forgotten its votes and acknowledgements, but a
static voter set still counts its vote. Bad sequence without a rule: 1. A and B acknowledge a record
while C is down; the record is committed. 2. A is wiped. 3. A and C elect C, and the record is lost.
So a wipe is refused unless the other controllers that are up, on the disks with which the run
began, are a majority of all controllers. Each record that they commit during the fault is behind
all earlier ones on a majority of old disks, so `duration_ms` must give them the time for one (a
Kvorum leader appends a no-op every 500 ms).
"""

from __future__ import annotations

from collections.abc import Collection

from kvorum.chaos.targets import TargetView


def why_not_wipe(nodes: Collection[str], view: TargetView, *, wiped: Collection[str]) -> str | None:
    """The reason why the disks of these nodes must stay as they are; None if they may be wiped.

    wiped: the nodes that the run wiped before. Brokers may always be wiped: their records are on
    other replicas, or the loss is what the experiment is about.
    """
    struck = [name for name in view.controllers if name in nodes]
    if not struck:
        return None
    gone = view.killed | view.paused | set(wiped) | set(nodes)
    left = [name for name in view.controllers if name not in gone]
    needed = len(view.controllers) // 2 + 1
    if len(left) >= needed:
        return None
    return (
        f"the disk of {', '.join(struck)} must stay: the other controllers that are up and were "
        f"not wiped ({', '.join(left) or 'none'}) are no majority of {len(view.controllers)}; "
        "restart or resume others first, or give the cluster more controllers"
    )
