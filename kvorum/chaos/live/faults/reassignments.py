"""Partitions that move to other brokers, as kafka-reassign-partitions moves them (KIP-455, KIP-73).

A reassignment goes on by itself once the controller has it. It is over when every partition has its
new replicas. If the fault ends before, the moves of the other partitions are cancelled, which gives
these partitions their former replicas back.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kvorum.chaos.faults import Reassign
from kvorum.chaos.live.faults.operator_calls import ask_any_broker, ask_broker, error_text
from kvorum.chaos.live.faults.throttles import Moving, Throttle
from kvorum.chaos.live.host.node_requests import METADATA, Call
from kvorum.chaos.live.systems.protocol import NotObservable, System, running_brokers
from kvorum.chaos.targets import TargetView, UnresolvableTarget, by_role
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import ErrorCode, KvorumError

_ALTER = Call(key=45, name="alter_partition_reassignments", version=0)
_LIST = Call(key=46, name="list_partition_reassignments", version=0)
_INTERNAL = "__"
_REQUEST_MS = 4_000
#: A cancellation must come through although the cluster is just coming back from other faults.
_CANCEL_WITHIN_MS = 15_000
_RETURN_WITHIN_MS = 15_000
"""How long the end of a reassignment waits for a broker that is down, to take its throttle off."""
_ASK_AGAIN_S = 0.2
#: A broker that hangs must not hold up the faults that are due.
_LOOK_WITHIN_MS = 500

Key = tuple[str, int]
Replicas = tuple[str, ...]
Result = TypeVar("Result")
Ask = Callable[[Call, Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition, its present replicas and those that it is to have, by broker name."""

    key: Key
    before: Replicas
    after: Replicas


def plan_moves(
    fault: Reassign,
    present: Mapping[Key, Replicas],
    view: TargetView,
    rng: random.Random,
) -> list[Move]:
    """The partitions that change, in order. Pure.

    Drawn replicas are as many as before, on brokers that are neither killed nor paused, and one of
    them is new to the partition; a partition for which too few of these brokers are left stays as
    it is. Without a broker that is new to it, the replicas change their order. Brokers are drawn by
    role, so that one seed moves the same roles in every run.
    """
    able = _able(view)
    moves = []
    for key, before in sorted(present.items()):
        if fault.partitions and key[1] not in fault.partitions:
            continue
        after = fault.replicas or _drawn(before, able, rng)
        if after != before:
            moves.append(Move(key=key, before=before, after=after))
    return moves


def _drawn(before: Replicas, able: Sequence[str], rng: random.Random) -> Replicas:
    fresh = [name for name in able if name not in before]
    if fresh:
        first = rng.choice(fresh)
        others = [name for name in able if name != first]
        if len(others) < len(before) - 1:
            return before
        chosen = [first, *rng.sample(others, len(before) - 1)]
        rng.shuffle(chosen)
        return tuple(chosen)
    # No broker is new to the partition: move another running replica to the front.
    places = [at for at in range(1, len(before)) if before[at] in able]
    at = rng.choice(places) if places else 0
    return (before[at], *before[:at], *before[at + 1 :])


def _able(view: TargetView) -> list[str]:
    """The brokers that may get a replica, by role."""
    down = view.killed | view.paused
    return [name for name in by_role(view.brokers, view) if name not in down]


def why_no_move(fault: Reassign, present: Mapping[Key, Replicas], view: TargetView) -> str:
    """The reason why `plan_moves` has found nothing. Pure."""
    able = _able(view)
    most = max((len(replicas) for replicas in present.values()), default=0)
    if fault.replicas or len(able) >= most + 1 or len(able) == len(view.brokers):
        return "every partition has these replicas already"
    return (
        f"the brokers that run ({', '.join(able) or 'none'}) are too few for other replicas of "
        f"partitions that have {most}; restart or resume brokers first"
    )


def why_unknown(fault: Reassign, present: Collection[Key], brokers: Collection[str]) -> str:
    """The first broker or partition of the fault that does not exist; empty if all do. Pure."""
    for name in fault.replicas:
        if name not in brokers:
            return f"no broker is named {name!r} (brokers: {', '.join(brokers)})"
    numbers = {number for _, number in present}
    for number in fault.partitions:
        if number not in numbers:
            topics = ", ".join(sorted({topic for topic, _ in present}))
            return f"{topics} has the partitions 0 to {max(numbers)}, not {number}"
    return ""


