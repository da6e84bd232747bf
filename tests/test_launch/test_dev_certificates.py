"""`kvorum certs dev`: the files that it makes and keeps, and what TLS says of them."""

from __future__ import annotations

import datetime
import json
import shlex
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kvorum.launch.cluster.dev_certificate_files import CertificateRequest, make_certificates
from kvorum.launch.cluster.dev_certificates import (
    Authority,
    Wanted,
    described,
    is_signed_by,
    issue,
    load_authority,
    new_authority,
)
from kvorum.runtime.errors import ConfigError
from kvorum.runtime.tls import TlsSettings, server_context
from tests.command import kvorum

NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
DAY = datetime.timedelta(days=1)


def made(folder: Path, *nodes: str, now: datetime.datetime = NOW, **more: object) -> dict[str, str]:
    """By file name: whether this call made or kept the file."""
    request = CertificateRequest(nodes=nodes, **more)  # type: ignore[arg-type]
    return {each.name: each.state for each in make_certificates(str(folder), request, now)}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def handshake(
    folder: Path, server: str, client: str | None, host: str, *, authority: str = "ca.pem"
) -> str | None:
    """The common name of the client that the server saw, after a handshake in memory."""
    settings = TlsSettings(
        what="a test", keystore=str(folder / f"{server}.pem"), truststore=str(folder / "ca.pem"),
        client_auth="required",
    )  # fmt: skip
    of_client = ssl.create_default_context(cafile=str(folder / authority))
    of_client.verify_flags |= ssl.VERIFY_X509_STRICT
    if client is not None:
        of_client.load_cert_chain(folder / f"{client}.pem")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = server_context(settings).wrap_bio(to_server, to_client, server_side=True)
    here = of_client.wrap_bio(to_client, to_server, server_hostname=host)
    left = {here, there}
    for _ in range(10):
        for end in tuple(left):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            left.discard(end)
    assert not left
    certificate = there.getpeercert()
    assert certificate
    return next(value for ((kind, value),) in certificate["subject"] if kind == "commonName")


def test_nodes_and_users_prove_who_they_are_to_each_other(tmp_path: Path) -> None:
    made(tmp_path, "controller-1", "broker-101", users=["alice"], hosts=["example.org", "10.1.2.3"])
    for host in ("localhost", "127.0.0.1", "::1", "example.org", "10.1.2.3"):
        assert handshake(tmp_path, "broker-101", "controller-1", host) == "controller-1"
    assert handshake(tmp_path, "broker-101", "alice", "localhost") == "alice"
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(tmp_path, "broker-101", "alice", "example.com")
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        handshake(tmp_path, "broker-101", None, "localhost")


def test_a_user_cannot_pose_as_a_node(tmp_path: Path) -> None:
    made(tmp_path, "broker-101", users=["alice"])
    with pytest.raises(ssl.SSLCertVerificationError, match="unsuitable certificate purpose"):
        handshake(tmp_path, "alice", "broker-101", "localhost")
    assert described((tmp_path / "alice.pem").read_bytes())[1] == frozenset()


def test_a_certificate_signs_no_further_one(tmp_path: Path) -> None:
    made(tmp_path, "broker-101")
    own = (tmp_path / "broker-101.pem").read_bytes()
    begin = own.index(b"-----BEGIN CERTIFICATE")
    poser = load_authority(own[begin:], own[:begin], "a test")
    (tmp_path / "poser.pem").write_bytes(
        issue(poser, Wanted(name="poser", hosts=("localhost",)), NOW)
    )
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(tmp_path, "poser", "broker-101", "localhost")


def test_a_second_call_adds_and_overwrites_nothing(tmp_path: Path) -> None:
    first = made(tmp_path, "a", "b")
    assert first == {"ca": "made", "a": "made", "b": "made"}
    before = contents(tmp_path)
    assert made(tmp_path, "b", "c", users=["alice"]) == {
        "ca": "kept", "b": "kept", "c": "made", "alice": "made",
    }  # fmt: skip
    after = contents(tmp_path)
    assert {name: after[name] for name in before} == before
    assert handshake(tmp_path, "a", "c", "localhost") == "c"
    assert set(after) == {"ca.pem", "ca.key", "a.pem", "b.pem", "c.pem", "alice.pem"}


