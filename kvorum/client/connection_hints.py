"""The property of --command-config that may be wrong, for a connection that failed. Pure.

A listener with TLS or logins ends a connection that it does not like without saying why, so that
the hint is what this side's own properties suggest.
"""

from __future__ import annotations

from kvorum.client.security import NONE, OF_CONTROLLERS, ClientSecurity
from kvorum.runtime.tls import TlsSettings

_CLOSED = ("closed the connection", "connection reset", "socket closed", "broken pipe")
"""In lower case: the words of sockets and of gRPC for a connection that the other side ended."""
_KEYSTORE, _TRUSTSTORE = "ssl.keystore.location", "ssl.truststore.location"


def connection_hint(
    security: ClientSecurity,
    reason: str,
    *,
    is_controller: bool = False,
    in_handshake: bool = False,
) -> str:
    """A clause that begins with a semicolon; "" if the reason has nothing to do with security.

    reason: the words of `runtime.tls.failure_text`, of a socket or of gRPC. is_controller: a
    controller was called, and no broker. in_handshake: TLS was not established yet.
    """
    tls = security.tls
    if is_controller and security.controllers == "PLAINTEXT":
        tls = None
    if tls is not None:
        clause = _of_certificates(tls, reason)
        if clause:
            return f"; {clause}"
    if "does not speak TLS" in reason:
        return f"; set {_without_tls(security, is_controller=is_controller)}"
    if any(words in reason.lower() for words in _CLOSED):
        in_handshake = in_handshake or "handshake" in reason
        if tls is None:
            return f"; {_of_clear_text(security, is_controller=is_controller)}"
        clauses = _of_tls(security, tls, is_controller=is_controller)
        if in_handshake:
            clear = _without_tls(security, is_controller=is_controller)
            clauses.append(f"{clear} if it has no TLS")
        return f"; set {', or '.join(clauses)}"
    return ""


def _of_certificates(tls: TlsSettings, reason: str) -> str:
    """The way out for a certificate of which the reason speaks; "" if it speaks of none."""
    if "certificate is not accepted" in reason:
        if "expired" in reason:
            return "renew the certificate of that node"
        if "mismatch" in reason or "not valid for" in reason:
            return (
                "use a host that the certificate names; an empty "
                "ssl.endpoint.identification.algorithm accepts any"
            )
        if tls.truststore:
            return f"set {_TRUSTSTORE} to the file of its CA, which is not in {tls.truststore}"
        return f"set ssl.truststore.type=PEM and {_TRUSTSTORE} to the file of its CA"
    if "asks for a certificate" in reason:
        return f"set ssl.keystore.type=PEM and {_KEYSTORE} to the file with your certificate"
    if "this side's certificate" in reason:
        return f"set {_KEYSTORE} to a certificate that it accepts, in place of {tls.keystore}"
    return ""


def _of_clear_text(security: ClientSecurity, *, is_controller: bool) -> str:
    """The properties for a listener that ended a connection in clear text."""
    if security.tls is not None:
        return f"if it asks for TLS, set {OF_CONTROLLERS}=SSL"
    if security == NONE:
        wanted = "TLS" if is_controller else "TLS or a login"
        how = " with security.protocol=SSL" if is_controller else ""
        hint = f"if it asks for {wanted}, give --command-config FILE{how}"
        # A controller ends such a connection too: it does not speak Kafka's protocol.
        return hint if is_controller else f"{hint}; if it is a controller, --bootstrap-controller"
    protocol = "SASL_SSL" if security.mechanism else "SSL"
    return f"if it asks for TLS, set security.protocol={protocol}"


def _of_tls(security: ClientSecurity, tls: TlsSettings, *, is_controller: bool) -> list[str]:
    """The properties for a listener that ended a connection over TLS."""
    clauses = []
    if not security.mechanism and not is_controller:
        clauses.append("security.protocol=SASL_SSL if it asks for a login")
    if tls.keystore:
        clauses.append(f"another {_KEYSTORE} if it does not know the CA of {tls.keystore}")
    else:
        clauses.append(f"{_KEYSTORE} if it asks for your certificate")
    return clauses


def _without_tls(security: ClientSecurity, *, is_controller: bool) -> str:
    if is_controller:
        return f"{OF_CONTROLLERS}=PLAINTEXT"
    return f"security.protocol={'SASL_PLAINTEXT' if security.mechanism else 'PLAINTEXT'}"
