"""The common part of every node process: logging, signals, readiness, exit codes.

Exit codes: 0 stopped on request; 1 failed, at the start or later (the log says why); 2 refused to
start because of the configuration.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from kvorum.launch.daemon.service_manager import feed_watchdog, notify
from kvorum.runtime import peer_failures
from kvorum.runtime.errors import (
    ConfigError,
    CorruptData,
    DirectoryUnusable,
    KvorumError,
    NodeRefused,
    QuorumNotReached,
    disk_failure,
)
from kvorum.runtime.memory import limit_collections

logger = logging.getLogger("kvorum.node")

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2

WITHDRAW_TIMEOUT_MS = 5_000
"""Limit for the stop of a node whose start was refused."""


class NodeProcess(Protocol):
    """A controller or a broker, as the process runs it."""

    async def start(self) -> None:
        """Return once the node is ready. Raises ConfigError if it refuses to start, CorruptData,
        OSError."""

    async def stop(self, *, is_withdrawn: bool = False) -> None:
        """Hand over and close everything in order.

        is_withdrawn: the start was refused for good, or ended by a signal. Unless the cluster may
            know the node, new directories become empty again, so that the next start may give them
            another identity.
        """


MakeNode = Callable[[Callable[[BaseException], None]], NodeProcess]
"""Creates the node within the running loop; its argument is the callback for fatal failures."""


def run_node(make: MakeNode, *, ready: Callable[[], None] = lambda: None) -> int:
    """Run a node until SIGTERM, SIGINT or a failure; return the exit code.

    ready: called once, when the node serves.
    """
    limit_collections()
    raise_file_limit()
    try:
        return asyncio.run(_run(make, ready))
    except (ConfigError, CorruptData, NodeRefused) as error:
        # CorruptData here was found during the start, so the file and the reason are enough. Damage
        # found later goes through on_failure.
        logger.error("%s", error)
        return _report_refusal(error)


def _report_refusal(error: KvorumError) -> int:
    """Write the one line that a person needs; return the exit code.

    With EXIT_FAILED a supervisor starts the node again. With EXIT_USAGE it does not: what was
    refused, a configuration or this node, would be refused again.
    """
    sys.stderr.write(f"kvorum: {error}\n")
    sys.stderr.flush()
    return EXIT_FAILED if _may_succeed_later(error) else EXIT_USAGE


def _may_succeed_later(error: KvorumError) -> bool:
    return isinstance(error, CorruptData | DirectoryUnusable | QuorumNotReached) or (
        isinstance(error, NodeRefused) and error.may_succeed_later
    )


def raise_file_limit() -> None:
    """Raise the limit of open files to its maximum, as the JVM does. A broker keeps one file open
    for each segment that was read, and shells allow 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            # The hard limit is above what the system allows by now.
            logger.warning("the limit of open files stays at %d: %s", soft, error)


async def _run(make: MakeNode, ready: Callable[[], None]) -> int:
    loop = asyncio.get_running_loop()
    stop_asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_asked.set)

    refusal: asyncio.Future[None] = loop.create_future()
    is_starting = True

    def on_failure(error: BaseException) -> None:
        if is_starting and isinstance(error, NodeRefused | ConfigError):
            if not refusal.done():
                refusal.set_exception(error)
            return
        # A core broke its own rules, or a disk failed: nothing may be written or answered any more.
        # The next start recovers from the disk.
        code = EXIT_FAILED
        if isinstance(error, NodeRefused | ConfigError):
            logger.critical("the node exits: %s", error)
            code = _report_refusal(error)
        elif isinstance(error, OSError) and error.filename is not None:
            logger.critical("the node exits: %s", disk_failure(error))
        else:
            logger.critical("the node failed and exits", exc_info=error)
        logging.shutdown()
        os._exit(code)

    loop.set_exception_handler(exception_handler(on_failure))
    node = make(on_failure)
    watchdog = asyncio.ensure_future(feed_watchdog())
    start = asyncio.ensure_future(_start(node, ready))
    stop = asyncio.ensure_future(stop_asked.wait())
    ends: set[asyncio.Future[Any]] = {start, stop, refusal}
    first, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    is_starting = False
    if not start.done():
        start.cancel()
        await asyncio.wait({start})
    if first != {stop}:
        if (refused := _refusal_of(refusal, start)) is not None:
            if not _may_succeed_later(refused):
                await _withdraw(node)
            raise refused
        start.result()
        await stop
    notify("STOPPING=1")
    await node.stop(is_withdrawn=first == {stop})
    watchdog.cancel()
    return EXIT_OK


def exception_handler(
    on_failure: Callable[[BaseException], None],
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """The event loop's handler of exceptions without a receiver: bugs in callbacks and in
    background tasks. A bug that a peer's connection has shown ends that connection alone."""

    def on_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error, message = context.get("exception"), str(context.get("message"))
        peer = peer_failures.peer_in(context)
        if isinstance(error, Exception):
            if peer is not None and not peer_failures.ends_the_node(error):
                peer_failures.PEER_FAILURES.note(error, peer, message)
                return
            on_failure(error)
        logger.error("event loop: %s", message)

    return on_exception


def _refusal_of(*ended: asyncio.Future[None]) -> KvorumError | None:
    """The refusal of a node while it starts, by its cluster or by itself; None if there is none."""
    for future in ended:
        error = future.exception() if future.done() and not future.cancelled() else None
        if isinstance(error, ConfigError | CorruptData | NodeRefused):
            return error
    return None


async def _withdraw(node: NodeProcess) -> None:
    """Stop a node whose start was refused for good, and take back what the start made. The refusal
    is what a person must read, so a failure of this is only logged."""
    try:
        if not await ended(node.stop(is_withdrawn=True), WITHDRAW_TIMEOUT_MS):
            logger.warning("the refused node did not stop within %d ms", WITHDRAW_TIMEOUT_MS)
    except Exception:
        logger.exception("the refused node did not stop in order")


async def _start(node: NodeProcess, ready: Callable[[], None]) -> None:
    try:
        await node.start()
    except OSError as failure:
        if failure.filename is None:
            raise  # an OSError without a file is a bug; its traceback is needed
        raise DirectoryUnusable(f"cannot start: {disk_failure(failure)}") from failure
    ready()
    notify("READY=1")


async def ended(awaitable: Awaitable[object], timeout_ms: int) -> bool:
    """Wait for something that should end; False if it did not end in time."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await awaitable
    except TimeoutError:
        return False
    return True
