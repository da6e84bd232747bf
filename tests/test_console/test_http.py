"""The console over HTTP, on a cluster that never changes."""

from __future__ import annotations

import contextlib
import json
import re
from urllib.parse import unquote_plus

import pytest
from starlette.testclient import TestClient

from kvorum.client.failures import EXIT_NOT_AUTHORIZED, EXIT_UNREACHABLE, CommandFailed
from kvorum.console.app import PAGES, Console
from kvorum.console.core.guard import Rules
from kvorum.console.desk import Desk
from kvorum.console.runs import Runs
from kvorum.console.static_files import FOLDER
from kvorum.runtime.errors import ConfigError
from tests.polling import eventually
from tests.test_console.run_folders import write_run
from tests.test_console.samples import (
    StandingSource,
    cluster_records,
    history_with,
    image_with,
    password,
    sample_with,
)

READS = Rules()
OWN = "http://127.0.0.1:9900"


class FakeLab:
    """Remembers its orders; a node named `stone` cannot be killed."""

    data_dir = "lab"
    links = None

    def __init__(self):
        self.acts = []

    def processes(self):
        return {101: {"name": "broker-101", "state": "dead", "pid": None}}

    def act(self, action, node):
        if node == "stone":
            raise ConfigError("stone is not running (state dead)")
        self.acts.append((action, node))
        return f"{node}: {action}"


@contextlib.contextmanager
def opened(source=None, rules=READS, lab=None, runs=None):
    source = StandingSource() if source is None else source
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvorum.console.desk.FIRST_WAIT_S", 10.0)
        console = Console(Desk(source, timeout_s=1.0, lab=lab, runs=runs), rules)
        with TestClient(console.app, base_url=OWN, follow_redirects=False) as client:
            yield client


@pytest.mark.parametrize("path", PAGES)
def test_each_page_has_the_strict_policy(path):
    with opened() as client:
        answer = client.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_page_has_no_inline_script_or_style_and_no_foreign_address():
    for file in FOLDER.iterdir():
        text = file.read_text(encoding="utf-8")
        assert "style=" not in text, file
        assert "innerHTML" not in text, file
        without = text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in without and "https://" not in without, file


def test_scripts_of_the_page_are_files_and_its_data_are_no_markup():
    with opened() as client:
        client.get("/api/view/quorum")
        text = client.get("/topics", params={"q": "</script><script>alert(1)</script>"}).text
    scripts = re.findall(r"<script ([^>]*)>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 3
    for attributes, content in scripts:
        if 'type="application/json"' in attributes:
            first = json.loads(content)
            assert first["view"] == "topics"
            assert "alert(1)" in unquote_plus(first["query"])
        else:
            assert re.search(r'src="/static/[0-9a-f]{16}/\w+\.js"', attributes)
            assert content == ""
    assert "<style" not in text


def test_files_are_kept_by_the_browser_until_they_change():
    with opened() as client:
        page = client.get("/").text
        path = re.search(r'href="(/static/[0-9a-f]+/style\.css)"', page).group(1)
        answer = client.get(path)
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-type"].startswith("text/css")
        assert client.get("/static/old/style.css").headers["cache-control"] == "no-cache"
        assert client.get("/static/old/nothing.js").status_code == 404


def test_view_comes_from_the_sample():
    with opened() as client:
        view = client.get("/api/view/quorum").json()
    assert view["meta"]["status"] == "live"
    assert view["leader_id"] == 2


def test_one_sample_answers_many_pages():
    source = StandingSource()
    with opened(source) as client:
        for _ in range(50):
            assert client.get("/api/view/topics").status_code == 200
    assert source.looks <= 5


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/view/nothing", 404, "no view 'nothing'"),
        ("/api/view/topic?name=none", 404, "no topic 'none'"),
        ("/api/view/topics?start=x", 400, "start=x"),
        ("/api/events/nothing", 404, "no view 'nothing'"),
        ("/api/configs?kind=user", 400, "kind=user"),
        ("/api/metadata?at=999", 400, "reaches 0 to 10"),
        ("/api/metadata?path=/nothing", 404, "/nothing"),
        ("/api/metadata/diff?from=-1&to=3", 400, "from=-1"),
        ("/api/messages?topic=none", 404, "no topic 'none'"),
        ("/api/messages?topic=orders&partition=9", 404, "has no partition 9; it has 0 to 2"),
        ("/api/message?topic=orders&decode=x", 400, "decode=x"),
        ("/api/runs", 404, "--runs DIR"),
        ("/report/report.html?run=a", 404, "no page report.html"),
    ],
)
def test_wrong_address_is_answered_with_a_sentence(path, status, words):
    with opened() as client:
        answer = client.get(path)
    assert answer.status_code == status
    assert words in answer.json()["error"]


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fguard.py", "/../pyproject.toml",
     "/static//etc/passwd", "/etc/passwd", "/static/%2e%2e%2f%2e%2e%2fpyproject.toml"],
)  # fmt: skip
def test_no_file_beside_the_page_is_served(path):
    with opened() as client:
        assert client.get(path).status_code == 404


