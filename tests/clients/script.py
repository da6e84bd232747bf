"""What the Python families' programs share: the loop over scenarios, waiting, names of errors."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kvorum.runtime.errors import ErrorCode

DEADLINE_S = 30.0
POLL_S = 0.02
REPLICAS = 3
FENCED = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Outcome = dict[str, Any]
_never = threading.Event()


def until(what: str, condition: Callable[[], Any], look: Callable[[], Any] | None = None) -> Any:
    """Poll until `condition` is true; that. look: what keeps a client going meanwhile."""
    deadline = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so in time: {what}")
        if look is None:
            _never.wait(POLL_S)
        else:
            look()
    return value


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    return ErrorCode(code).name


def failed(code: int | None) -> Outcome:
    return {"error": "NONE" if code is None else error_name(code)}


def codec_value(number: int) -> bytes:
    return b"value-%02d-" % number + b"x" * 100


def run(
    scenarios: Mapping[str, Callable[[], Outcome]],
    names: list[str],
    client_error: type[Exception],
) -> None:
    """Print a JSON line for each of these scenarios; a client's error is one's failure."""
    for name in names:
        began = time.monotonic()
        line: dict[str, Any] = {"scenario": name}
        try:
            line["outcome"] = scenarios[name]()
        except (client_error, TimeoutError) as failure:
            line["failure"] = f"{type(failure).__name__}: {failure}"
        line["ms"] = round((time.monotonic() - began) * 1000)
        print(json.dumps(line), flush=True)


def arguments() -> tuple[str, str, list[str]]:
    """Bootstrap address, prefix, names of scenarios."""
    return sys.argv[1], sys.argv[2], sys.argv[3:]
