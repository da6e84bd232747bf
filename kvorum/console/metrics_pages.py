"""Reads the pages of metrics of brokers, over HTTP or HTTPS. Blocks; callers may share one."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import SplitResult, urlsplit

from kvorum.client.security import ClientSecurity
from kvorum.console.core.share_figures import BadPage, Row, ShareFigures, figures_of
from kvorum.console.core.share_figures import SharePartitionName as Name
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.text import address_problem, split_address

SHARED_S = 1.0
"""A reading serves all who ask within this time."""
PAGE_BYTES_MAX = 256 << 20
"""A page of a broker with 100,000 partitions has about 100 MB."""
_LINE_BYTES_MAX = 64 << 10


def page_url(text: str) -> str:
    """The URL of the page at HOST:PORT, or at http:// or https:// before it. Raises ConfigError."""
    scheme, _, address = text.rpartition("://")
    if scheme.lower() not in ("", "http", "https"):
        raise ConfigError(f"{text!r} begins with none of http://, https://")
    address = address.removesuffix("/metrics").removesuffix("/")
    if split_address(address) is None:
        raise ConfigError(address_problem(address))
    return f"{scheme.lower() or 'http'}://{address}/metrics"


class MetricsPages:
    """The pages at these URLs.

    security: of the console; its TLS is that of connections to https://.
    """

    def __init__(self, urls: Sequence[str], security: ClientSecurity, timeout_s: float) -> None:
        self._urls = tuple(dict.fromkeys(urls))
        self._security = security
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._taken_s = -SHARED_S
        self._figures = ShareFigures()

    def share_figures(self) -> ShareFigures:
        """The figures now, or a moment ago if another reader has just looked."""
        with self._lock:
            if time.monotonic() - self._taken_s > SHARED_S:
                # Together: one broker that hangs must not hold up the others.
                with ThreadPoolExecutor(len(self._urls), "console-metrics") as threads:
                    found = list(threads.map(self._rows, self._urls))
                pages = [rows for rows in found if isinstance(rows, dict)]
                self._figures = ShareFigures(
                    rows={name: row for rows in pages for name, row in rows.items()},
                    pages=len(pages),
                    problems=tuple(text for text in found if isinstance(text, str)),
                )
                self._taken_s = time.monotonic()
            return self._figures

    def _rows(self, url: str) -> dict[Name, Row] | str:
        """The rows of a page, or the reason why there are none."""
        try:
            return figures_of(self._lines(url))
        except (OSError, http.client.HTTPException, BadPage) as error:
            return f"{url}: {error or type(error).__name__}"

    def _lines(self, url: str) -> Iterator[str]:
        parts = urlsplit(url)
        connection = self._connection(parts)
        try:
            connection.request("GET", parts.path)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise BadPage(f"it answered {answer.status} {answer.reason}")
            left = PAGE_BYTES_MAX
            while line := answer.readline(_LINE_BYTES_MAX):
                left -= len(line)
                if left < 0:
                    raise BadPage(f"it has more than {PAGE_BYTES_MAX} bytes")
                yield line.decode("utf-8", "replace")
        finally:
            connection.close()

    def _connection(self, parts: SplitResult) -> http.client.HTTPConnection:
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(
            host, port, timeout=self._timeout_s, context=self._security.context
        )