def test_force_makes_the_named_ones_anew_under_the_same_ca(tmp_path: Path) -> None:
    made(tmp_path, "a", "b")
    before = contents(tmp_path)
    assert made(tmp_path, "b", is_forced=True, hosts=["example.org"])["b"] == "made"
    after = contents(tmp_path)
    assert [name for name in before if after[name] != before[name]] == ["b.pem"]
    assert handshake(tmp_path, "b", "a", "example.org") == "a"


def test_a_kept_file_that_will_not_do_is_named(tmp_path: Path) -> None:
    def warnings(now: datetime.datetime = NOW, **more: object) -> list[str]:
        request = CertificateRequest(nodes=["a"], **more)  # type: ignore[arg-type]
        return [each.warning for each in make_certificates(str(tmp_path), request, now)]

    made(tmp_path, "a", days=2)
    assert warnings() == ["", ""]
    assert (
        "does not name example.org; make it anew with --force" in warnings(hosts=["example.org"])[1]
    )
    assert "it was valid until" in warnings(NOW + 3 * DAY)[1]
    other = new_authority(NOW)
    (tmp_path / "a.pem").write_bytes(issue(other, Wanted(name="a"), NOW))
    assert "another CA signed it" in warnings()[1]


def test_a_broken_file_is_told_with_the_command_that_makes_it_anew(tmp_path: Path) -> None:
    folder = tmp_path / "my files"
    made(folder, "a", hosts=["h1"])
    for text in (b"x", b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"):
        (folder / "a.pem").write_bytes(text)
        with pytest.raises(ConfigError) as refused:
            made(folder, "a", hosts=["h1"])
        said, _, command = str(refused.value).partition(" make it anew with ")
        assert said == f"{folder / 'a.pem'} holds no certificate in PEM form: move it away, or"
        assert kvorum(*shlex.split(command)[1:])[0] == 0
        assert "h1" in described((folder / "a.pem").read_bytes())[1]


def test_a_certificate_is_of_a_ca_that_its_file_leads_to(tmp_path: Path) -> None:
    old, new, other = (new_authority(NOW, name=name) for name in ("old", "new", "other"))
    below = _below(old)
    leaf = issue(below, Wanted(name="a"), NOW).removesuffix(below.certificate_pem)
    assert is_signed_by(leaf, [old.certificate]) is False
    assert is_signed_by(leaf, [below.certificate])
    chain = leaf + below.certificate_pem
    assert is_signed_by(chain, [new.certificate, old.certificate])
    assert is_signed_by(chain + old.certificate_pem, [other.certificate]) is False


def test_the_ca_may_be_one_of_several_in_its_file(tmp_path: Path) -> None:
    made(tmp_path, "a")
    old = (tmp_path / "ca.pem").read_bytes()
    new = new_authority(NOW)
    (tmp_path / "ca.pem").write_bytes(old + new.certificate_pem)
    (tmp_path / "ca.key").write_bytes(new.key_pem)
    request = CertificateRequest(nodes=["a", "b"])
    assert [each.is_own for each in make_certificates(str(tmp_path), request, NOW)] == [True] * 3
    assert handshake(tmp_path, "b", "a", "localhost") == "a"


def _below(authority: Authority) -> Authority:
    """A CA that another one signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "below")]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(authority.key, hashes.SHA256())
    )
    return Authority(certificate=certificate, key=key)


def test_validity_is_the_asked_number_of_days_and_never_beyond_the_ca(tmp_path: Path) -> None:
    made(tmp_path, "a", days=7)
    assert described((tmp_path / "a.pem").read_bytes())[0] == NOW + 7 * DAY
    authority = new_authority(NOW, days=3)
    pem = issue(authority, Wanted(name="x", ends=NOW + 7 * DAY), NOW)
    assert described(pem)[0] == authority.ends == NOW + 3 * DAY


@pytest.mark.parametrize("name", ["", "ca", "../x", "a/b", "a b", ".hidden", "-x", "x" * 65])
def test_a_name_that_is_no_file_is_refused_before_anything_is_written(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(ConfigError):
        made(tmp_path / "new", "good", name)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("host", ["", "a b", "a" * 64, "...", "https://x"])
def test_a_host_that_is_none_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="neither an address nor the name of a host"):
        made(tmp_path / "new", "good", hosts=[host])
    assert not (tmp_path / "new").exists()


def test_a_node_and_a_user_do_not_share_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="alice is given twice"):
        made(tmp_path, "alice", users=["alice"])


@pytest.mark.parametrize("name", ["ca.pem", "ca.key"])
def test_half_a_ca_is_not_replaced(tmp_path: Path, name: str) -> None:
    made(tmp_path, "a")
    (tmp_path / name).unlink()
    before = contents(tmp_path)
    for is_forced in (False, True):
        must = ", and b.pem must be signed with it" if name == "ca.key" else ""
        with pytest.raises(ConfigError, match=f"{name} is missing{must}: put it back"):
            made(tmp_path, "b", is_forced=is_forced)
    assert contents(tmp_path) == before


def test_the_key_of_a_ca_that_is_away_is_not_replaced(tmp_path: Path) -> None:
    made(tmp_path, "a")
    for name in ("ca.pem", "a.pem"):
        (tmp_path / name).unlink()
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=r"ca.pem is missing: put it back"):
        made(tmp_path, "a")
    assert contents(tmp_path) == before


def test_no_new_ca_begins_beside_certificates_of_another(tmp_path: Path) -> None:
    made(tmp_path, "a")
    for name in ("ca.pem", "ca.key"):
        (tmp_path / name).unlink()
    before = contents(tmp_path)
    both = r"ca.pem and \S*ca.key are missing, and {}.pem must be signed with them: put them back, "
    for node, is_forced, said in (
        ("a", False, "ca.pem is missing: put it back, "),
        ("a", True, both.format("a")),
        ("b", False, both.format("b")),
    ):
        said += "or choose another folder, or move a.pem away to begin anew; a new CA would make"
        with pytest.raises(ConfigError, match=said):
            made(tmp_path, node, is_forced=is_forced)
    assert contents(tmp_path) == before
    (tmp_path / "a.pem").unlink()
    assert made(tmp_path, "a") == {"ca": "made", "a": "made"}


def test_a_ca_that_is_none_or_has_ended_is_refused(tmp_path: Path) -> None:
    made(tmp_path, "a")
    with pytest.raises(ConfigError, match="was valid until"):
        made(tmp_path, "b", now=NOW + 4_000 * DAY)
    (tmp_path / "ca.key").write_bytes(new_authority(NOW).key_pem)
    with pytest.raises(
        ConfigError, match=r"ca.key is not the key of the CA in .*ca.pem: put back the file"
    ):
        made(tmp_path, "b")
    (tmp_path / "ca.key").write_bytes(b"no key")
    with pytest.raises(
        ConfigError, match=r"ca.key holds no key in PEM form .*: put the key .* back, or"
    ):
        made(tmp_path, "b")
    assert not (tmp_path / "b.pem").exists()


def test_the_command_makes_private_files_and_warns_of_the_key(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    command = ("certs", "dev", folder, "--node", "broker-101", "--user", "alice", "--days", "2")
    code, out, error = kvorum(*command, "-o", "json")
    assert code == 0, error
    assert [row["name"] for row in json.loads(out)] == ["ca", "broker-101", "alice"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert "not for production" in error
    assert "PRIVATE" not in out + error
    code, _, error = kvorum("certs", "dev", folder, "--node", "../x")
    assert code == 2
    assert "'../x' cannot be a node or user" in error


def test_the_command_line_starts_without_the_library() -> None:
    # Importing `cryptography` takes longer than `kvorum --help` may take in all.
    program = (
        "import sys; import kvorum.cli.main, kvorum.cli.certs; "
        "sys.exit('cryptography' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
