"""The console of a secure cluster: as one user, and with sign-in of the cluster's own users."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from kvorum.console.core.attempts import FAILURES_OF_USER_MAX
from tests.certificates import Authority
from tests.live.chromium import chromium, tab
from tests.live.cluster import Cluster, run_kvorum
from tests.live.console import Console
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

PASSWORD = "correct horse battery staple"
REAUTH_MS = 2_000
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secure")
    (folder / "password").write_text(PASSWORD)
    with Cluster(
        folder, is_secure=True, settings=[f"connections.max.reauth.ms={REAUTH_MS}"]
    ) as cluster:
        for command in (
            "topics create orders --partitions 2",
            "topics create hidden",
            "produce orders one two --partition 0",
            "consume orders --group billing",
            "consume orders --group others",
            f"users create alice --password-file {folder / 'password'}",
            "acls create --allow-principal User:alice --consumer --topic orders --group billing",
        ):
            done = cluster.cli(*command.split())
            assert done.returncode == 0, done.stderr
        yield cluster


@pytest.fixture(scope="module")
def console(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    arguments = ("--sign-in", "-b", cluster.bootstrap, "--command-config")
    folder = tmp_path_factory.mktemp("console")
    with Console(folder, *arguments, str(cluster.command_config)) as console:
        yield console


class Browser:
    """Requests with a cookie, without following redirects."""

    def __init__(self, console: Console, context: ssl.SSLContext | None = None) -> None:
        self.origin = console.origin
        self._netloc = urlsplit(console.origin).netloc
        self._context = context
        self.cookie = ""
        self.set_cookie = ""

    def ask(
        self, path: str, body: str | None = None, **headers: str
    ) -> tuple[int, str, http.client.HTTPMessage]:
        if self._context is None:
            connection = http.client.HTTPConnection(self._netloc, timeout=DEADLINE_S)
        else:
            connection = http.client.HTTPSConnection(
                self._netloc, timeout=DEADLINE_S, context=self._context
            )
        sent = {"cookie": self.cookie, **headers} if self.cookie else headers
        try:
            connection.request("GET" if body is None else "POST", path, body, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        return answer.status, text, answer.headers

    def post(self, path: str, **fields: str) -> tuple[int, str, http.client.HTTPMessage]:
        headers = {"origin": self.origin, "content-type": FORM}
        return self.ask(path, urlencode(fields), **headers)

    def sign_in(self, user: str, password: str) -> int:
        status, _, headers = self.post("/sign-in", user=user, password=password)
        self.set_cookie = headers.get("set-cookie", "")
        self.cookie = self.set_cookie.partition(";")[0]
        return status

    def document(self, path: str, /, **parameters: object) -> tuple[int, Any]:
        status, text, _ = self.ask(f"{path}?{urlencode(parameters)}")
        return status, json.loads(text)

    def view(self, name: str, /, **parameters: object) -> Any:
        """A view, once the cluster has answered."""

        def read() -> Any:
            status, document = self.document(f"/api/view/{name}", **parameters)
            assert status == 200, document
            return document if document["meta"]["status"] == "live" else None

        return eventually(read, f"{name} is live")


def admin_password(cluster: Cluster) -> str:
    assert cluster.command_config is not None
    return cluster.command_config.read_text().split('password="')[1].partition('"')[0]


@pytest.fixture
def alice(console: Console) -> Browser:
    browser = Browser(console)
    assert browser.sign_in("alice", PASSWORD) == 303
    return browser


def test_nobody_sees_anything_before_the_sign_in(console: Console) -> None:
    stranger = Browser(console)
    assert "token=" not in console.address
    status, _, headers = stranger.ask("/")
    assert (status, headers["location"]) == (303, "/sign-in")
    status, text, _ = stranger.ask("/sign-in")
    assert status == 200 and "<form" in text
    assert stranger.document("/api/view/topics")[0] == 401
    assert stranger.document("/api/events/topics")[0] == 401
    stranger.cookie = "x=y"
    assert stranger.document("/api/session")[0] == 401


def test_a_session_is_a_cookie_that_scripts_and_other_sites_cannot_use(alice: Browser) -> None:
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(alice.set_cookie.split("; "))
    assert "Secure" not in alice.set_cookie
    assert PASSWORD not in alice.ask("/")[1]


def test_a_user_sees_what_acls_let_it_describe(alice: Browser) -> None:
    topics = alice.view("topics")
    assert "orders" in json.dumps(topics) and "hidden" not in json.dumps(topics)
    assert "127.0.0.1" in json.dumps(alice.view("brokers"))
    groups = eventually(
        lambda: found if "billing" in (found := json.dumps(alice.view("groups"))) else None,
        "the group is read",
    )
    assert "others" not in groups
    status, messages = alice.document("/api/messages", topic="orders")
    assert status == 200 and "one" in json.dumps(messages)

    def has_ends() -> bool:
        rows = alice.view("replication", name="orders")["rows"].values()
        logs = [log for row in rows for log in row["replicas"].values()]
        return bool(logs) and all("end" in log and "problem" not in log for log in logs)

    eventually(has_ends, "the replicas' logs are shown")
    assert alice.view("replication")["rows"] == {}, "the quorum is not for this user"


def test_a_page_of_something_that_a_user_may_not_describe_says_so(alice: Browser) -> None:
    alice.view("topics")
    for path, parameters, said in (
        ("/api/view/topic", {"name": "hidden"}, "TOPIC_AUTHORIZATION_FAILED"),
        # As in Kafka, nobody without the right learns whether a topic is there.
        ("/api/view/topic", {"name": "nowhere"}, "TOPIC_AUTHORIZATION_FAILED"),
        ("/api/view/replication", {"name": "hidden"}, "TOPIC_AUTHORIZATION_FAILED"),
        ("/api/messages", {"topic": "hidden"}, "TOPIC_AUTHORIZATION_FAILED"),
        ("/api/view/group", {"name": "others"}, "GROUP_AUTHORIZATION_FAILED"),
        ("/api/configs", {"kind": "topic", "name": "hidden"}, "TOPIC_AUTHORIZATION_FAILED"),
        ("/api/metadata", {}, "CLUSTER_ACTION on the cluster"),
        ("/api/metadata/diff", {"from": 1, "to": 2}, "CLUSTER_ACTION on the cluster"),
    ):
        status, document = alice.document(path, **parameters)
        assert status == 403 and said in document["error"], (path, status, document)
    quorum = alice.view("quorum")
    assert "DESCRIBE on the cluster" in quorum["no_quorum"] and quorum["nodes"] == {}


def test_a_user_with_the_rights_of_a_node_follows_the_metadata(
    console: Console, cluster: Cluster
) -> None:
    admin = Browser(console)
    assert admin.sign_in("admin", admin_password(cluster)) == 303
    assert "hidden" in json.dumps(admin.view("topics"))
    assert admin.view("quorum")["leader_id"] in (1, 2, 3)
    status, tree = admin.document("/api/metadata", path="/topics")
    assert status == 200 and "hidden" in json.dumps(tree)


def test_rights_that_are_taken_away_are_gone_from_the_next_look(
    alice: Browser, cluster: Cluster
) -> None:
    alice.view("topics")
    given = ("--allow-principal", "User:alice", "--operation", "describe", "--topic", "hidden")
    assert cluster.cli("acls", "create", *given).returncode == 0
    eventually(lambda: "hidden" in json.dumps(alice.view("topics")), "the topic is shown")
    taken = ("--principal", "User:alice", "--topic", "hidden", "--yes")
    assert cluster.cli("acls", "delete", *taken).returncode == 0
    eventually(lambda: "hidden" not in json.dumps(alice.view("topics")), "the topic is gone")


def test_addresses_of_brokers_are_the_same_for_all_users(
    alice: Browser, console: Console, cluster: Cluster
) -> None:
    admin = Browser(console)
    assert admin.sign_in("admin", admin_password(cluster)) == 303
    addresses = [
        {key: row["address"] for key, row in each.view("brokers")["rows"].items()}
        for each in (alice, admin)
    ]
    assert addresses[0] == addresses[1]
    assert sorted(addresses[0].values()) == sorted(cluster.bootstrap.split(","))


def test_a_page_stays_live_when_connections_must_log_in_again(alice: Browser) -> None:
    first_ms = alice.view("topics")["meta"]["taken_ms"]

    def has_outlived_logins() -> bool:
        meta = alice.document("/api/view/topics")[1]["meta"]
        assert meta["status"] == "live", meta
        return bool(meta["taken_ms"] - first_ms > 2 * REAUTH_MS)

    eventually(has_outlived_logins, "the second session of the connection")


def test_a_user_who_is_deleted_is_signed_out(
    console: Console, cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    made = cluster.cli("users", "create", "bob", "--password-file", str(tmp_path / "password"))
    assert made.returncode == 0, made.stderr
    bob = Browser(console)
    eventually(lambda: bob.sign_in("bob", PASSWORD) == 303, "brokers know the user")
    bob.view("topics")
    assert cluster.cli("users", "delete", "bob", "--yes").returncode == 0
    eventually(lambda: bob.document("/api/view/topics")[0] == 401, "the sign-out")


def test_a_sign_out_ends_the_session(alice: Browser) -> None:
    assert alice.document("/api/session")[1]["user"] == "alice"
    kept = alice.cookie
    status, _, headers = alice.post("/sign-out")
    assert (status, headers["location"]) == (303, "/sign-in")
    alice.cookie = kept
    assert alice.document("/api/session")[0] == 401


def test_forms_of_other_sites_are_refused(console: Console, alice: Browser) -> None:
    fields = urlencode({"user": "alice", "password": PASSWORD})
    for headers in (
        {"content-type": FORM},
        {"content-type": FORM, "origin": "http://evil.example"},
        {"content-type": FORM, "origin": console.origin, "sec-fetch-site": "cross-site"},
    ):
        assert alice.ask("/sign-in", fields, **headers)[0] == 403
        assert alice.ask("/sign-out", "", **headers)[0] == 403
    assert alice.ask("/sign-in", fields, origin=console.origin)[0] == 415
    assert alice.document("/api/session")[0] == 200


def test_wrong_passwords_are_counted(console: Console) -> None:
    browser = Browser(console)
    for fields in ({}, {"user": "bob"}, {"user": "bob", "password": ""}):
        assert browser.post("/sign-in", **fields)[0] == 400
    for _ in range(FAILURES_OF_USER_MAX):
        status, text, headers = browser.post("/sign-in", user="bob", password="guess")
        assert status == 401 and "user or password is wrong" in text
        assert headers.get("set-cookie") is None
    status, text, _ = browser.post("/sign-in", user="bob", password="guess")
    assert status == 429 and "too many wrong passwords for this user" in text
    # Another user of the same machine is not locked out.
    assert browser.sign_in("alice", PASSWORD) == 303


def test_a_page_with_tls_has_a_cookie_for_tls_alone(cluster: Cluster, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    keystore = authority.server("page.pem")
    arguments = ("--sign-in", "--keystore", str(keystore), "-b", cluster.bootstrap)
    arguments += ("--command-config", str(cluster.command_config))
    with Console(tmp_path, *arguments) as console:
        assert console.address.startswith("https://")
        context = ssl.create_default_context(cafile=str(authority.file))
        browser = Browser(console, context)
        assert browser.sign_in("alice", PASSWORD) == 303
        assert "Secure" in browser.set_cookie.split("; ")
        assert "orders" in json.dumps(browser.view("topics"))


def test_a_console_serves_as_the_user_of_its_properties(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster.command_config is not None
    text = cluster.command_config.read_text().replace('username="admin"', 'username="alice"')
    text = text.replace(admin_password(cluster), PASSWORD)
    kept = [line for line in text.splitlines() if not line.startswith("ssl.keystore")]
    (tmp_path / "alice.properties").write_text("\n".join(kept) + "\n")
    properties = str(tmp_path / "alice.properties")
    with Console(tmp_path, "-b", cluster.bootstrap, "--command-config", properties) as console:
        assert console.ask("/api/view/topics")[0] == 200

        def topics() -> Any:
            status, document = console.ask("/api/view/topics")
            assert status == 200, document
            return document if document["meta"]["status"] == "live" else None

        shown = json.dumps(eventually(topics, "the topics are shown"))
        assert "orders" in shown and "hidden" not in shown
        assert console.ask("/api/view/topic", name="hidden")[0] == 403


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--sign-in",), "--sign-in needs --command-config"),
        (("--sign-in", "--lab", "{data}"), "--sign-in and --lab do not go together"),
        (("--sign-in", "{config}", "--host", "0.0.0.0"), "needs --keystore"),
        (("--sign-in", "{config}", "--bootstrap-controller", "a:1"), "needs --bootstrap-server"),
        (("--keystore", "{properties}"), "has no certificate with an unencrypted key"),
    ],
)
def test_options_that_cannot_be_safe_are_refused(
    cluster: Cluster, options: tuple[str, ...], said: str
) -> None:
    words: list[str] = []
    for option in options:
        if option == "{config}":
            words += ["--command-config", str(cluster.command_config)]
            continue
        words.append(option.format(data=cluster.data_dir, properties=cluster.command_config))
    done = run_kvorum("console", "--port", "0", *words)
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_a_person_signs_in_and_out_in_a_browser(console: Console) -> None:
    with chromium() as browser, tab(browser, f"{console.origin}/", is_quiet=False) as shown:
        page = shown.page
        page.wait_for_url("**/sign-in")
        page.get_by_label("User").fill("alice")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name="Topics").click()
        page.get_by_text("orders").first.wait_for()
        page.get_by_role("link", name="Quorum").click()
        page.get_by_text("The quorum is shown to users with DESCRIBE on the cluster").wait_for()
        page.get_by_text("Elections are shown to users with CLUSTER_ACTION").wait_for()
        assert page.get_by_text("no leader").count() == 0
        page.get_by_role("link", name="Metadata").click()
        page.get_by_text("The metadata log was not read.").wait_for()
        page.get_by_text("The metadata log is for users with CLUSTER_ACTION").wait_for()
        page.get_by_role("button", name="Sign out alice").click()
        page.wait_for_url("**/sign-in")
        shown.open("/topics")
        page.wait_for_url("**/sign-in")
        # A browser tells of the metadata that this user may not read.
        assert all("403 (Forbidden)" in each for each in shown.objections), shown.objections
