"""Common parts of the Python families' programs: the loop over scenarios, names of errors."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from kvorum.runtime.errors import ErrorCode
from tests.polling import NotInTime

REPLICAS = 3
FENCED = ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Outcome = dict[str, Any]


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
        except (client_error, TimeoutError, NotInTime) as failure:
            line["failure"] = f"{type(failure).__name__}: {failure}"
        line["ms"] = round((time.monotonic() - began) * 1000)
        print(json.dumps(line), flush=True)


def arguments() -> tuple[str, str, list[str]]:
    """Bootstrap address, prefix, names of scenarios."""
    return sys.argv[1], sys.argv[2], sys.argv[3:]
