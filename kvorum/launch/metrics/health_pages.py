"""`/livez`, `/readyz` and `/debug/raft`, as a node answers them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from kvorum.launch.metrics.health import Check, Facts, checks
from kvorum.launch.metrics.raft_view import raft_report
from kvorum.launch.metrics.server import JSON, Answer, HttpRequest, Response
from kvorum.raft.node.raft_node import RaftNode

OK, UNAVAILABLE = "200 OK", "503 Service Unavailable"


def pages(node: RaftNode, facts: Callable[[], Facts]) -> Mapping[str, Answer]:
    """The answers by path. facts: those of the moment of a request."""
    return {
        "/livez": _alive,
        "/readyz": lambda request: ready(request, facts()),
        "/debug/raft": lambda request: Response(OK, _json(raft_report(node)), JSON),
    }


def _alive(request: HttpRequest) -> Response:
    """This answer proves it: the event loop runs."""
    if request.takes_json:
        return Response(OK, _json({"status": "alive"}), JSON)
    return Response(OK, b"alive\n")


def ready(request: HttpRequest, facts: Facts) -> Response:
    """200, or 503 with the conditions that are not met, and in both cases the warnings; all
    conditions with `?verbose` or in JSON."""
    found = checks(facts)
    failed = [check for check in found if not check.is_passed]
    status = UNAVAILABLE if failed else OK
    if request.takes_json:
        body = {
            "status": "not ready" if failed else "ready",
            "checks": {
                c.name: {"ok": c.is_passed, "value": c.value}
                | ({"warning": True} if c.is_warning else {})
                for c in found
            },
        }
        return Response(status, _json(body), JSON)
    shown = [
        check
        for check in found
        if "verbose" in request.query or not check.is_passed or check.is_warning
    ]
    lines = [*map(_line, shown), "not ready" if failed else "ready"]
    return Response(status, "".join(f"{line}\n" for line in lines).encode())


def _line(check: Check) -> str:
    sign = "!" if check.is_warning else "+" if check.is_passed else "-"
    return f"[{sign}] {check.name}: {check.value}"


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"
