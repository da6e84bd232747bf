"""`kvorum console` as a subprocess, and requests to it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.live.cluster import Command

TIMEOUT_S = 30


class Console:
    """A console on a free port. As a context manager it is always ended."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._error_file = folder / "console.err"
        self._arguments = arguments
        self.command: Command
        #: With the token, as it was printed.
        self.address = ""

    def __enter__(self) -> Console:
        self.command = Command(
            "console", "--port", "0", "-o", "json", *self._arguments, error_file=self._error_file
        )
        try:
            self.address = json.loads(self.command.wait_line("address"))["address"]
        except BaseException:
            self.command.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.command.close()

    @property
    def origin(self) -> str:
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def token(self) -> str:
        return self.address.partition("token=")[2]

    def ask(self, path: str, /, **parameters: object) -> tuple[int, Any]:
        """(status, document) of a GET."""
        query = f"?{urlencode(parameters)}" if parameters else ""
        return self._send(urllib.request.Request(f"{self.origin}{path}{query}"))

    def document(self, path: str, /, **parameters: object) -> Any:
        status, document = self.ask(path, **parameters)
        assert status == 200, document
        return document

    def change(self, action: str, node: str) -> tuple[int, Any]:
        """(status, document) of a change, sent as the page sends it."""
        request = urllib.request.Request(
            f"{self.origin}/api/lab/{action}", data=json.dumps({"node": node}).encode()
        )
        request.add_header("content-type", "application/json")
        request.add_header("origin", self.origin)
        return self._send(request)

    def _send(self, request: urllib.request.Request) -> tuple[int, Any]:
        if self.token:
            request.add_header("authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