class RunningReassignment:
    """The reassignment of one fault. outcome: for the history, once `finish` has returned: the
    partitions that were reassigned, cancelled, or moved elsewhere by a later request."""

    def __init__(
        self, fault: Reassign, system: System, view: TargetView, rng: random.Random
    ) -> None:
        """Raises UnresolvableTarget if nothing can move, for a broker or a partition that does not
        exist, or if no broker answers."""
        self._system = system
        self._ids = {
            node.name: node.node_id for node in system.nodes() if node.name in system.plan.brokers
        }
        present = self._present(fault.topic, view)
        reason = why_unknown(fault, present, self._ids)
        if reason:
            raise UnresolvableTarget(reason)
        self.moves = plan_moves(fault, present, view, rng)
        if not self.moves:
            raise UnresolvableTarget(why_no_move(fault, present, view))
        self._throttle = Throttle(system, fault.throttle) if fault.throttle else None
        self._looks = 0
        self._asked: set[Key] = set()
        #: The partitions whose cancellation was sent, and those whose cancellation was confirmed.
        self._cancellations: set[Key] = set()
        self._cancelled: set[Key] = set()
        self.outcome: dict[str, object] = {}

    def nodes(self) -> tuple[str, ...]:
        """The brokers that lose, get or reorder a replica."""
        struck: set[str] = set()
        for move in self.moves:
            struck |= set(move.before) ^ set(move.after) or set(move.after)
        return tuple(sorted(struck))

    def start(self) -> None:
        """Set the throttle and send the request. Raises UnresolvableTarget if the controller
        refuses every partition."""
        wanted = {move.key: [self._ids[name] for name in move.after] for move in self.moves}
        try:
            if self._throttle is not None:
                self._throttle.set(self._moving())
            # Set before the answer arrives: the controller may have the request although the
            # answer is lost, and `finish` must then cancel it.
            self._asked = set(wanted)
            refused = self._alter(wanted)
        except NotObservable as error:
            raise UnresolvableTarget(f"no partition was reassigned: {error}") from error
        self._asked -= set(refused)
        if not self._asked:
            raise UnresolvableTarget(f"no partition was reassigned: {_told(refused)}")
        if refused:
            self.outcome["refused"] = _told(refused)

    def is_over(self) -> bool:
        """True if no partition moves any more and the throttle can be taken off; False also if the
        broker that is asked does not answer soon. Each look asks the next broker."""
        brokers = running_brokers(self._system)
        # `finish` would wait for a broker that is down, and keep its caller, which ends all faults,
        # from starting that broker again.
        if not brokers or (self._throttle is not None and self._throttle.is_out_of_reach):
            return False
        self._looks += 1
        broker = brokers[self._looks % len(brokers)]

        def ask(call: Call, values: Mapping[str, Any]) -> Any:
            return ask_broker(broker, call, values, timeout_ms=_LOOK_WITHIN_MS)

        try:
            return not self._ongoing(ask)
        except NotObservable:
            return False

    def finish(self) -> None:
        """Cancel what still moves, and take the throttle off. Raises KvorumError if no broker
        answers in time."""
        if self._asked:
            self._persist(self._cancel)
            moved = self._persist(self._moved)
            # A cancellation without an answer may have been carried out.
            cancelled = self._cancelled | (self._cancellations - moved)
            self.outcome |= {
                "reassigned": _names(moved - cancelled),
                "cancelled": _names(cancelled),
                "superseded": _names(self._asked - moved - cancelled),
            }
        if self._throttle is not None:
            self._take_off(self._throttle)

    def _take_off(self, throttle: Throttle) -> None:
        """Clear the throttle. Another fault may have a broker down; it is waited for, a while."""
        deadline_ms = monotonic_ms() + _RETURN_WITHIN_MS
        self._persist(throttle.clear)
        while throttle.left and monotonic_ms() < deadline_ms:
            time.sleep(_ASK_AGAIN_S)
            self._persist(throttle.clear)
        if throttle.left:
            names = {broker_id: name for name, broker_id in self._ids.items()}
            self.outcome["throttled"] = sorted(names[broker_id] for broker_id in throttle.left)

    def _cancel(self) -> None:
        ongoing = self._ongoing(functools.partial(ask_any_broker, self._system))
        if not ongoing:
            return
        self._cancellations |= ongoing
        refused = self._alter(dict.fromkeys(ongoing))
        self._cancelled |= ongoing - refused.keys()
        left = {key: code for key, code in refused.items() if code != _NOTHING_TO_CANCEL}
        if left:
            self._cancellations -= left.keys()
            raise NotObservable(f"the cancellation was refused: {_told(left)}")

    def _moved(self) -> set[Key]:
        """The partitions that have the replicas that were asked for."""
        there = self._replicas({key[0] for key in self._asked})
        return {
            move.key
            for move in self.moves
            if move.key in self._asked and set(there.get(move.key, ())) == set(move.after)
        }

    def _persist(self, act: Callable[[], Result]) -> Result:
        deadline_ms = monotonic_ms() + _CANCEL_WITHIN_MS
        while True:
            try:
                return act()
            except NotObservable as error:
                if monotonic_ms() > deadline_ms:
                    raise KvorumError(f"the reassignment was not taken back: {error}") from error
            time.sleep(_ASK_AGAIN_S)

    def _moving(self) -> Moving:
        return {
            move.key: (
                [self._ids[name] for name in move.before],
                [self._ids[name] for name in move.after if name not in move.before],
            )
            for move in self.moves
        }

    def _present(self, topic: str, view: TargetView) -> dict[Key, Replicas]:
        """The replicas of the topic's partitions; without a topic, of those that the view names."""
        names = {topic} if topic else {name for name, _ in view.partitions}
        full = full_names(self._system, names)
        try:
            found = self._replicas(full)
        except NotObservable as error:
            raise UnresolvableTarget(str(error)) from error
        if not found:
            known = ", ".join(sorted(full)) or "none"
            raise UnresolvableTarget(f"the cluster has no partition to move (topics: {known})")
        return found

    def _replicas(self, topics: Collection[str]) -> dict[Key, Replicas]:
        """The replicas of each partition of these topics. Raises NotObservable."""
        values = {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        answer = ask_any_broker(self._system, METADATA, values)
        names = {node_id: name for name, node_id in self._ids.items()}
        return {
            (str(item.name), int(partition.partition_index)): tuple(
                names[int(replica)] for replica in partition.replica_nodes
            )
            for item in answer.topics
            if item.name in topics
            for partition in item.partitions
        }

    def _alter(self, wanted: Mapping[Key, Sequence[int] | None]) -> dict[Key, int]:
        """The refused partitions, with their error codes. Raises NotObservable."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, number), replicas in sorted(wanted.items()):
            row = {"partition_index": number, "replicas": replicas}
            topics.setdefault(topic, []).append(row)
        values = {
            "timeout": _REQUEST_MS,
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }
        answer = ask_any_broker(self._system, _ALTER, values)
        code = int(answer.error_code)
        if code:
            return dict.fromkeys(wanted, code)
        return {
            (str(topic.name), int(partition.partition_index)): int(partition.error_code)
            for topic in answer.responses
            for partition in topic.partitions
            if int(partition.error_code)
        }

    def _ongoing(self, ask: Ask) -> set[Key]:
        """The partitions of this reassignment that still move. Raises NotObservable.

        A partition that a later reassignment moves elsewhere is none of them.
        """
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(self._asked):
            topics.setdefault(topic, []).append(number)
        rows = [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()]
        answer = ask(_LIST, {"timeout": _REQUEST_MS, "topics": rows})
        code = int(answer.error_code)
        if code:
            raise NotObservable(f"the reassignments were not listed: {error_text(code, answer)}")
        targets = {
            (str(topic.name), int(partition.partition_index)): {
                int(replica)
                for replica in partition.replicas
                if replica not in partition.removing_replicas
            }
            for topic in answer.topics
            for partition in topic.partitions
        }
        return {
            move.key
            for move in self.moves
            if targets.get(move.key) == {self._ids[name] for name in move.after}
        }


def full_names(system: System, names: Collection[str]) -> set[str]:
    """The topics as the cluster knows them: with the run's prefix, if they are not internal."""
    return {name if name.startswith(_INTERNAL) else system.topic_prefix + name for name in names}


_NOTHING_TO_CANCEL = int(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)


def _names(keys: Collection[Key]) -> list[str]:
    return [f"{topic}/{number}" for topic, number in sorted(keys)]


def _told(refused: Mapping[Key, int]) -> str:
    return "; ".join(
        f"{topic}/{number}: {error_text(code, None)}"
        for (topic, number), code in sorted(refused.items())
    )
