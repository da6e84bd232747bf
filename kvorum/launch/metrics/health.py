"""The rules by which a node is ready. Pure.

A node is alive if its event loop answers, with or without a quorum: a supervisor that restarted
every node of a lost quorum would make the outage longer. A node is ready if it can do its work: a
broker that is in service and hears from a leader, a controller that leads or hears from its leader.
Both must apply the metadata as it is committed.
"""

from __future__ import annotations

from typing import NamedTuple

LEADER_SILENCE_MS_MAX = 5_000
"""A node that heard of no leader for longer is not ready. A fail-over takes less than a second, and
one that takes longer must be seen before a supervisor's next two probes."""
STUCK_MS_MAX = 10_000
"""A node that has applied nothing for so long, although records are committed, is not ready. A
start with a large log moves all the time."""


class Check(NamedTuple):
    """One condition.

    value: what was found, for people.
    is_warning: the condition is met, and will not be for ever unless somebody acts.
    """

    name: str
    is_passed: bool
    value: str
    is_warning: bool = False


class Facts(NamedTuple):
    """The state of a node, as it knows it.

    role: of the quorum, as `raft_view.role_of`.
    leader_age_ms: since a leader was heard of, or the node started; None for never; 0 on the
        leader.
    stuck_ms: for how long nothing was applied although something was committed.
    is_fenced: None on a controller.
    offline_directories: of a broker.
    certificates: of the node, None without TLS.
    certificate_warnings: sentences on those that have expired or end soon.
    refused_leader: why the node does not follow the quorum's leader.
    """

    role: str
    leader_id: int
    epoch: int
    leader_age_ms: int | None
    applied_offset: int
    high_watermark: int
    stuck_ms: int
    is_fenced: bool | None = None
    directories: int = 0
    offline_directories: int = 0
    certificates: int | None = None
    certificate_warnings: tuple[str, ...] = ()
    refused_leader: str = ""


def checks(facts: Facts) -> list[Check]:
    """Every condition of readiness, with its value. The node is ready if all have passed."""
    found = [_leader(facts), _applied(facts)]
    if facts.is_fenced is not None:
        state = "the controller has fenced this broker, or it has not joined yet"
        found.insert(0, Check("unfenced", not facts.is_fenced, state if facts.is_fenced else "yes"))
        left = facts.directories - facts.offline_directories
        value = f"{left} of {facts.directories} in use"
        found.append(Check("log_dirs", left > 0, value))
    if facts.certificates is not None:
        found.append(_certificates(facts))
    return found


def _leader(facts: Facts) -> Check:
    where = f"role={facts.role} epoch={facts.epoch} leader={facts.leader_id}"
    if facts.role == "leader":
        return Check("quorum", True, where)
    if facts.refused_leader:
        return Check("quorum", False, f"{where}; {facts.refused_leader}")
    if facts.leader_age_ms is None:
        return Check("quorum", False, f"{where}; no leader was ever heard of")
    is_heard = facts.leader_age_ms <= LEADER_SILENCE_MS_MAX
    age = f"no leader for {facts.leader_age_ms} ms" if facts.leader_id < 0 else "a leader was "
    age += "" if facts.leader_id < 0 else f"heard of {facts.leader_age_ms} ms ago"
    if not is_heard:
        age += f", more than {LEADER_SILENCE_MS_MAX} ms"
    return Check("quorum", is_heard, f"{where}; {age}")


def _certificates(facts: Facts) -> Check:
    # Never a failure: nodes with an expired certificate still serve the connections that they have,
    # and a supervisor or a roll that takes them out of service mends nothing.
    value = "; ".join(facts.certificate_warnings) or "none ends soon"
    return Check("certificates", True, value, is_warning=bool(facts.certificate_warnings))


def _applied(facts: Facts) -> Check:
    at = f"applied={facts.applied_offset} committed={facts.high_watermark}"
    if facts.high_watermark < 0:
        # The node has just started, and heard of no leader yet, whatever its age says.
        return Check("metadata", False, f"{at}; no leader has told yet what is committed")
    is_moving = facts.applied_offset >= facts.high_watermark or facts.stuck_ms <= STUCK_MS_MAX
    if not is_moving:
        at += f"; nothing was applied for {facts.stuck_ms} ms"
    return Check("metadata", is_moving, at)
