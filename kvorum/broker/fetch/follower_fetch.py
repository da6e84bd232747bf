"""Replication: one task for each leader broker fetches all partitions that follow it. A driver.

The task uses a non-blocking socket to the leader's Kafka listener, and Fetch v17. One fetch is in
flight at a time, with one exception: for a partition that starts to follow, a second one is sent at
once. The leader then answers the first, parked one, and the new partition need not wait for it.
Partitions that are created one after another, with nothing to fetch yet, share such requests. After
a response, the next request leaves from the same callback.

The leader's session lists all partitions; a request names only those whose offset moved. A
partition that fails is taken out of the session until its pause is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress

from kvorum.broker.config.broker_config import BrokerConfig
from kvorum.broker.controller_channel.controller_api import ControllerChannel
from kvorum.broker.fetch.follower_fetch_session import FollowerFetchSession
from kvorum.broker.fetch.log_start_ack import LogStartAcks, OnError
from kvorum.broker.metadata_answers.suspects import Suspects
from kvorum.broker.network.frame_buffer import FrameBuffer
from kvorum.broker.network.peer_connection import Connect, PeerAddress, PeerLink, PeerSocket
from kvorum.broker.partition.replica import Replica
from kvorum.broker.quotas.replication_quota import ReplicationQuota
from kvorum.metadata.image.image import TopicIdPartition
from kvorum.runtime import peer_failures
from kvorum.runtime.clock import Clock
from kvorum.runtime.errors import WireError
from kvorum.runtime.tasks import TaskGroup, report_failure
from kvorum.runtime.text import address_text
from kvorum.wire.replica_fetch_codec import pack_replica_fetch, parse_replica_answer

_log = logging.getLogger(__name__)

RECONNECT_FIRST_MS = 20
RECONNECT_MAX_MS = 200
ADDRESS_RETRY_MS = 50
IN_FLIGHT_MAX = 2
NEWCOMERS_INTERVAL_MS = 30
"""Least time between two requests that are sent only for new, empty partitions: each costs an
exchange with the leader. A first write with acks=all to such a partition waits no longer than
this."""
WATCH_INTERVAL_MS = 500
"""How often a connection without a request in flight is checked."""
ANSWER_BYTES_MAX = (1 << 31) - 1
"""As in Kafka. A partition's first batch is sent whole whatever the request's limit, and may be as
large as max.message.bytes. Memory is allocated as the bytes arrive."""


class ReplicaFetcherManager:
    """The fetchers of this broker, by leader broker."""

    def __init__(
        self,
        *,
        broker_id: int,
        config: BrokerConfig,
        controller: ControllerChannel,
        peer_address: PeerAddress,
        clock: Clock,
        connect: Connect,
        on_directory_error: OnError,
    ) -> None:
        """on_directory_error: see `LogStartAcks`."""
        self.quota = ReplicationQuota(clock.monotonic_ms())
        """For all throttled partitions that this broker follows."""
        self._broker_id = broker_id
        self._config = config
        self._controller = controller
        self._peer_address = peer_address
        self._clock = clock
        self._connect = connect
        self._starts = LogStartAcks(on_directory_error)
        self._by_leader: dict[int, ReplicaFetcher] = {}
        self._leader_of: dict[TopicIdPartition, int] = {}
        self.suspects = Suspects(clock.monotonic_ms)
        self._is_started = False
        self._tasks = TaskGroup(report_failure)

    def start(self) -> None:
        self._is_started = True
        for fetcher in self._by_leader.values():
            fetcher.start(self._tasks)

    async def stop(self) -> None:
        self._is_started = False
        await self._tasks.stop()
        for fetcher in self._by_leader.values():
            fetcher.close()
        self._by_leader.clear()
        self._leader_of.clear()
        await self._starts.stop()

    def follow(self, key: TopicIdPartition, replica: Replica, leader: int) -> None:
        """Fetch for `replica` from `leader` from now on, with the replica's current leader
        epoch."""
        if self._leader_of.get(key, leader) != leader:
            self.unfollow(key)
        self._leader_of[key] = leader
        fetcher = self._by_leader.get(leader)
        if fetcher is None:
            fetcher = self._by_leader[leader] = ReplicaFetcher(
                leader=leader,
                broker_id=self._broker_id,
                config=self._config,
                controller=self._controller,
                peer_address=self._peer_address,
                quota=self.quota,
                clock=self._clock,
                connect=self._connect,
                starts=self._starts,
                suspects=self.suspects,
            )
            if self._is_started:
                fetcher.start(self._tasks)
        fetcher.session.add(key, replica)
        if replica.core.leader_epoch == 0 and replica.log.end_offset == 0:
            fetcher.on_newcomer()
        else:
            fetcher.on_partitions_changed()

    def leaders(self) -> Collection[int]:
        """The brokers that this broker fetches or has fetched from."""
        return self._by_leader.keys()

    def is_following(self, key: TopicIdPartition, leader: int) -> bool:
        return self._leader_of.get(key) == leader

    def unfollow(self, key: TopicIdPartition) -> None:
        leader = self._leader_of.pop(key, None)
        if leader is not None:
            self._by_leader[leader].session.remove(key)

    def report_log_start(self, key: TopicIdPartition) -> None:
        """Report to the leader that retention moved the start of a follower's log: DeleteRecords
        may wait for it."""
        leader = self._leader_of.get(key)
        if leader is not None:
            self._by_leader[leader].session.report_log_start(key)
            self._by_leader[leader].on_partitions_changed()

    def on_brokers_changed(self) -> None:
        """Connect again to leaders whose address has changed."""
        for fetcher in self._by_leader.values():
            fetcher.check_address()

    def pause(self, is_paused: bool) -> None:
        """Stop or resume all fetching; for tests and fault injection."""
        for fetcher in self._by_leader.values():
            fetcher.pause(is_paused)


class ReplicaFetcher:
    """Fetches from one leader."""

    def __init__(
        self,
        *,
        leader: int,
        broker_id: int,
        config: BrokerConfig,
        controller: ControllerChannel,
        peer_address: PeerAddress,
        quota: ReplicationQuota,
        clock: Clock,
        connect: Connect,
        starts: LogStartAcks,
        suspects: Suspects,
    ) -> None:
        self._leader = leader
        self._suspects = suspects
        self._broker_id = broker_id
        self._config = config
        self._controller = controller
        self._peer_address = peer_address
        self._clock = clock
        self._connect = connect
        self.session = FollowerFetchSession(
            config=config,
            leader_name=self._name,
            on_resume=self.on_partitions_changed,
            quota=quota,
            clock=clock,
            starts=starts,
        )
        self._client_id = f"broker-{broker_id}-fetcher-{leader}".encode()
        self._has_work = asyncio.Event()
        self._sock: PeerLink | None = None
        self._address: tuple[str, int] | None = None
        self._buffer: FrameBuffer | None = None
        self._output = bytearray()
        self._lost: asyncio.Future[str] | None = None
        self._correlation_id = 0
        self._in_flight: list[int] = []
        self._heard_ms = 0
        self._is_paused = False
        self._is_held = False
        """Paused, or about to log in again: nothing is sent."""
        self._login: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._has_answered = False
        self._watcher: asyncio.TimerHandle | None = None
        self._newcomers: asyncio.TimerHandle | None = None
        self._newcomers_ms = -NEWCOMERS_INTERVAL_MS

    # --- life --------------------------------------------------------------------------------

    def start(self, tasks: TaskGroup) -> None:
        tasks.spawn(self._run(), f"fetcher-{self._leader}")

    def pause(self, is_paused: bool) -> None:
        self._is_paused = self._is_held = is_paused
        if is_paused:
            self._lose("paused")
        self._has_work.set()

    def close(self) -> None:
        """Fetch nothing more; the fetcher's task has ended."""
        self.session.close()
        if self._newcomers is not None:
            self._newcomers.cancel()

    def on_newcomer(self) -> None:
        """A new, empty partition follows this leader. Ask for it now, or at the end of
        NEWCOMERS_INTERVAL_MS if such a request was sent a moment ago."""
        wait_ms = self._newcomers_ms + NEWCOMERS_INTERVAL_MS - self._clock.monotonic_ms()
        if self._sock is None or wait_ms <= 0:
            self._ask_for_newcomers()
        elif self._newcomers is None:
            self._newcomers = asyncio.get_running_loop().call_later(
                wait_ms / 1000, self._ask_for_newcomers
            )

    def _ask_for_newcomers(self) -> None:
        self._newcomers = None
        self._newcomers_ms = self._clock.monotonic_ms()
        if self.session.has_changes:  # unless an earlier request has listed them
            self.on_partitions_changed()

    def on_partitions_changed(self) -> None:
        """Send what has changed in the session."""
        self._has_work.set()
        if self._sock is None or len(self._in_flight) >= IN_FLIGHT_MAX:
            return
        # While a request that opens a session is in flight, a second one would open another
        # session. The session answered later is dropped, and the partitions that only it listed
        # would never be fetched.
        if not (self._in_flight and self.session.is_opening):
            self._send_fetch()

    def _name(self) -> str:
        """The leader's name in log lines."""
        host, port = self._address or ("an unknown address", 0)
        return f"broker {self._leader} at {address_text(host, port)}"

    def check_address(self) -> None:
        if self._sock is not None and self._peer_address(self._leader) != self._address:
            self._lose("the leader's address changed")
        self._has_work.set()

    # --- connection --------------------------------------------------------------------------

    async def _run(self) -> None:
        pause_ms = RECONNECT_FIRST_MS
        while True:
            self._has_work.clear()
            address = self._peer_address(self._leader)
            if self.session.is_empty or address is None or self._is_paused:
                with suppress(TimeoutError):
                    async with asyncio.timeout(
                        ADDRESS_RETRY_MS / 1000 if address is None else None
                    ):
                        await self._has_work.wait()
                continue
            self._has_answered = False
            reason = await self._connect_and_fetch(address)
            _log.debug("fetcher of %d from %d: %s", self._broker_id, self._leader, reason)
            pause_ms = (
                RECONNECT_FIRST_MS if self._has_answered else min(pause_ms * 2, RECONNECT_MAX_MS)
            )
            await asyncio.sleep(pause_ms / 1000)

    async def _connect_and_fetch(self, address: tuple[str, int]) -> str:
        """Fetch over one connection until it ends; returns the reason."""
        loop = asyncio.get_running_loop()
        try:
            sock = await self._connect(loop, address)
        except (OSError, TimeoutError) as failure:
            return f"no connection to {address}: {failure!r}"
        self._sock, self._address = sock, address
        self._suspects.clear(self._leader)
        self._buffer = FrameBuffer(ANSWER_BYTES_MAX)
        self._lost = loop.create_future()
        self._heard_ms = self._clock.monotonic_ms()
        self.session.begin()
        self._read_from(sock)
        try:
            self._watch()
            return await self._lost
        finally:
            for waiting in (self._watcher, self._login):
                if waiting is not None:
                    waiting.cancel()
            self._is_held = self._is_paused
            loop.remove_reader(sock.fileno())
            loop.remove_writer(sock.fileno())
            sock.close()
            self._sock = None
            self._in_flight.clear()
            self._output.clear()

    def _read_from(self, sock: PeerLink) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(sock, PeerSocket):
            loop.add_reader(sock.fileno(), self._on_secure_readable, sock)
            if sock.login_due_s is not None:
                self._login = loop.call_at(sock.login_due_s, self._on_login_due)
        else:
            loop.add_reader(sock.fileno(), self._on_readable)

    def _on_login_due(self) -> None:
        """The session of the login ends soon. Once nothing is in flight, log in again."""
        self._is_held = True
        self._login = None
        self._log_in_if_idle()

    def _log_in_if_idle(self) -> None:
        sock = self._sock
        is_due = not self._is_paused and self._login is None
        if is_due and not self._in_flight and isinstance(sock, PeerSocket):
            loop = asyncio.get_running_loop()
            loop.remove_reader(sock.fileno())
            self._login = loop.create_task(self._log_in(sock), name=f"login-{self._leader}")

    async def _log_in(self, sock: PeerSocket) -> None:
        try:
            await sock.login(asyncio.get_running_loop())
        except (OSError, TimeoutError) as failure:
            _log.warning("%s refuses the login: %r", self._name(), failure)
            self._lose(repr(failure))
            return
        except Exception as error:  # noqa: BLE001 - reported
            self._lose(repr(error))
            peer_failures.report(error, f"broker {self._leader}", "a login")
            return
        self._is_held = self._is_paused
        self._login = None
        self._read_from(sock)
        self._send_fetch()

    def _on_secure_readable(self, sock: PeerSocket) -> None:
        self._on_readable()
        # No event of the socket announces bytes that are decrypted already.
        while self._sock is sock and not self._is_lost and sock.pending():
            self._on_readable()

    @property
    def _is_lost(self) -> bool:
        return self._lost is None or self._lost.done()

    def _watch(self) -> None:
        """Close the connection if the leader is silent, send a fetch if none is in flight, and
        check again later."""
        silent_ms = self._clock.monotonic_ms() - self._heard_ms
        left_ms = self._config.replica_socket_timeout_ms - silent_ms
        if not self._in_flight:
            self._send_fetch()
            left_ms = WATCH_INTERVAL_MS
        elif left_ms <= 0:
            self._lose(f"silent for {silent_ms} ms")
            return
        self._watcher = asyncio.get_running_loop().call_later(left_ms / 1000, self._watch)

    def _lose(self, reason: str) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(reason)

    def _on_readable(self) -> None:
        sock, buffer = self._sock, self._buffer
        if sock is None or buffer is None:
            return
        try:
            if buffer.receive(sock) == 0:
                self._suspects.suspect(self._leader)
                self._lose("closed by the leader")
                return
            self._heard_ms = self._clock.monotonic_ms()
            while (frame := buffer.next_frame()) is not None:
                self._on_answer(buffer.view, *frame)
        except BlockingIOError:
            return
        except OSError as failure:
            self._suspects.suspect(self._leader)
            self._lose(repr(failure))
        except WireError as failure:
            _log.warning("%s: %s; connecting again", self._name(), failure)
            self._lose(repr(failure))
        except Exception as error:  # noqa: BLE001 - reported
            self._lose(repr(error))
            peer_failures.report(error, f"broker {self._leader}", "an answer to a fetch")

    # --- fetch -------------------------------------------------------------------------------

    def _on_answer(self, view: memoryview, position: int, end: int) -> None:
        answer = parse_replica_answer(view, position, end)
        if not self._in_flight or self._in_flight[0] != answer.correlation_id:
            raise WireError(f"answer {answer.correlation_id} to none of {self._in_flight}")
        del self._in_flight[0]
        self._has_answered = True
        self.session.take_answer(answer, view)
        if not self._in_flight:
            self._send_fetch()

    def _send_fetch(self) -> None:
        sock = self._sock
        if sock is None or self._is_held or self._lost is None or self._lost.done():
            self._log_in_if_idle()
            return
        topics, forgotten = self.session.next_request()
        if self.session.is_paused and not forgotten:
            return
        config = self._config
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = pack_replica_fetch(
            correlation_id=self._correlation_id,
            client_id=self._client_id,
            replica_id=self._broker_id,
            replica_epoch=self._controller.broker_epoch,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            bytes_max=config.replica_fetch_response_max_bytes,
            session_id=self.session.session_id,
            session_epoch=self.session.take_epoch(),
            topics=topics,
            forgotten=forgotten,
        )
        if not self._in_flight:
            self._heard_ms = self._clock.monotonic_ms()
        self._in_flight.append(self._correlation_id)
        self._output += frame
        self._flush()

    def _flush(self) -> None:
        sock = self._sock
        if sock is None or not self._output:
            return
        loop = asyncio.get_running_loop()
        try:
            sent = sock.send(self._output)
            del self._output[:sent]
        except BlockingIOError:
            pass
        except OSError as failure:
            self._lose(repr(failure))
            return
        if self._output:
            loop.add_writer(sock.fileno(), self._flush)
        else:
            loop.remove_writer(sock.fileno())
