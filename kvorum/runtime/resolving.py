"""The wait until a host name has an address, for a node that starts before its name is known.

A container or a machine may be up before the name server knows its name. Bad sequence without it:
1. All nodes of a cluster start at once. 2. Each exits, as its name has no address yet. 3. They are
restarted with longer and longer pauses.
"""

from __future__ import annotations

import asyncio
import logging
import socket

PAUSE_S = 1.0
LINES_EVERY = 30
"""Attempts from one line of the log to the next."""


async def until_resolved(host: str, port: int, logger: logging.Logger) -> None:
    """Return once the host has an address. Logs a line at first, and then now and again."""
    loop = asyncio.get_running_loop()
    attempt = 0
    while True:
        try:
            await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if attempt % LINES_EVERY == 0:
                logger.warning(
                    "waits for an address of its host %s: %s; it is tried again every %g s",
                    host,
                    error.strerror,
                    PAUSE_S,
                )
        else:
            if attempt:
                logger.info("host %s has an address now", host)
            return
        attempt += 1
        await asyncio.sleep(PAUSE_S)
