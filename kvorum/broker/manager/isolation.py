"""Isolated leaders: a leader that reaches neither a controller nor a follower may have been
replaced.

Bad sequence that this shortens: 1. Broker A loses the controllers and the other brokers, but not
its clients. 2. A's session ends; B and C lead A's partitions, and stop fetching from A. 3.
Producers with acks=all wait at A for records that are never committed, and consumers for records
that never arrive, until their own timeouts.

Either condition alone is not enough. If the whole quorum is down, no leader is elected: followers
keep fetching, and clients may go on. A follower that stops while the controllers answer leaves the
ISR.

The metadata decides: this module changes no role and no epoch.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.partition.replica import Replica
from kvorum.metadata.image.image import EMPTY_IMAGE, ClusterImage
from kvorum.metadata.image.records import NO_LEADER
from kvorum.runtime.errors import ErrorCode

_log = logging.getLogger(__name__)

CHECKS_PER_TIMEOUT = 4
"""Checks of the followers in each session timeout while no controller answers."""
NAMED_MAX = 5
"""Partitions that one log line names."""


class Isolation:
    """Finds the partitions that this broker leads in isolation, and abandons them. A driver.

    The rule is `Partition.has_followers_left`; this class has the clock and the consequences.
    """

    def __init__(
        self,
        replicas: Callable[[], Iterable[Replica]],
        now_ms: Callable[[], int],
        config: BrokerConfig,
        on_change: Callable[[Replica], None],
    ) -> None:
        """replicas: all replicas of this broker.
        now_ms: monotonic.
        on_change: called when a replica is abandoned or no longer abandoned; a coordinator in its
            log then stops or starts.
        """
        self._replicas = replicas
        self._now_ms = now_ms
        self._timeout_ms = config.broker_session_timeout_ms
        # A fetch of an idle follower waits here for up to replica_fetch_wait_max_ms before the
        # follower sends another.
        self._fetch_age_max_ms = max(self._timeout_ms, 2 * config.replica_fetch_wait_max_ms)
        self._on_change = on_change
        self._unfenced_ms = 0
        """When a controller last answered that this broker is not fenced."""
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self._abandoned: dict[Replica, None] = {}
        self._base: ClusterImage | None = None
        self._shown = EMPTY_IMAGE

    # --- controllers -------------------------------------------------------------------------

    def on_controller_answer(self, *, is_fenced: bool) -> None:
        """The active controller has answered a heartbeat."""
        if is_fenced:
            # Other brokers may lead this broker's partitions; the metadata that says so is on its
            # way.
            return
        self._unfenced_ms = self._now_ms()
        if self._abandoned:
            self._set_abandoned(())
        if self._timer is None:
            self._arm(self._timeout_ms)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def check_if_due(self) -> None:
        """Check the followers now if that is overdue: a process that was stopped for a while may
        get a request before its timers."""
        if self._timer is not None and self._now_ms() >= self._due_ms:
            self._timer.cancel()
            self._check()

    def _arm(self, wait_ms: int) -> None:
        self._due_ms = self._now_ms() + wait_ms
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._check)

    def _check(self) -> None:
        left_ms = self._unfenced_ms + self._timeout_ms - self._now_ms()
        if left_ms > 0:
            self._arm(left_ms)
            return
        self._arm(max(self._timeout_ms // CHECKS_PER_TIMEOUT, 1))
        since_ms = self._now_ms() - self._fetch_age_max_ms
        self._set_abandoned(
            replica
            for replica in self._replicas()
            if replica.core.is_leader
            and not replica.core.has_followers_left(_followers_of(replica), since_ms)
        )

    # --- partitions --------------------------------------------------------------------------

    def _set_abandoned(self, replicas: Iterable[Replica]) -> None:
        before, self._abandoned = self._abandoned, dict.fromkeys(replicas)
        self._base = None
        # Check `is_abandoned` of the core: a new leader epoch or another role clears it too.
        ended = [r for r in before if r not in self._abandoned and r.core.is_abandoned]
        for replica in ended:
            replica.core.is_abandoned = False
            # Bad sequence: 1. The topic is deleted and created again. 2. A coordinator starts in
            # the new replica. 3. A call for the closed replica stops that coordinator.
            if not replica.is_closed:
                self._on_change(replica)
        added = [r for r in self._abandoned if not r.core.is_abandoned]
        for replica in added:
            replica.core.is_abandoned = True
            replica.fail_pending(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            replica.notify_state_change()
            self._on_change(replica)
        if added:
            names = [f"{r.core.topic}-{r.core.partition_id}" for r in added[:NAMED_MAX]]
            more = f" and {len(added) - NAMED_MAX} more" if len(added) > NAMED_MAX else ""
            _log.warning(
                "no controller has answered for %d ms, and no in-sync follower fetches from this "
                "broker: acks=all and consumers are refused for %s%s until a controller answers",
                self._timeout_ms, ", ".join(names), more,
            )  # fmt: skip

    def hides(self, topic_ids: Iterable[bytes | None]) -> bool:
        """True if `shown` removes the leader of a partition of one of these topics."""
        if not self._abandoned:
            return False
        hidden = {r.core.topic_id for r in self._abandoned if r.core.is_abandoned}
        return any(topic_id in hidden for topic_id in topic_ids)

    def shown(self, image: ClusterImage) -> ClusterImage:
        """The image shown to clients: abandoned partitions have no leader in it, so that clients
        ask another broker. The same object until the image or the abandoned partitions change."""
        if not self._abandoned:
            return image
        if image is self._base:
            return self._shown
        topics = image.topics
        for replica in self._abandoned:
            core = replica.core
            topic = topics.get(core.topic_id)
            partition = None if topic is None else topic.partitions.get(core.partition_id)
            if topic is None or partition is None or not core.is_abandoned:
                continue
            partitions = topic.partitions.set(
                core.partition_id, dataclasses.replace(partition, leader=NO_LEADER)
            )
            topics = topics.set(core.topic_id, dataclasses.replace(topic, partitions=partitions))
        self._base, self._shown = image, dataclasses.replace(image, topics=topics)
        return self._shown


def _followers_of(replica: Replica) -> set[int]:
    """The brokers whose fetch session lists the partition."""
    return {w.state.replica_id for w in replica.watchers if w.state.is_replica}
