"""The Kafka listener: accepts connections, dispatches requests, closes connections that misbehave.

The way of a request: `connection` hands a frame to `dispatch`, which parses its header. The frame
goes to a hot handler (Produce, Fetch, the heartbeats of groups), or to `handle` in the file of its
API, which returns the answer's fields or a coroutine that does. The answer then fills the request's
slot. A coroutine runs as a task (such a request is called cold); its answer still leaves in order.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kvorum.broker.api import sasl_authenticate
from kvorum.broker.api.context import RequestContext
from kvorum.broker.api.illegal_sasl_state import illegal_state_answer
from kvorum.broker.api.registry import HOT_HANDLERS, MODULES, SERVED
from kvorum.broker.api.services import Services
from kvorum.broker.metrics.counters import (
    TIMED_INTERVAL_S,
    RequestMetrics,
    RequestTiming,
    TracedTiming,
)
from kvorum.broker.network.connection import Connection, ConnectionHost, Slot
from kvorum.broker.network.connection_limits import ConnectionLimits, parse_overrides
from kvorum.broker.network.login_limits import LOGIN_TIMEOUT_MS, LoginMemory
from kvorum.broker.network.tls_connection import TlsConnection, wrapped
from kvorum.broker.sasl.core.authentication import Authentication, SessionExpired
from kvorum.metadata.image.acl import AclOperation
from kvorum.metadata.image.delta import Delta
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime import peer_failures, tracing
from kvorum.runtime.certificates import TlsListener
from kvorum.runtime.errors import WireError, required
from kvorum.runtime.handshake_turn import HandshakeTurn
from kvorum.runtime.limited_lines import LimitedLines
from kvorum.runtime.protocol_error_log import ProtocolErrorLog
from kvorum.runtime.sockets import listening_sockets
from kvorum.runtime.tls import client_failure_text
from kvorum.runtime.tracing import Span
from kvorum.wire.framing import API_VERSIONS_KEY, BadFrame, parse_request_header
from kvorum.wire.versions import Api

_log = logging.getLogger(__name__)

IDLE_CHECK_INTERVAL_MS = 10_000
HANDSHAKE_TIMEOUT_MS = 10_000
"""Time for a client's TLS handshake, checked together with idle connections."""
SAVE_MEMORY_AFTER_MS = 10_000
"""A connection that has been idle for this long gives up its large receive buffer."""
ACCEPTS_PER_EVENT_MAX = 64
ACCEPT_PAUSE_MS = 100
"""Pause after an accept that failed."""
COLD_REQUESTS_MAX = 10_000
"""Cold requests that may run on this server; a connection that sends another one is closed."""


MakeAuthentication = Callable[[], Authentication]


@dataclass(frozen=True, slots=True)
class _Listener:
    sock: socket.socket
    name: str | None
    authenticate: MakeAuthentication | None
    tls: TlsListener | None
    is_for_brokers: bool
    connections_max: int | None


