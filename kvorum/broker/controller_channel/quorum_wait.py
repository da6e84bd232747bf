"""Logs what a broker without a quorum waits for, or why the controllers refuse it: soon at first,
then less and less often.

Clients see nothing of a broker that cannot register, or whose heartbeats no controller accepts;
only the log shows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kvorum.metadata.inspect import quorum_report
from kvorum.metadata.rpc.client import ControllerClient
from kvorum.runtime.errors import Rejected

logger = logging.getLogger("kvorum.broker")

FIRST_WORD_S = 1.0
"""Time before the first line: elections and restarts of a controller usually take less."""
PAUSE_S_MAX = 60.0


class QuorumWait:
    """The wait of one broker. `begin` and `end` may be called repeatedly."""

    def __init__(
        self,
        client: ControllerClient,
        broker_id: int,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._broker_id = broker_id
        self._sleep = sleep
        self._task: asyncio.Task[None] | None = None
        self._has_spoken = False

    @property
    def is_on(self) -> bool:
        return self._task is not None

    def begin(self) -> None:
        """Start the wait: no controller leads, as far as the broker can tell."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._log_repeatedly())

    def end(self) -> None:
        """End the wait: an active controller has answered."""
        if self._has_spoken:
            logger.info("broker=%d waits for the quorum no more", self._broker_id)
        self.stop()

    def stop(self) -> None:
        """End the wait without a line: the broker gives up, or stops."""
        self._has_spoken = False
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _log_repeatedly(self) -> None:
        pause_s = FIRST_WORD_S
        while True:
            await self._sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            reply = await self._client.describe(0)
            # A controller may have become the leader and not answered a heartbeat yet; then there
            # is nothing to log, unless it refuses this broker.
            if self._client.refusals.sentence:
                self._has_spoken = True
                logger.warning(
                    "broker=%d is refused by the controllers: %s",
                    self._broker_id,
                    self._client.refusals.sentence,
                )
            elif isinstance(reply, Rejected):
                self._has_spoken = True
                sentence = quorum_report.with_age(
                    reply.message, "This broker", self._client.leader_age_ms
                )
                logger.warning("broker=%d waits for the quorum: %s", self._broker_id, sentence)
