"""A node's messages to systemd, as sd_notify(3) sends them: the node serves, stops, is alive.

A datagram goes to the socket that $NOTIFY_SOCKET names. The watchdog's sign of life comes from the
event loop: a loop that is stuck serves nobody, and systemd restarts the node.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

logger = logging.getLogger("kvorum.node")


def notify(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send a state such as READY=1; False without a service manager, or if it does not listen."""
    path = environment.get("NOTIFY_SOCKET", "")
    if not path:
        return False
    address = f"\0{path[1:]}" if path.startswith("@") else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto(state.encode(), address)
        except OSError as error:
            logger.warning("the service manager does not hear %s: %s", state, error.strerror)
            return False
    return True


def watchdog_interval_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """Half of the time in which the service manager wants a sign of life; None if it wants none of
    this process."""
    wanted, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not wanted.isdigit() or int(wanted) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(wanted) / 2_000_000


async def feed_watchdog() -> None:
    """Give signs of life until cancelled; returns at once if none is wanted.

    A failed notification does not end the loop. Bad sequence otherwise: 1. systemd is restarted and
    misses one. 2. The node sends no more. 3. systemd kills the node, although it serves.
    """
    interval_s = watchdog_interval_s()
    if interval_s is None:
        return
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(interval_s)
