"""The registration of a controller: sent to the active controller until the log has it, watched
from then on, and sent again if an operator removes it while this controller runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import grpc.aio

from kvorum.metadata.controller.loop import ControllerLoop
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.requests.controller_requests import RegisterControllerRequest
from kvorum.metadata.rpc.calls import REGISTER_CONTROLLER
from kvorum.metadata.rpc.own_registration import OwnRegistration
from kvorum.runtime.clock import monotonic_ms
from kvorum.runtime.errors import ConfigError, ErrorCode, NodeRefused
from kvorum.runtime.http2.rpc import USUAL_CHANNELS, Channels
from kvorum.runtime.text import address_text

logger = logging.getLogger("kvorum.controller")

RETRY_PAUSE_S = 0.1
CALL_TIMEOUT_MS = 1_000


class Registrar:
    """`run` is a task from the start of the node; it ends if the registration is refused for good.

    on_refused: called if this controller may not take part, as it cannot read a finalised level, or
        as another process has registered under its id since.
    """

    def __init__(
        self,
        loop: ControllerLoop,
        registration: RegisterControllerRequest,
        *,
        on_refused: Callable[[BaseException], None],
        channels: Channels = USUAL_CHANNELS,
        call_timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> None:
        self._channels = channels
        self._call_timeout_ms = call_timeout_ms
        self._loop = loop
        self._registration = registration
        self._on_refused = on_refused
        self._is_removed = asyncio.Event()
        self._own = OwnRegistration(registration.controller_id, registration.incarnation_id)

    def on_image(self, image: ClusterImage) -> None:
        """Take the committed metadata. Ends this process if another one has taken its place."""
        reason = self._own.replaced(image)
        if reason is not None:
            self._on_refused(NodeRefused(reason, may_succeed_later=True))
        elif self._own.is_removed(image):
            self._is_removed.set()

    @property
    def is_registered(self) -> bool:
        """True if the committed metadata has this process."""
        return self._own.is_in(self._loop.controller.committed)

    async def run(self) -> None:
        while await self._register():
            await self._is_removed.wait()

    async def _register(self) -> bool:
        """Register this process; False if that is refused for good."""
        began_ms = monotonic_ms()
        while not self.is_registered:
            if not await self._try():
                return False
            if not self.is_registered:
                await asyncio.sleep(RETRY_PAUSE_S)
        # Each image until now had this process removed.
        self._is_removed.clear()
        logger.info(
            "controller=%d registered after %d ms",
            self._registration.controller_id,
            monotonic_ms() - began_ms,
        )
        return True

    async def _try(self) -> bool:
        """Send the registration once, if a leader is known; False if a retry is useless."""
        leader_id = self._loop.leader_id
        if leader_id == self._registration.controller_id:
            reply = await self._loop.submit(self._registration, self._call_timeout_ms)
            code = getattr(reply, "code", ErrorCode.NONE)
            message = getattr(reply, "message", "")
        else:
            address = self._loop.node.address_of(leader_id) if leader_id >= 0 else None
            if address is None:
                return True
            answer = await self._call(address_text(*address))
            if answer is None:
                return True
            code, message = answer
        if code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INCONSISTENT_CLUSTER_ID):
            self._on_refused(ConfigError(message))
            return False
        return True

    async def _call(self, address: str) -> tuple[int, str] | None:
        message = REGISTER_CONTROLLER.encode_request(self._registration)
        channel = self._channels.open(address)
        try:
            timeout_s = self._call_timeout_ms / 1000
            reply = await REGISTER_CONTROLLER.method(channel)(message, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            logger.info(
                "controller=%d cannot register: %s",
                self._registration.controller_id,
                error.code().name,
            )
            return None
        finally:
            await channel.close()
        return None if reply is None else (reply.status.code, reply.status.message)