def test_cluster_that_does_not_answer_is_told_and_asked_again():
    source = StandingSource(error=CommandFailed("no broker reachable", EXIT_UNREACHABLE))
    with opened(source) as client:
        view = client.get("/api/view/quorum").json()
        assert view["meta"] == {"status": "waiting", "error": "no broker reachable", "taken_ms": 0}
        assert client.get("/api/metadata").status_code == 503
        source.error = None
        eventually(lambda: client.get("/api/view/quorum").json().get("leader_id") == 2, "a leader")


def test_cluster_that_dies_is_shown_as_it_was_and_as_stale():
    source = StandingSource()
    with opened(source) as client:
        assert client.get("/api/view/quorum").json()["meta"]["status"] == "live"
        source.error = CommandFailed("no controller reachable", EXIT_UNREACHABLE)

        def is_stale():
            view = client.get("/api/view/quorum").json()
            return view if view["meta"]["status"] == "stale" else None

        view = eventually(is_stale, "the page is stale")
    assert view["leader_id"] == 2
    assert view["meta"]["error"] == "no controller reachable"
    assert view["meta"]["taken_ms"] > 0


def test_topic_that_is_younger_than_the_sample_is_found():
    old = sample_with(image_with(*list(cluster_records())[:6]))
    source = StandingSource(old)
    with opened(source) as client:
        assert client.get("/api/view/quorum").json()["totals"]["topics"] == 0
        source.sample = sample_with()
        answer = client.get("/api/messages?topic=orders")
    # The topic was found. The error is about its leader, which this test does not run.
    assert answer.status_code == 503
    assert "no broker reachable" in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "status"),
    [("topic?name=none", 404), ("topics?start=x", 400), ("nothing", 404)],
)
def test_refused_view_says_that_the_cluster_is_well(path, status):
    with opened() as client:
        answer = client.get(f"/api/view/{path}")
    assert (answer.status_code, answer.json()["meta"]["status"]) == (status, "live")


def test_names_that_no_address_allows_are_refused():
    with opened() as client:
        for path in ("/", "/api/view/quorum", "/static/app.js"):
            assert client.get(path, headers={"host": "evil.example:9900"}).status_code == 421


def test_token_opens_the_page_and_leaves_the_address():
    with opened(rules=Rules(token="sesame", cookie="c")) as client:
        for path in ("/", "/api/view/quorum", "/static/app.js", "/?token=wrong", "/topics?token=x"):
            assert client.get(path).status_code == 401
        answer = client.get("/?token=sesame")
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"].lower()
        assert "samesite=strict" in cookie
        assert "httponly" in cookie
        assert client.get("/").status_code == 200
        assert client.get("/api/view/quorum").status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_console_that_reads_refuses_every_other_method(method):
    lab = FakeLab()
    with opened(lab=lab) as client:
        answer = client.request(method, "/api/lab/kill", headers={"origin": OWN})
        assert answer.status_code == 403
        assert "only reads" in answer.json()["error"]
    assert lab.acts == []


def changing(lab):
    return opened(lab=lab, rules=Rules(token="t", cookie="c", allows_changes=True))


def change(client, action="kill", node="broker-101", **headers):
    given = {"origin": OWN, "cookie": "c=t", **headers}
    return client.post(f"/api/lab/{action}", json={"node": node}, headers=given)


def test_change_of_our_own_page_is_carried_out():
    lab = FakeLab()
    with changing(lab) as client:
        assert change(client).json() == {"text": "broker-101: kill"}
        refused = change(client, node="stone")
        assert (refused.status_code, refused.json()["error"][:5]) == (409, "stone")
        assert change(client, action="explode").status_code == 404
    assert lab.acts == [("kill", "broker-101")]


def test_change_from_elsewhere_is_not_carried_out():
    lab = FakeLab()
    with changing(lab) as client:
        assert change(client, cookie="").status_code == 401
        assert change(client, origin="http://evil.example").status_code == 403
        assert change(client, host="evil.example").status_code == 421
        assert change(client, **{"sec-fetch-site": "cross-site"}).status_code == 403
        form = client.post(
            "/api/lab/kill", data={"node": "broker-101"}, headers={"origin": OWN, "cookie": "c=t"}
        )
        assert form.status_code == 415
        assert client.get("/api/lab/kill", headers={"cookie": "c=t"}).status_code == 405
    assert lab.acts == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"node": 3}', b"[" * 50_000, b"x" * 50_000])
