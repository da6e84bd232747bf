"""What is wrong with a quorum that has no leader, out of what its controllers answered.

Brokers and the command line ask every controller at once (`DescribeQuorum`) and say it in the
same sentence. No I/O here; answers are `admin_pb2.DescribeQuorumReply` messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvorum.raft.quorum import majority
from kvorum.runtime.text import address_text

LEADER_WAIT_MS = 600
"""Fail-over takes 100 to 400 ms; who asks in between should not notice. Longer than this is an
outage, and the answer is what is wrong, still within a second."""

FETCH_AGE_MAX_MS = 700
"""A voter in touch with its leader fetches several times in that span, records or none."""

PROBE_TIMEOUT_MS = 250
"""For one controller to describe itself. Added to LEADER_WAIT_MS it stays below a second."""

PROBE_PAUSE_MS = 30
"""Between two rounds of questions while an election may be going on."""

_HEADS = ("no quorum: ", "no leader: ")


def leader_of(answers: Sequence[Any]) -> Any | None:
    """The answer of the controller that leads, None if none does.

    A leader of an epoch below another node's has been overtaken and does not know it yet. One that
    no majority fetches from commits nothing, and will resign.
    """
    newest = max((answer.leader_epoch for answer in answers), default=-1)
    for answer in answers:
        is_named = answer.leader_id == answer.node_id and answer.leader_epoch == newest
        if is_named and _is_followed(answer):
            return answer
    return None


def _is_followed(leader: Any) -> bool:
    # It stamps its own entry with the time at which it answered.
    own = [r for r in (*leader.voters, *leader.observers) if r.node_id == leader.node_id]
    now_ms = own[0].last_fetch_timestamp_ms if own else 0
    followed_by = [
        voter.node_id
        for voter in leader.voters
        if 0 <= voter.last_fetch_timestamp_ms >= now_ms - FETCH_AGE_MAX_MS
    ]
    return len(followed_by) >= majority(len(leader.voters)) if leader.voters else True


def leader_id_of(answers: Sequence[Any]) -> int:
    """Who leads by its own word or that of those who follow it, -1 if nobody does.

    A follower names a leader only while that answers its fetches. So a leader too busy to
    describe itself in time is not given up for that.
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
    """True if nobody who answered has had a leader for longer than an election takes."""
    return bool(answers) and all(answer.leaderless_ms >= LEADER_WAIT_MS for answer in answers)


def say(answers: Sequence[Any], addresses: Mapping[int, str], known_epoch: int = -1) -> str:
    """The sentence: voters reachable, who is missing and where, the epoch, what is needed.

    addresses: host:port by controller id, as far as known without the answers. known_epoch: what
    the asker itself knows, for when nobody answered.
    """
    # A node that has just joined, or lost its disk, knows no voters whatever its epoch is.
    newest = max(answers, key=lambda a: (bool(a.voters), a.leader_epoch), default=None)
    if newest is not None and not newest.voters:
        return _no_voters(answers)
    if newest is None and any(node_id < 0 for node_id in addresses):
        # Stand-ins for bootstrap servers: neither ids, nor how many voters there are, is known.
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
    # Enough of them answer us; what they lack is each other, or a moment.
    return f"{_HEADS[1]}{text}, so an election is under way or the voters do not reach each other"


def _other_disks(newest: Any | None, answers: Sequence[Any]) -> set[int]:
    """Voters in whose place a disk answers that is not theirs (KIP-853)."""
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
    """True if a refusal's message is one that `say` made."""
    return text.startswith(_HEADS)


def with_age(sentence: str, who: str, age_ms: int | None) -> str:
    """The sentence with a second one: how old `who`'s view of the cluster may be."""
    if age_ms is None:
        return f"{sentence}. {who} has not heard from a leader yet"
    return f"{sentence}. {who} last heard from a leader {age_ms / 1000:.1f} s ago"


def without_age(text: str) -> str:
    """The text that `with_age` was given."""
    return text.partition(". ")[0]
