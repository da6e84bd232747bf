"""Rules of the links among nodes and of calls to controllers, each with an edit that breaks it."""

from __future__ import annotations

from tests.mutants.model import mutants_of

HTTP2_TLS = "kvorum/runtime/http2/tls.py"
SERVER = "kvorum/runtime/http2/server.py"
TLS = "kvorum/runtime/tls.py"
CERTIFICATES = "kvorum/runtime/certificates.py"
GUARD = "kvorum/metadata/rpc/guard.py"
ACCESS = "kvorum/metadata/access/services.py"
NODE_LINKS = "kvorum/launch/config/node_links.py"
PROPERTIES = "kvorum/launch/config/properties.py"
PEERS = "kvorum/broker/network/peer_connection.py"
FETCHER = "kvorum/broker/fetch/follower_fetch.py"

_RULES: tuple[tuple[str, str, str, str, str], ...] = (
    ("rpc-alpn", "a peer without ALPN h2 is refused", HTTP2_TLS,
     "if self.tls.selected_alpn_protocol() != ALPN:", "if False:"),
    ("rpc-user", "the caller is the user of its certificate", HTTP2_TLS,
     "return Caller(rules.user_of(certificate), host)", "return Caller(ANONYMOUS, host)"),
    ("rpc-stalled", "a handshake has an end", HTTP2_TLS,
     "limit_s, self.give_up,", "3600, self.give_up,"),
    ("rpc-handshakes", "there are not more handshakes than the limit", HTTP2_TLS,
     "if len(self._layers) >= HANDSHAKES_MAX:", "if False:"),
    ("rpc-alert", "the other side hears why a handshake fails", HTTP2_TLS,
     "        self._flush()\n        if self._handshakes is None:",
     "        if self._handshakes is None:"),
    ("tls-name", "the certificate must name the host", TLS,
     "context.check_hostname = settings.checks_name", "context.check_hostname = False"),
    ("tls-bad-files", "bad files change nothing", CERTIFICATES,
     "            self.context, self.shown = self._made(settings)\n",
     "            self.context = None  # type: ignore[assignment]\n            self.context, self.shown = self._made(settings)\n"),
    ("guard-order", "a refused call is not carried out", SERVER,
     "if self._guard is not None and not self._is_let_in(path, connection, stream):", "if False:"),
    ("guard-conversations", "conversations end when the access does", SERVER,
     "for path, connection, stream in list(self._conversations.values()):",
     "for path, connection, stream in []:"),
    ("guard-unknown", "a method without a rule is refused", GUARD,
     'return f"{path} is refused: no access is declared for it"', "return None"),
    ("guard-any", "one operation of the table must be allowed", GUARD,
     "is_allowed = any(", "is_allowed = True or any("),
    ("guard-removed", "an ACL that is gone gives nothing", GUARD,
     "self._authorizer.change(added=added, removed=removed)",
     "self._authorizer.change(added=added)"),
    ("access-vote", "only nodes vote", ACCESS, '"BeginQuorumEpoch": _NODES,',
     '"BeginQuorumEpoch": _ALTER,'),
    ("access-configs", "configs of any topic need ALTER", ACCESS,
     '"AlterConfigs": _ALTER,', '"AlterConfigs": (*_NODES, AclOperation.ALTER_CONFIGS),'),
    ("access-log", "the metadata log is not for everybody who may describe", ACCESS,
     '"ReadMetadataLog": _NODES,', '"ReadMetadataLog": _DESCRIBE,'),
    ("controllers-sasl", "SASL on the controllers' listener is refused", NODE_LINKS,
     "if protocol in (SASL_PLAINTEXT, SASL_SSL):", "if False:"),
    ("brokers-mechanism", "brokers log in by a mechanism of the listener", NODE_LINKS,
     "if mechanism not in served:", "if False:"),
    ("brokers-two-names", "the brokers' listener is named once", NODE_LINKS,
     "if listener_name and protocol:", "if False:"),
    ("authorizer-anonymous", "an authorizer that would refuse all is refused", PROPERTIES,
     'tls is not None and tls.client_auth != "none"', "True"),
    ("peer-refusal-once", "a refusal is said once", PEERS,
     "if before is None or before.reason != reason:", "if True:"),
    ("peer-backoff", "a broker that refused is left alone for a while", PEERS,
     "if refusal is not None and loop.time() < refusal.retry_at_s:", "if False:"),
    ("peer-pending", "bytes that are decrypted are found", PEERS,
     "return 0 if self._tls is None else self._tls.pending()", "return 0"),
    ("peer-relogin", "a follower logs in again before its session ends", FETCHER,
     "self._login = loop.call_at(sock.login_due_s, self._on_login_due)", "self._login = None"),
)  # fmt: skip

MUTANTS = mutants_of(
    _RULES,
    tests=(
        "tests/test_runtime/test_http2_tls.py",
        "tests/test_metadata/test_guard.py",
        "tests/test_launch/test_node_links.py",
        "tests/test_broker/test_peer_connection.py",
    ),
)
