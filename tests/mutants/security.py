"""Rules of logging in, of listeners and of certificates' names, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import mutants_of

AUTHENTICATION = "kvorum/broker/sasl/core/authentication.py"
SCRAM = "kvorum/broker/sasl/core/scram.py"
PLAIN = "kvorum/broker/sasl/core/plain.py"
MECHANISMS = "kvorum/broker/sasl/core/mechanisms.py"
LISTENERS = "kvorum/launch/config/listeners.py"
PRINCIPALS = "kvorum/runtime/principals.py"
NAMES = "kvorum/runtime/certificate_names.py"

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    ("sasl-open", "before the login nothing else is served", AUTHENTICATION,
     "elif api_key not in _BEFORE or self._state is _State.FAILED:",
     "elif self._state is _State.FAILED:"),
    ("sasl-after-failure", "after a failed login nothing is served", AUTHENTICATION,
     "elif api_key not in _BEFORE or self._state is _State.FAILED:",
     "elif api_key not in _BEFORE:"),
    ("sasl-session", "a session ends", AUTHENTICATION,
     "if is_expired and api_key not in _BEFORE:", "if False:"),
    ("sasl-other-user", "a client that logs in again is who it was", AUTHENTICATION,
     "if self.user and self.user != step.user:", "if False:"),
    ("sasl-other-mechanism", "a client logs in again by the same mechanism", AUTHENTICATION,
     "            if mechanism != self.mechanism:\n", "            if False:\n"),
    ("sasl-again-at-once", "a client logs in again once a second at most", AUTHENTICATION,
     " or now_ms < self._again_from_ms:", ":"),
    ("sasl-two-handshakes", "one handshake is enough", AUTHENTICATION,
     "        elif self._state is not _State.NEW:\n", "        elif False:\n"),
    ("sasl-bare", "only a handshake of version 0 is followed by bare tokens", AUTHENTICATION,
     "self._is_bare = version == 0", "self._is_bare = True"),
    ("scram-proof", "the client proves that it knows the password", SCRAM,
     "if not hmac.compare_digest(stored_key, credential.stored_key):", "if False:"),
    ("scram-nonce", "a final message is good for its own exchange", SCRAM,
     ' or found["nonce"] != self._nonce', ""),
    ("scram-binding", "nobody between may change the header", SCRAM,
     "binding != self._header or ", ""),
    ("scram-weak", "a credential of few iterations is not used", SCRAM,
     " or credential.iterations < ITERATIONS_MIN", ""),
    ("scram-once", "an exchange that failed is over", SCRAM,
     "self._is_over = True", "self._is_over = False"),
    ("scram-mechanism", "a credential is of one mechanism", MECHANISMS,
     "of_user.get(scram.MECHANISMS[name])", "of_user.get(1)"),
    ("scram-same-nonce", "each exchange has a nonce of its own", MECHANISMS,
     'f"{rng.getrandbits(NONCE_BITS):x}"', '"nonce"'),
    ("plain-unknown", "an unknown user has no password", PLAIN,
     "if expected is None or not is_right:", "if expected is not None and not is_right:"),
    ("plain-password", "the password must be right", PLAIN,
     "if expected is None or not is_right:", "if expected is None:"),
    ("plain-other", "a user acts for himself alone", PLAIN,
     "if authorization_id and authorization_id != user:", "if False:"),
    ("listener-any-address", "clients are told an address that they can reach", LISTENERS,
     "if is_unspecified(host):", "if False:"),
    ("listener-first", "the listener of the brokers is registered first", LISTENERS,
     "key=lambda listener: listener.name != first", "key=lambda listener: listener.name"),
    ("principal-whole-name", "a rule must match the whole name", PRINCIPALS,
     "self._pattern.fullmatch(name)", "self._pattern.match(name)"),
    ("principal-escaped", "special characters of a name are escaped", NAMES,
     '_SPECIAL.sub(r"\\\\\\g<0>", inner)', "inner"),
    ("peer-ends-the-node", "an unforeseen error of a peer ends its connection alone",
     "kvorum/launch/daemon/process.py", "            if peer is not None and not peer_failures.ends_the_node(error):", "            if False:"),
    ("own-state-goes-on", "an error of the node's own state ends it", "kvorum/runtime/peer_failures.py",
     "    return isinstance(error, InvariantViolated | CorruptData) or not", "    return not"),
    ("item-takes-turns", "an item that fails takes no other's turn", "kvorum/broker/purgatory/loop_turn.py",
     "                    self.on_failed(parked, error)", "                    raise"),
    ("principal-unmatched", "a name that no rule matches gives no user", PRINCIPALS,
     "        raise WireError(\n            f\"no rule", "        return name\n        raise WireError(\n            f\"no rule"),
)  # fmt: skip

MUTANTS = mutants_of(
    _RULES,
    tests=(
        "tests/test_broker/test_sasl.py",
        "tests/test_runtime/test_principals.py",
        "tests/test_launch/test_listeners.py",
        "tests/test_launch/test_peer_failures.py",
        "tests/test_broker/test_unforeseen_errors.py",
    ),
)
