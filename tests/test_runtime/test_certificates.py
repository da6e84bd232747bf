"""The certificate of a running node is replaced by good ones alone, and its end is reported."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from kvorum.runtime.certificate_checks import DAY_S, WARNING_DAYS, Certificate, read_certificate
from kvorum.runtime.certificates import CertificateWatch, TlsCaller, TlsListener
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.principals import PrincipalRules
from kvorum.runtime.tls import TlsSettings
from tests.certificates import Authority


class Node:
    """The TLS of a listener, or of calls, whose file is replaced. The CA is in the truststore."""

    def __init__(self, folder: Path, *, is_server: bool = True, **more: Any) -> None:
        self.authority = Authority(folder / "ca")
        self.foreign = Authority(folder / "foreign")
        self.file = folder / "node.pem"
        self._put(self.authority.server("good.pem"))
        settings = TlsSettings(
            what="the listener NODES",
            keystore=str(self.file),
            truststore=str(self.authority.file),
            **more,
        )
        self.tls: TlsListener | TlsCaller
        if is_server:
            self.tls = TlsListener(settings, PrincipalRules())
        else:
            self.tls = TlsCaller(settings)

    def _put(self, path: Path) -> None:
        part = self.file.with_suffix(".new")
        shutil.copy(path, part)
        part.replace(self.file)

    def replaced_by(self, path: Path) -> bool:
        """True if a new file is used after the next look."""
        before = self.tls.context
        self._put(path)
        self.tls.refresh()
        return self.tls.context is not before


@pytest.fixture(params=[True, False], ids=["listener", "caller"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Node:
    made = Node(tmp_path, is_server=request.param)
    assert made.tls.shown is not None and made.tls.shown.is_accepted
    return made


def refusal(node: Node, path: Path, caplog: pytest.LogCaptureFixture) -> str:
    """The log's error about a file that must not be used."""
    caplog.clear()
    shown = node.tls.shown
    assert not node.replaced_by(path)
    assert node.tls.shown is shown
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert str(node.file) in record.getMessage()
    assert "the certificates of before stay in use" in record.getMessage()
    return record.getMessage()


def test_an_expired_certificate_does_not_replace_a_good_one(node, caplog):
    text = refusal(node, node.authority.server("expired.pem", is_expired=True), caplog)
    assert "the certificate CN=127.0.0.1 expired on " in text
    assert node.replaced_by(node.authority.server("next.pem"))


def test_a_certificate_of_a_foreign_ca_does_not_replace_one_of_the_truststore(node, caplog):
    text = refusal(node, node.foreign.server("foreign.pem"), caplog)
    assert "is of no CA in" in text and str(node.authority.file) in text
    assert node.replaced_by(node.authority.server("next.pem"))


def test_a_certificate_that_its_truststore_never_accepted_may_stay_so(tmp_path):
    """The truststore of a listener for clients may have the clients' CA alone."""
    node = Node(tmp_path)
    settings = dataclasses.replace(node.tls.settings, truststore=str(node.foreign.file))
    tls = TlsListener(settings, PrincipalRules())
    node.tls = tls
    assert tls.shown is not None and not tls.shown.is_accepted
    assert node.replaced_by(node.authority.server("next.pem"))


def test_another_name_and_fewer_hosts_are_refused_unless_allowed(tmp_path, caplog):
    node = Node(tmp_path)
    other = node.authority.node("broker-102", "other.pem")
    assert "ssl.allow.dn.changes=true" in refusal(node, other, caplog)
    freed = Node(tmp_path / "freed", allows_other_name=True)
    assert freed.replaced_by(freed.authority.node("broker-102", "other.pem"))
    text = refusal(freed, fewer_of(freed), caplog)
    assert "lacks localhost" in text and "ssl.allow.san.changes=true" in text
    free = Node(tmp_path / "free", allows_other_name=True, allows_fewer_hosts=True)
    assert free.replaced_by(fewer_of(free))


def fewer_of(node: Node) -> Path:
    return node.authority.node("broker-102", "fewer.pem", hosts=("127.0.0.1",))


def test_a_file_without_a_certificate_is_named(tmp_path):
    settings = TlsSettings(what="the listener NODES", keystore=str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match=r"NODES: the certificate in .*none\.pem cannot"):
        read_certificate(settings, is_server=True)


def test_an_expired_certificate_is_reported_once_at_start(tmp_path, caplog):
    authority = Authority(tmp_path)
    path = authority.server("expired.pem", is_expired=True)
    settings = TlsSettings(what="the listener NODES", keystore=str(path))
    watch = asyncio.run(watch_of(settings, settings))
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert f"the certificate CN=127.0.0.1 in {path} expired on " in record.getMessage()
    assert watch.end_warnings() == [record.getMessage().removeprefix("the listener NODES: ")]


async def watch_of(*settings: TlsSettings) -> CertificateWatch:
    watch = CertificateWatch()
    for each in settings:
        watch.add(TlsListener(each, PrincipalRules()))
    return watch


def certificate(ends_s: float) -> Certificate:
    return Certificate(
        where="/etc/node.pem",
        subject="CN=broker-101",
        begins_s=0.0,
        ends_s=ends_s,
        names=frozenset(),
        is_accepted=True,
    )


def test_an_end_is_reported_thirty_days_before():
    now_s = time.time()
    assert certificate(now_s + (WARNING_DAYS + 1) * DAY_S).end_warning(now_s) == ""
    soon = certificate(now_s + 5.5 * DAY_S).end_warning(now_s)
    assert soon.startswith("the certificate CN=broker-101 in /etc/node.pem ends on ")
    assert "in 5 days" in soon
    assert "expired on 1970-01-02 00:00 UTC" in certificate(DAY_S).end_warning(now_s)


def test_text_in_place_of_a_file_is_read_and_checked(tmp_path):
    authority = Authority(tmp_path)
    key, _, chain = authority.server("node.pem").read_text().partition("-----BEGIN CERTIFICATE")
    text = TlsSettings(
        what="the listener NODES",
        key=key,
        certificate_chain=f"-----BEGIN CERTIFICATE{chain}",
        trusted=authority.file.read_text(),
    )
    shown = read_certificate(text, is_server=True)
    assert shown is not None and shown.is_accepted
    assert shown.where == "ssl.keystore.certificate.chain"
    assert shown.names == {"127.0.0.1", "localhost"}