class KafkaServer:
    """One or more listeners over one ReplicaManager."""

    def __init__(self, services: Services) -> None:
        config, replicas = services.config, services.replicas
        self.config = config
        self.loop_turn = replicas.loop_turn
        self.clock = replicas.clock
        self.metrics = replicas.metrics
        self._requests = self.metrics.requests
        self.services = services
        self._served = services.served_to_tools or SERVED
        self._overrides = config.max_connections_per_ip_overrides
        self._limits = ConnectionLimits(
            parse_overrides(self._overrides),
            samples_max=config.quota_window_num,
            sample_ms=config.quota_window_size_seconds * 1000,
        )
        replicas.image_listeners.append(self._on_image)
        replicas.deadlines.on_failed = self.loop_turn.on_failed = self._on_item_failed
        self._listeners: list[_Listener] = []
        self._connections: dict[Connection, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._idle_task: asyncio.Task[None] | None = None
        self._closing_lines = LimitedLines(_log, self.clock.monotonic_ms)
        self._accept_lines = LimitedLines(
            _log, self.clock.monotonic_ms, ProtocolErrorLog("accept failed", "accepts failed")
        )
        self._handshakes = HandshakeTurn()
        self.login_memory = LoginMemory()
        self._host = ConnectionHost(
            config=config,
            loop_turn=self.loop_turn,
            metrics=self.metrics,
            login_memory=self.login_memory,
            clock=self.clock,
            dispatch=self.dispatch,
            on_closed=self._on_closed,
            on_protocol_error=self._on_protocol_error,
            on_file_failed=replicas.on_file_failed,
            on_handshake_failed=self._on_handshake_failed,
        )

    async def start(self, host: str, port: int, *, listener_name: str | None = None) -> int:
        """Bind and serve; returns the port. May be called again for more listeners."""
        bound_port = await self.bind(host, port, listener_name=listener_name)
        self.serve()
        return bound_port

    async def bind(
        self,
        host: str,
        port: int,
        *,
        listener_name: str | None = None,
        authenticate: MakeAuthentication | None = None,
        tls: TlsListener | None = None,
        is_for_brokers: bool = False,
        connections_max: int | None = None,
    ) -> int:
        """Bind the port on every address of the host, and listen; returns the port (useful with
                port 0). Raises OSError.

        listener_name: the listener whose endpoints Metadata gives to clients that connect here;
            None means each broker's first.
        authenticate: begins the authentication of each client; None for a listener without SASL.
        tls: None for a listener without TLS.
        is_for_brokers: only brokers use the listener; when max.connections is reached, a new
            connection of it takes the place of a connection of another listener.
        connections_max: of this listener, unless a dynamic config says another number; None for no
            limit of its own.
        """
        options = (
            (socket.SO_RCVBUF, self.config.socket_receive_buffer_bytes),
            (socket.SO_SNDBUF, self.config.socket_send_buffer_bytes),
        )
        socks = await listening_sockets(
            asyncio.get_running_loop(),
            host,
            port,
            backlog=self.config.socket_listen_backlog_size,
            options=[(option, size) for option, size in options if size > 0],
        )
        self._listeners += [
            _Listener(sock, listener_name, authenticate, tls, is_for_brokers, connections_max)
            for sock in socks
        ]
        bound_port: int = socks[0].getsockname()[1]
        return bound_port

    def serve(self) -> None:
        """Accept clients on every port bound so far."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.add_reader(listener.sock.fileno(), self._accept, listener)
        if self._idle_task is None:
            self._idle_task = loop.create_task(self._close_idle(), name="kafka-idle")

    async def stop(self) -> None:
        """Close listeners and connections; cancel cold requests under way."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener.sock.fileno())
            listener.sock.close()
        self._listeners.clear()
        for connection in list(self._connections):
            connection.close("the server stops")
        if self._idle_task is not None:
            self._idle_task.cancel()
            with suppress(asyncio.CancelledError):
                await self._idle_task
            self._idle_task = None
        self._closing_lines.stop()
        self._accept_lines.stop()
        await self.services.stop()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_closed(self, connection: Connection, reason: str) -> None:
        """Forget a connection that has ended."""
        if connection in self._connections:
            del self._connections[connection]
            self.metrics.listener(connection.listener).closed += 1
        self.services.share.partitions.on_connection_closed(connection)
        if connection.address:
            self._limits.closed(connection.address)
        _log.debug("connection of %s ended: %s", connection.peer, reason)

    def _on_item_failed(self, item: object, error: Exception) -> None:
        """Close the connection of a request that raised when it was woken, expired or sent."""
        peer = "a parked request"
        for connection in list(self._connections):
            if connection is item or any(slot.parked is item for slot in connection.slots):
                peer = connection.peer
                connection.close("internal error")
        peer_failures.report(error, peer, "a request")

    def _on_handshake_failed(self, connection: Connection, failure: OSError | WireError) -> None:
        """Count and log a client that did not get through the TLS handshake, or whose certificate
        gives no user."""
        self.metrics.listener(connection.listener).failed_authentications += 1
        text = str(failure)
        if isinstance(failure, OSError):
            text = f"TLS handshake: {client_failure_text(failure)}"
        self._closing_lines.closed(connection.peer, text, address=connection.address)

    def _on_protocol_error(self, connection: Connection, failure: WireError) -> None:
        """Log a connection that is about to be closed because its peer broke the protocol.

        An address that speaks another protocol comes back at once, and has one line a minute. A
        refused login has a line each.
        """
        if isinstance(failure, SessionExpired):
            self.metrics.listener(connection.listener).expired += 1
        address = connection.address if isinstance(failure, BadFrame) else ""
        self._closing_lines.closed(connection.peer, str(failure), address=address)

    def _on_image(self, delta: Delta | None, image: ClusterImage) -> None:
        if delta is None or delta.changed_quotas:
            self._limits.update(image.client_quotas)
            self.services.quotas.update(image.client_quotas)

    # --- connections -------------------------------------------------------------------------

    def _accept(self, listener: _Listener) -> None:
        config = self.services.replicas.configs.broker
        for _ in range(ACCEPTS_PER_EVENT_MAX):
            now_ms = self.clock.monotonic_ms()
            # As in Kafka, the listener of brokers is exempt.
            if not listener.is_for_brokers and self._limits.are_too_fast(
                config.max_connection_creation_rate, now_ms
            ):
                self._pause_accepting(listener)
                return
            try:
                sock, peer = listener.sock.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue  # the peer left before it was accepted
            except OSError as failure:
                # No descriptors are left. The socket stays readable: without a pause, accepting
                # would take all of the loop's time. The log has a line a minute.
                self._accept_lines.closed("unknown", str(failure), address=listener.name or "-")
                self._pause_accepting(listener)
                return
            if not listener.is_for_brokers:
                self._limits.accepted(now_ms)
            address = str(peer[0])
            if not self._has_room_for(address, listener):
                sock.close()
                continue
            try:
                self._begin(sock, str(peer), listener, address)
            except Exception as error:  # noqa: BLE001 - reported
                sock.close()
                self._limits.closed(address)
                peer_failures.report(error, str(peer), "a new connection")

    def _begin(self, sock: socket.socket, peer: str, listener: _Listener, address: str) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        authentication = None if listener.authenticate is None else listener.authenticate()
        self.admit(
            sock,
            peer,
            listener.name or "",
            asyncio.get_running_loop(),
            address,
            authentication=authentication,
            tls=listener.tls,
        )

    def _pause_accepting(self, listener: _Listener) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.sock.fileno())
        loop.call_later(ACCEPT_PAUSE_MS / 1000, self._accept_again, listener)

    def _accept_again(self, listener: _Listener) -> None:
        if listener in self._listeners:
            loop = asyncio.get_running_loop()
            loop.add_reader(listener.sock.fileno(), self._accept, listener)

    def _has_room_for(self, address: str, listener: _Listener) -> bool:
        configs = self.services.replicas.configs
        config, name = configs.broker, listener.name or ""
        limit = configs.listener_limits.get(name, listener.connections_max)
        if limit is not None and sum(c.listener == name for c in self._connections) >= limit:
            _log.debug("closed at once: the listener %s has %d connections already", name, limit)
            return False
        if config.max_connections_per_ip_overrides != self._overrides:
            self._overrides = config.max_connections_per_ip_overrides
            # A newer version may have accepted a value that is invalid here: the last ones hold.
            with suppress(ValueError):
                self._limits.set_overrides(parse_overrides(self._overrides))
        if len(self._connections) >= config.max_connections and not (
            listener.is_for_brokers and self._close_for_a_broker(name)
        ):
            return False
        refusal = self._limits.refusal(
            address, config.max_connections_per_ip, self.clock.monotonic_ms()
        )
        if refusal is not None:
            _log.debug("closed at once: %s", refusal)
        return refusal is None

    def _close_for_a_broker(self, listener_name: str) -> bool:
        """Close the least recently active connection of the other listeners, as Kafka does, so that
        clients that use up max.connections do not stop replication. False if there is none."""
        others = [one for one in self._connections if one.listener != listener_name]
        if others:
            min(others, key=lambda one: one.last_active_ms).close("a broker needs its place")
        return bool(others)

    def admit(
        self,
        sock: socket.socket,
        peer: str,
        listener: str,
        loop: asyncio.AbstractEventLoop,
        address: str = "",
        *,
        authentication: Authentication | None = None,
        tls: TlsListener | None = None,
    ) -> None:
        """Serve a client on a non-blocking socket.

        listener: name of the listener that accepted it.
        address: under which `_limits` counts it, "" if it is not counted.
        """
        self.metrics.listener(listener).made += 1
        if tls is None:
            connection = Connection(self._host, sock, peer, listener, loop, address, authentication)
        else:
            try:
                encrypted = wrapped(sock, tls.context)
            except OSError as failure:
                # A client that has reset the connection before it was accepted. Nobody may end this
                # process by that.
                self._forget_unmade(sock, peer, listener, address, failure)
                return
            connection = TlsConnection(
                self._host,
                encrypted,
                peer,
                listener,
                loop,
                address,
                authentication,
                rules=tls.rules,
                handshakes=self._handshakes,
            )
        self._connections[connection] = None

    def _forget_unmade(
        self, sock: socket.socket, peer: str, listener: str, address: str, failure: OSError
    ) -> None:
        sock.close()
        self.metrics.listener(listener).closed += 1
        if address:
            self._limits.closed(address)
        text = f"TLS handshake: {client_failure_text(failure)}"
        self._closing_lines.closed(peer, text, address=address)

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(IDLE_CHECK_INTERVAL_MS / 1000)
            now_ms = self.clock.monotonic_ms()
            oldest_ms = now_ms - self.config.connections_max_idle_ms
            saving_ms = now_ms - SAVE_MEMORY_AFTER_MS
            handshake_ms = now_ms - HANDSHAKE_TIMEOUT_MS
            login_ms = now_ms - LOGIN_TIMEOUT_MS
            for connection in list(self._connections):
                if connection.last_active_ms < saving_ms:
                    connection.save_memory()
                if connection.is_idle and connection.last_active_ms < oldest_ms:
                    connection.close("idle")
                elif (
                    isinstance(connection, TlsConnection)
                    and not connection.is_established
                    and connection.last_active_ms < handshake_ms
                ):
                    connection.close("the TLS handshake did not end in time")
                elif connection.must_log_in and connection.opened_ms < login_ms:
                    connection.close("the client did not log in in time")
                elif connection.has_hung_up:
                    connection.close("closed by the peer")

    # --- requests ----------------------------------------------------------------------------

    def dispatch(self, slot: Slot, view: memoryview, position: int, end: int) -> None:
        """Handle the request in view[position:end]; fill `slot` now or later.

        The bytes are invalid after the call. Raises WireError if the connection must be closed.
        """
        authentication = slot.connection.authentication
        if authentication is not None and authentication.takes_bare_token:
            sasl_authenticate.take_bare_token(slot, bytes(view[position:end]), self.services.audit)
            return
        header = parse_request_header(view, position, end, self._served)
        key, version = header.api_key, header.api_version
        is_broken = authentication is not None and authentication.is_broken_by(key)
        if authentication is not None and not is_broken:
            authentication.check(key, self.clock.monotonic_ms())
        context = RequestContext(
            services=self.services,
            api_version=version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            listener=slot.connection.listener,
            slot=slot,
        )
        if is_broken:
            self._answer_in_login(context, key, view[header.body_position : end])
            return
        if not self._served.is_served(key, version):
            if key != API_VERSIONS_KEY:
                raise WireError(f"API {key} v{version} is not served")
            # KIP-511: the client learns the served versions from a v0 answer and asks again.
            answer = MODULES[key].unsupported_answer()
            context.api_version = 0
            context.answer(MODULES[key].API, answer)
            return
        metrics = self._requests.get(key)
        if metrics is None:
            metrics = self.metrics.of_api(key, self._served.name_of(key))
        metrics.requests += 1
        read_s = slot.connection.read_s
        if read_s >= metrics.due_s:
            metrics.due_s = read_s + TIMED_INTERVAL_S
            slot.timing = RequestTiming(metrics, read_s)
        if self.services.quotas.binds_requests:
            context.began_ms = self.clock.monotonic_ms()
        if tracing.tracer is None:
            self._handle(context, key, view, header.body_position, end)
        else:
            span = self._begin_span(context, metrics, key)
            with tracing.within(span):
                self._handle(context, key, view, header.body_position, end)
        if context.began_ms >= 0:
            context.count_time(self.clock.monotonic_ms())
            context.began_ms = -1

    def _answer_in_login(self, context: RequestContext, key: int, body: memoryview) -> None:
        """Answer a request that came in place of a token, and close. Raises WireError."""
        reason = f"API {key} in the middle of a SASL exchange"
        answer = None
        if self._served.is_served(key, context.api_version):
            api = MODULES[key].API
            answer = illegal_state_answer(api.name, context.api_version, body)
        if answer is None:
            raise WireError(reason)
        context.answer(api, answer)
        context.slot.connection.host.on_protocol_error(context.slot.connection, WireError(reason))
        sasl_authenticate.close_late(context.slot.connection, reason)

    def _begin_span(self, context: RequestContext, metrics: RequestMetrics, key: int) -> Span:
        slot = context.slot
        connection = slot.connection
        attributes: dict[str, tracing.Value] = {
            "messaging.system": "kafka",
            "kvorum.api_key": key,
            "kvorum.api_version": context.api_version,
            "kvorum.broker_id": self.services.broker_id,
            "messaging.client.id": context.client_id or "",
            "client.address": connection.address,
            "enduser.id": connection.user,
        }
        read_s = connection.read_s
        began_ns = tracing.wall_ns(connection.time_s() - read_s)
        span = required(tracing.tracer, "tracing is on").begin(
            metrics.name, attributes, began_ns=began_ns
        )
        slot.timing = TracedTiming(metrics, read_s, span)
        return span

    def _handle(
        self, context: RequestContext, key: int, view: memoryview, position: int, end: int
    ) -> None:
        """Call the handler of API `key`. view[position:end] is the request's body."""
        hot = HOT_HANDLERS.get(key)
        if hot is not None:
            hot(context, view, position, end)
            return
        handler = MODULES[key]
        if context.api_version >= handler.API.inter_broker_min_version:
            context.is_exempt = context.shows_cluster_to(AclOperation.CLUSTER_ACTION)
        parse = getattr(handler, "parse", None)
        if parse is None:
            request = context.read_request(handler.API.name, view[position:end])
        else:
            request = parse(context.api_version, view[position:end], context.request_items_max)
        answer = handler.handle(context, request)
        if inspect.isawaitable(answer):
            self._run_cold(context, handler.API, answer)
        else:
            context.answer(handler.API, answer)

    def _run_cold(self, context: RequestContext, api: Api, answer: Any) -> None:
        if len(self._tasks) >= COLD_REQUESTS_MAX:
            answer.close()
            raise WireError(f"more than {COLD_REQUESTS_MAX} requests under way")
        context.slot.connection.cold_requests += 1
        task = asyncio.get_running_loop().create_task(
            self._answer_later(context, api, answer), name=f"api-{api.name}"
        )
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _answer_later(self, context: RequestContext, api: Api, answer: Any) -> None:
        connection = context.slot.connection
        try:
            try:
                values = await answer
            finally:
                connection.cold_requests -= 1
            if api.needs_controller and self.services.names_another_controller:
                # Bad sequence: 1. An AdminClient of librdkafka takes this broker for the
                # controller. 2. This broker answers that it reaches no controller. 3. The client
                # asks this broker again and no other: it looks for another controller only after it
                # has lost the connection.
                connection.close_when_idle("this broker has lost the controllers")
            context.answer(api, values)
        except WireError as failure:
            connection.fail(failure)
        except asyncio.CancelledError:
            connection.close(f"{api.name} was cancelled")
            raise
        except Exception as error:  # noqa: BLE001 - reported
            connection.break_off(error)
