"""The parts of a broker that answer Fetch, bound once for all requests.

Walk: `broker.api.fetch` -> `leader_fetch.start_fetch`, with these services -> the answer.
"""

from __future__ import annotations

from collections.abc import Callable

from kvorum.broker.config.current_configs import CurrentConfigs
from kvorum.broker.fetch.fetch_sessions import SessionCache, Watched
from kvorum.broker.fetch.leader_throttle import LeaderThrottle
from kvorum.broker.fetch.reread_verification import RereadVerification
from kvorum.broker.partition.core.peer_brokers import PeerBrokers
from kvorum.broker.partition.replica import Replica
from kvorum.broker.purgatory.deadlines import Deadlines
from kvorum.runtime.errors import ErrorCode


class FetchServices:
    """The services of one broker's fetches.

    watch: connects a watched partition to its replica, if this broker has it.
    missing_error: for a partition that this broker has no replica of.
    propose_expand: asks the controller for a follower that has caught up to join the ISR.
    """

    def __init__(
        self,
        *,
        watch: Callable[[Watched], Replica | None],
        missing_error: Callable[[str | None, bytes, int], ErrorCode],
        configs: CurrentConfigs,
        peer_brokers: PeerBrokers,
        deadlines: Deadlines,
        propose_expand: Callable[[Replica], None],
        sessions: SessionCache,
        throttle: LeaderThrottle,
        now_ms: Callable[[], int],
    ) -> None:
        self.watch = watch
        self.missing_error = missing_error
        self.configs = configs
        self.peer_brokers = peer_brokers
        self.deadlines = deadlines
        self.propose_expand = propose_expand
        self.sessions = sessions
        self.throttle = throttle
        self.now_ms = now_ms
        self.reread_verification = RereadVerification(configs, now_ms)
