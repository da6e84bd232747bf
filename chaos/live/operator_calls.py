"""Requests of an operator to any broker that answers, by the Kafka protocol and past the proxies.

librdkafka has no call for voters and reassignments, so these go over `kafka_connection`. A broker
forwards them to the active controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from kvorum.chaos.live.kafka_connection import Call, KafkaConnection
from kvorum.chaos.live.systems.protocol import RUNNING, NotObservable, System
from kvorum.runtime.errors import ErrorCode, WireError

#: Of one broker's answer; a broker that hangs must not hold up the faults that are due.
ANSWER_TIMEOUT_MS = 5_000

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
    for node in system.nodes():
        is_up = node.state == RUNNING and node.name not in system.paused
        if node.name not in system.plan.brokers or not is_up:
            continue
        try:
            with closing(KafkaConnection(node.listener, timeout_ms=ANSWER_TIMEOUT_MS)) as peer:
                answer = peer.ask(call, values)
        except (OSError, WireError) as error:
            reasons.append(f"{node.name}: {error}")
            continue
        code = int(getattr(answer, "error_code", 0))
        if code not in _PASSING:
            return answer
        reasons.append(f"{node.name}: {error_text(code, answer)}")
    told = "; ".join(reasons) or "all brokers are killed or paused"
    raise NotObservable(f"no broker answered {call.name}: {told}")


def error_text(code: int, answer: Any) -> str:
    """An error's name, with the message that came with it."""
    name = ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"
    message = getattr(answer, "error_message", None)
    return f"{name}: {message}" if message else name
