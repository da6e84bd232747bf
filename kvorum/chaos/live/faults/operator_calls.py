"""Requests of an operator to any broker that answers, by the Kafka protocol and past the proxies.

librdkafka has no call for voters and reassignments, and after its first answer it goes to the
addresses that brokers advertise, which are the proxies. So these requests go over
`node_requests`. A broker forwards them to the active controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from kvorum.chaos.live.host.node_requests import Call, NodeRequests
from kvorum.chaos.live.systems.protocol import Node, NotObservable, System, running_brokers
from kvorum.runtime.errors import ErrorCode

_ANSWER_TIMEOUT_MS = 5_000
"""Time limit for the answer of one broker."""

#: Answers of a broker that does not reach the active controller, or reaches one that has stepped
#: down: another broker may do better.
_PASSING = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


def ask_any_broker(system: System, call: Call, values: Mapping[str, Any]) -> Any:
    """kio's entity of the first broker's answer that is not a passing error.

    Raises NotObservable, with each broker's reason, if there is no such answer.
    """
    reasons = []
    for node in running_brokers(system):
        try:
            return ask_broker(node, call, values, timeout_ms=_ANSWER_TIMEOUT_MS)
        except NotObservable as error:
            reasons.append(str(error))
    told = "; ".join(reasons) or "all brokers are killed or paused"
    raise NotObservable(f"no broker answered {call.name}: {told}")


def ask_broker(node: Node, call: Call, values: Mapping[str, Any], *, timeout_ms: int) -> Any:
    """kio's entity of one broker's answer. Raises NotObservable if there is none in time, or if
    another broker may do better."""
    try:
        with closing(NodeRequests(node.listener, timeout_ms=timeout_ms)) as peer:
            answer = peer.ask(call, values)
    except OSError as error:
        raise NotObservable(f"{node.name}: {error}") from error
    code = int(getattr(answer, "error_code", 0))
    if code in _PASSING:
        raise NotObservable(f"{node.name}: {error_text(code, answer)}")
    return answer


def error_text(code: int, answer: Any) -> str:
    """An error's name, with the message that came with it."""
    name = ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"
    message = getattr(answer, "error_message", None)
    return f"{name}: {message}" if message else name