def test_body_that_is_no_node_is_refused(body):
    lab = FakeLab()
    headers = {"origin": OWN, "cookie": "c=t", "content-type": "application/json"}
    with changing(lab) as client:
        answer = client.post("/api/lab/kill", content=body, headers=headers)
    assert answer.status_code == 400
    assert lab.acts == []


def test_processes_of_a_lab_are_shown_though_the_cluster_is_dead():
    source = StandingSource(error=CommandFailed("no controller reachable", EXIT_UNREACHABLE))
    with opened(source, lab=FakeLab()) as client:
        view = client.get("/api/view/quorum").json()
    assert view["processes"] == {"101": {"name": "broker-101", "state": "dead"}}


def test_reports_are_sandboxed(tmp_path):
    write_run(tmp_path / "a")
    with opened(runs=Runs(str(tmp_path))) as client:
        assert [row["name"] for row in client.get("/api/runs").json()["rows"]] == ["a"]
        answer = client.get("/report/report.html?run=a")
        assert answer.text == "<p>the report</p>"
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("sandbox; default-src 'none'")
        assert "script" not in policy
        for name, file in (("..", "report.html"), ("a", "report.json"), ("a/..", "report.html")):
            assert client.get(f"/report/{file}", params={"run": name}).status_code == 404


def test_secrets_of_the_metadata_are_hidden():
    source = StandingSource(history=history_with(password("sesame")))
    with opened(source) as client:
        for path in ("?path=/configs/broker/<default>", "/diff?from=0&to=1", "?at=1"):
            text = client.get(f"/api/metadata{path}").text
            assert "sesame" not in text
            assert "[hidden]" in text or "entries" in text


def watched(source, name, parameters, on_event):
    """The events of a view: (kind, document). on_event: called with each document; a true answer
    ends the stream."""
    with opened(source) as client:
        console = Console(Desk(source, timeout_s=1.0, lab=None, runs=None), Rules())

        async def events():
            found = []
            async with console._desk.running(pytest.fail):
                async for chunk in console._stream(console._desk, name, parameters):
                    if not chunk.startswith(b"event"):
                        continue
                    kind, data = chunk.decode().strip().split("\n")
                    found.append((kind.split(": ")[1], json.loads(data[6:])))
                    if on_event(found[-1][1]):
                        return found
            return found

        return client.portal.call(events)


def test_watcher_gets_the_whole_and_then_what_changed():
    source = StandingSource()

    def elect(document):
        if document.get("leader_id") == 2:
            source.sample = sample_with(leader_id=1, leader_epoch=6)
        return document.get("leader_id") == 1

    found = watched(source, "quorum", {}, elect)
    kinds = [kind for kind, _ in found]
    assert kinds[0] == "whole"
    assert set(kinds[1:]) == {"patch"}
    last = found[-1][1]
    assert last["leader_epoch"] == 6
    assert "totals" not in last
    assert any(item["text"] == "controller 1 leads in epoch 6" for item in last["news"])


def test_watcher_of_a_topic_sees_it_deleted_and_created_again():
    source = StandingSource()
    without = sample_with(image_with(*list(cluster_records())[:6]))
    shown = []

    def change(document):
        if "rows" in document or "absent" in document:
            shown.append(document)
            source.sample = without if len(shown) == 1 else sample_with()
        return len(shown) == 3

    watched(source, "topic", {"name": "orders"}, change)
    first, deleted, created = shown
    assert deleted["absent"] == "the cluster has no topic 'orders'"
    assert deleted["rows"] is None
    assert (created["absent"], created["rows"]) == (None, first["rows"])
    assert all("error" not in document.get("meta", {}) for document in shown)


def test_view_that_is_refused_while_it_is_watched_ends(monkeypatch):
    async def refuse(*_):
        raise CommandFailed("TOPIC_AUTHORIZATION_FAILED", EXIT_NOT_AUTHORIZED)

    monkeypatch.setattr(Desk, "check_access", refuse)
    source = StandingSource()

    def hide(document):
        if "rows" in document:
            source.sample = sample_with(image_with(*list(cluster_records())[:6]))

    kinds = [kind for kind, _ in watched(source, "topic", {"name": "orders"}, hide)]
    assert (kinds[0], kinds[-1], kinds.count("gone")) == ("whole", "gone", 1)
