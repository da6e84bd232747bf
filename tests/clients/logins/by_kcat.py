"""Logins with kcat. Its librdkafka may be years older than that of confluent-kafka."""

from __future__ import annotations

import re
import subprocess
from typing import Any

from tests.clients.logins.by_librdkafka import settings
from tests.clients.logins.script import DEADLINE_S, Question, run

_LOGIN_ERROR = re.compile(r"SASL authentication error: (.*?)(?: \(after|$)", re.M)
_MECHANISM_ERROR = re.compile(r"(Unsupported SASL mechanism: .*?)(?: \(after|$)", re.M)
_ACCESS_ERROR = re.compile(r"(\w+ authorization failed)")
_TLS_ERROR = re.compile(r"SSL handshake failed|Disconnected|SSL alert|certificate verify failed")


def answer(question: Question) -> Any:
    if question["token"]:
        return "not served by this client"
    own = settings(question) | {"message.timeout.ms": round(DEADLINE_S * 1_000)}
    common = [text for name, value in own.items() for text in ("-X", f"{name}={value}")]
    topic, group = question["topic"], question["group"]
    produced = kcat(*common, "-P", "-t", topic, stdin="kcat\n")
    if produced.returncode != 0:
        return said(produced.stderr)
    consumed = kcat(*common, "-X", "auto.offset.reset=earliest", "-c", "1", "-G", group, topic)
    if consumed.returncode != 0:
        return said(consumed.stderr)
    return "read" if consumed.stdout else "nothing in time"


def kcat(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["kcat", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE_S,
        check=False,
    )


def said(text: str) -> dict[str, str]:
    errors = {
        _LOGIN_ERROR: "_AUTHENTICATION", _MECHANISM_ERROR: "_AUTHENTICATION", _ACCESS_ERROR: "",
    }  # fmt: skip
    for pattern, error in errors.items():
        if found := pattern.search(text):
            return {"error": error, "says": found[1].partition("broker response: ")[2] or found[1]}
    return {"error": "_SSL or _TRANSPORT" if _TLS_ERROR.search(text) else text, "says": ""}


if __name__ == "__main__":
    run(answer)
