"""The parts of a broker that answer Fetch, bound once for all requests.

Walk: `broker.api.fetch` -> `leader_fetch.start_fetch`, with these services -> the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kvorum.broker.fetch.fetch_sessions import SessionCache, Watched
from kvorum.broker.fetch.reread_verification import RereadVerification
from kvorum.broker.manager.current_configs import CurrentConfigs
from kvorum.broker.network.purgatory import Deadlines
from kvorum.broker.partition.peer_brokers import PeerBrokers
from kvorum.broker.partition.replica import Replica
from kvorum.broker.quotas.leader_throttle import LeaderThrottle
from kvorum.runtime.errors import ErrorCode


class IsrProposals(Protocol):
    """The broker's AlterPartition requests, as a follower's fetch causes them."""

    def propose_expand(self, replica: Replica) -> None: ...


class WatchedReplicas(Protocol):
    """The registry of replicas, as fetches use it."""

    def watch(self, watched: Watched) -> Replica | None: ...

    def missing_error(self, topic: str, topic_id: bytes, partition_id: int) -> ErrorCode: ...


class FetchServices:
    """The services of one broker's fetches.

    watch, missing_error: those of the registry, bound here because each partition of each fetch may
    need them.
    """

    def __init__(
        self,
        *,
        registry: WatchedReplicas,
        configs: CurrentConfigs,
        peer_brokers: PeerBrokers,
        deadlines: Deadlines,
        isr: IsrProposals,
        sessions: SessionCache,
        throttle: LeaderThrottle,
        now_ms: Callable[[], int],
    ) -> None:
        self.watch = registry.watch
        self.missing_error = registry.missing_error
        self.configs = configs
        self.peer_brokers = peer_brokers
        self.deadlines = deadlines
        self.isr = isr
        self.sessions = sessions
        self.throttle = throttle
        self.now_ms = now_ms
        self.reread_verification = RereadVerification(configs, now_ms)
