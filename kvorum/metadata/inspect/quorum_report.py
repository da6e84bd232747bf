"""Explains why a quorum has no leader, from the answers of its controllers.

Brokers and the command line ask every controller at once (`DescribeQuorum`) and report the cause in
the same words. No I/O here; answers are `admin_pb2.DescribeQuorumReply` messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvorum.raft.model.quorum import majority
from kvorum.runtime.text import address_text

LEADER_WAIT_MS = 600
"""A failover takes 100 to 400 ms, and callers should not notice it. After this time it is an
outage, and the caller gets the explanation, still within a second."""

FETCH_AGE_MAX_MS = 700
"""A voter that reaches its leader fetches several times in this time, even without new records."""

PROBE_TIMEOUT_MS = 250
"""Time for a controller to describe itself. With LEADER_WAIT_MS it stays below a second."""

PROBE_PAUSE_MS = 30
"""Pause between two rounds of questions during an election."""

_HEADS = ("no quorum: ", "no leader: ")


def leader_of(answers: Sequence[Any]) -> Any | None:
    """The answer of the controller that leads, None if none does.

    A leader whose epoch is below another node's has been superseded without knowing it. A leader
    that no majority fetches from commits nothing, and will resign.
    """
    newest = max((answer.leader_epoch for answer in answers), default=-1)
    for answer in answers:
        is_named = answer.leader_id == answer.node_id and answer.leader_epoch == newest
        if is_named and _is_followed(answer):
            return answer
    return None


def _is_followed(leader: Any) -> bool:
    # The leader's own entry has the time of its answer.
    own = [r for r in (*leader.voters, *leader.observers) if r.node_id == leader.node_id]
    now_ms = own[0].last_fetch_timestamp_ms if own else 0
    followed_by = [
        voter.node_id
        for voter in leader.voters
        if 0 <= voter.last_fetch_timestamp_ms >= now_ms - FETCH_AGE_MAX_MS
    ]
    return len(followed_by) >= majority(len(leader.voters)) if leader.voters else True


def leader_id_of(answers: Sequence[Any]) -> int:
    """The leader according to itself or to its followers, -1 if there is none.

    A follower names a leader only while the leader answers its fetches. So a leader that is too
    busy to describe itself in time still counts.
    """
    leader = leader_of(answers)
    if leader is not None:
        return int(leader.node_id)
    newest = max((answer.leader_epoch for answer in answers), default=-1)
    for answer in answers:
        if answer.leader_epoch == newest and answer.leader_id not in (-1, answer.node_id):
            return int(answer.leader_id)
    return -1


def is_outage(answers: Sequence[Any]) -> bool:
    """True if every controller that answered has had no leader for longer than an election."""
    return bool(answers) and all(answer.leaderless_ms >= LEADER_WAIT_MS for answer in answers)


_USUAL_FAILURES = (
    "Connection refused",
    "Connect call failed",
    "nothing answered within",
    "Deadline",
)
"""Words of the operating system, asyncio and `runtime.http2` for a node that is not there. A
sentence that it is missing says enough."""


def describe_outage(
    answers: Sequence[Any],
    addresses: Mapping[int, str],
    known_epoch: int = -1,
    failures: Mapping[int, str] | None = None,
) -> str:
    """The sentence: reachable voters, missing voters and their addresses, epoch, votes needed.

    addresses: host:port by controller id, as far as known without the answers.
    known_epoch: the epoch that the caller knows, for the case that no controller answered.
    failures: the reason of each controller that did not answer; if it is another one than a node
        that is not there (a name that does not resolve, a certificate, a refusal), the sentence has
        it.
    """
    return _cause(answers, addresses, known_epoch) + _reasons(failures or {})


def _reasons(failures: Mapping[int, str]) -> str:
    who_failed: dict[str, list[int]] = {}
    for node_id, reason in sorted(failures.items()):
        if not any(words in reason for words in _USUAL_FAILURES):
            who_failed.setdefault(reason, []).append(node_id)
    return "".join(
        f"; {reason}"
        if len(node_ids) == len(failures) or min(node_ids) < 0
        # ids below 0 stand for bootstrap servers, which a reason names by their addresses
        else f"; {', '.join(map(str, node_ids))}: {reason}"
        for reason, node_ids in who_failed.items()
    )


def _cause(answers: Sequence[Any], addresses: Mapping[int, str], known_epoch: int) -> str:
    # A node that is new to the quorum, or lost its disk, knows no voters at any epoch.
    newest = max(answers, key=lambda a: (bool(a.voters), a.leader_epoch), default=None)
    if newest is not None and not newest.voters:
        return _no_voters(answers)
    if newest is None and any(node_id < 0 for node_id in addresses):
        # These are stand-ins for bootstrap servers: the voters' ids and number are unknown.
        asked = ", ".join(address for _, address in sorted(addresses.items(), reverse=True))
        return f"{_HEADS[0]}no controller answers at {asked}, the bootstrap servers"
    voters = sorted(v.node_id for v in newest.voters) if newest is not None else sorted(addresses)
    where = dict(addresses)
    for answer in answers:
        where.update({node.node_id: address_text(node.host, node.port) for node in answer.nodes})
    if newest is not None:
        where.update({v.node_id: v.address for v in newest.voters if v.address})
    strangers = _other_disks(newest, answers)
    answered = {answer.node_id for answer in answers} - strangers
    reachable = [str(voter) for voter in voters if voter in answered]
    missing = [
        (f"{voter} at {where[voter]}" if voter in where else str(voter))
        + (" (another disk answers there: this one has no vote)" if voter in strangers else "")
        for voter in voters
        if voter not in answered
    ]
    epoch = known_epoch if newest is None else max(known_epoch, newest.leader_epoch)
    needed = majority(len(voters)) if voters else 1
    text = f"{len(reachable)} of {len(voters)} voters reachable"
    if reachable:
        text += f" ({', '.join(reachable)})"
    if missing:
        text += f", missing {', '.join(missing)}"
    text += f"; epoch {epoch if epoch >= 0 else 'unknown'}; need {needed}"
    if len(reachable) < needed:
        return _HEADS[0] + text
    # A majority answers the caller; the voters may not reach each other, or need a moment.
    return f"{_HEADS[1]}{text}, so an election is under way or the voters do not reach each other"


def _other_disks(newest: Any | None, answers: Sequence[Any]) -> set[int]:
    """Voters whose node id answers from a disk other than the voter's (KIP-853)."""
    if newest is None:
        return set()
    disks = {voter.node_id: bytes(voter.directory_id) for voter in newest.voters}
    return {
        answer.node_id
        for answer in answers
        if any(disks.get(answer.node_id, b"")) and answer.directory_id != disks[answer.node_id]
    }


def _no_voters(answers: Sequence[Any]) -> str:
    nodes = ", ".join(str(answer.node_id) for answer in answers)
    return (
        f"{_HEADS[0]}no voter is known to {nodes}, new to the quorum or on a new disk: no voter "
        "that its bootstrap servers name answers"
    )


def is_sentence(text: str) -> bool:
    """True if `describe_outage` made this message of a refusal."""
    return text.startswith(_HEADS)


def with_age(sentence: str, who: str, age_ms: int | None) -> str:
    """The sentence, with a second one on the age of `who`'s view of the cluster."""
    if age_ms is None:
        return f"{sentence}. {who} has not heard from a leader yet"
    return f"{sentence}. {who} last heard from a leader {age_ms / 1000:.1f} s ago"


def without_age(text: str) -> str:
    """The sentence that `with_age` extended."""
    return text.partition(". ")[0]
