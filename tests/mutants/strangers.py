"""Limits of what strangers and users without rights can cost, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import mutants_of

SERVER = "kvorum/broker/server.py"
CONNECTION = "kvorum/broker/network/connection.py"
BUFFER = "kvorum/broker/network/frame_buffer.py"
SESSIONS = "kvorum/broker/fetch/fetch_sessions.py"
AUDIT = "kvorum/metadata/access/audit.py"
AUTHORIZER = "kvorum/metadata/access/authorizer.py"
HTTP2 = "kvorum/runtime/http2/connection.py"
HTTP2_SERVER = "kvorum/runtime/http2/server_connection.py"

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    ("stranger-gone", "a client that has reset its connection ends no broker", SERVER,
     "            except OSError as failure:\n                # A client that has reset",
     "            except KeyError as failure:\n                # A client that has reset"),
    ("broker-kept-out", "brokers are let in when clients have taken all places", SERVER,
     "listener.is_for_brokers and self._close_for_a_broker(name)", "False"),
    ("broker-at-a-brokers-cost", "a broker takes no place of another one", SERVER,
     "if one.listener != listener_name", "if True"),
    ("stranger-for-ever", "who has logged in shares no memory of strangers", CONNECTION,
     "socket_request_max_bytes\n        self._buffer.release()", "socket_request_max_bytes"),
    ("stranger-memory", "strangers share a bounded memory", BUFFER,
     "if not self._memory.take(growth):", "if False:"),
    ("session-of-another", "a fetch session is its user's", SESSIONS,
     "if state is None or state.owner != owner:", "if state is None:"),
    ("session-ended-by-another", "nobody else ends a fetch session", SESSIONS,
     "return state is not None and state.owner == owner", "return state is not None"),
    ("audit-flood", "the refusals of one user fill no disk", AUDIT,
     "return self._refusals[principal, host] <= REFUSALS_PER_SECOND_MAX", "return True"),
    ("audit-others", "a user's flood hides nobody else's refusals", AUDIT,
     "self._refusals[principal, host] += 1\n        return self._refusals[principal, host]",
     "self._refusals[0, 0] += 1\n        return self._refusals[0, 0]"),
    ("acl-long-names", "answers about long names are not remembered", AUTHORIZER,
     "if len(name) > CACHED_NAME_CHARACTERS_MAX:", "if False:"),
    ("refused-flood", "calls that are refused without an end close the connection", HTTP2_SERVER,
     "self._refused.count(monotonic_ms())", "pass"),
    ("settings-flood", "SETTINGS without an end close the connection", HTTP2,
     "self._settings.count(monotonic_ms())", "pass"),
)  # fmt: skip

_TESTS = tuple(
    f"tests/test_security/test_{name}.py"
    for name in ("before_the_login", "users_of_a_broker", "rpc_floods")
)
MUTANTS = mutants_of(_RULES, tests=_TESTS)
