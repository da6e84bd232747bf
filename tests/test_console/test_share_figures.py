"""What the console reads of brokers' metrics: lines, pages, and what it says is missing."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from kvorum.client.security import NONE, ClientSecurity
from kvorum.console.core import share_figures
from kvorum.console.core.share_figures import NO_PAGES, BadPage, ShareFigures, figures_of
from kvorum.console.core.views import document_of
from kvorum.console.metrics_pages import MetricsPages, page_url
from kvorum.launch.metrics.row import LABELS, escaped
from kvorum.launch.metrics.share_rows import SHARE_ROWS
from kvorum.launch.metrics.share_view import OFTEN
from kvorum.runtime.errors import ConfigError
from tests.certificates import Authority
from tests.test_console.samples import facts_with, sample_with

ODD = 'a "b"\\n\n,{x}'
LABEL = 'group="g",topic="orders",partition="0"'
PAGE = f"""# HELP kvorum_share_partitions Share-partitions that this broker leads.
# TYPE kvorum_share_partitions gauge
kvorum_share_partitions 1
# TYPE kvorum_share_partition_in_flight_records gauge
kvorum_share_partition_in_flight_records{{{LABEL}}} 10
kvorum_share_partition_in_flight_records{{group="{escaped(ODD)}",topic="t",partition="3"}} 2
kvorum_share_partition_acquired_records{{{LABEL}}} 4
kvorum_share_partition_unsettled_records{{{LABEL},deliveries="1"}} 5
kvorum_share_partition_unsettled_records{{{LABEL},deliveries="2"}} 0
kvorum_share_partition_unsettled_records{{{LABEL},deliveries="3+"}} 1
kvorum_share_partition_lock_timeouts_total{{{LABEL}}} 7
kvorum_share_sessions 1
"""
ROW = {
    "in_flight": 10, "held": 4, "delivered_once": 5, "delivered_twice": 0, "delivered_more": 1,
}  # fmt: skip


def lines(page: str) -> list[str]:
    return page.splitlines(keepends=True)


def test_a_page_has_a_row_for_each_share_partition():
    assert figures_of(lines(PAGE)) == {("g", "orders", 0): ROW, (ODD, "t", 3): {"in_flight": 2}}


def test_the_names_that_are_read_are_those_that_brokers_write():
    rows = {row.name: LABELS[row.scope] for row in SHARE_ROWS}
    for name, deliveries in share_figures._KEYS:
        labels = rows[f"{share_figures._PREFIX}{name}"]
        assert ("deliveries" in labels) == bool(deliveries)
    assert share_figures._OF_BROKERS.strip() in rows
    assert ("unsettled_records", f"{OFTEN}+") in share_figures._KEYS


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"kvorum_share_partition_in_flight_records{{{LABEL}}} many\n", "is no metric"),
        ('kvorum_share_partition_acquired_records{group="g"} 4\n', "names no group, topic"),
        (f"kvorum_share_partition_in_flight_records{{{LABEL}", "is no metric"),
        (f"kvorum_share_partition_in_flight_records{{{LABEL}}} {'9' * 9_000}\n", "is no metric"),
        (
            'kvorum_share_partition_acquired_records{group="g",topic="t",partition="'
            + "9" * 9_000
            + '"} 4\n',
            "names no group, topic",
        ),
    ],
)
def test_a_line_that_is_none_is_refused_with_its_text(line, words):
    with pytest.raises(BadPage, match=words) as refused:
        figures_of([*lines(PAGE), line])
    assert "kvorum_share_partition" in str(refused.value)


@pytest.mark.parametrize("page", ["", "kafka_server_brokerstate 3\n", "<html>\n"])
def test_a_page_without_kvorums_names_of_a_broker_is_none(page):
    with pytest.raises(BadPage, match=r"metrics\.names must have kvorum"):
        figures_of(lines(page))


# --- the pages -----------------------------------------------------------------------------------


class _Handler(http.server.BaseHTTPRequestHandler):
    status = 200
    page = PAGE.encode()

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_: object) -> None:
        """Tests have no use for a log of requests."""


def serving(**changes: object) -> http.server.ThreadingHTTPServer:
    handler = type("Handler", (_Handler,), changes)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture
def good() -> Iterator[str]:
    server = serving()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()


def read(*urls: str) -> ShareFigures:
    return MetricsPages(urls, NONE, timeout_s=5.0).share_figures()


def test_pages_that_cannot_be_read_hide_no_others(good):
    failing = serving(status=503)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        away = f"http://127.0.0.1:{unused.getsockname()[1]}/metrics"
        failed = f"http://127.0.0.1:{failing.server_port}/metrics"
        found = read(away, good, failed)
    failing.shutdown()
    failing.server_close()
    assert (found.pages, found.rows["g", "orders", 0]) == (1, ROW)
    assert [problem.partition(": ")[0] for problem in found.problems] == [away, failed]
    assert found.problems[1].endswith("it answered 503 Service Unavailable")
    note = found.note(3)
    assert note is not None and note.startswith("Figures are missing: http://127.0.0.1:")


@pytest.mark.parametrize("answer", [b"", b"\x00\xff" * 100, b"HTTP/1.1 200 OK\r\n"])
def test_a_server_that_speaks_something_else_is_a_problem_of_its_page_alone(good, answer):
    with socket.create_server(("127.0.0.1", 0)) as strange:

        def answer_once() -> None:
            peer, _ = strange.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(answer)

        thread = threading.Thread(target=answer_once)
        thread.start()
        found = read(f"http://127.0.0.1:{strange.getsockname()[1]}/metrics", good)
        thread.join()
    assert (found.pages, len(found.problems)) == (1, 1)


def test_a_page_without_an_end_is_cut_off(monkeypatch):
    monkeypatch.setattr("kvorum.console.metrics_pages.PAGE_BYTES_MAX", len(PAGE) - 1)
    server = serving()
    found = read(f"http://127.0.0.1:{server.server_port}/metrics")
    server.shutdown()
    server.server_close()
    assert "it has more than" in found.problems[0]


def test_a_page_over_tls_is_read_with_the_consoles_own_trust(tmp_path):
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server("node.pem"))
    server = serving()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = page_url(f"https://127.0.0.1:{server.server_port}")
    trusting = ClientSecurity(context=ssl.create_default_context(cafile=str(authority.file)))
    found = MetricsPages([url], trusting, timeout_s=5.0).share_figures()
    assert (found.pages, found.problems) == (1, ())
    refused = read(url)
    assert refused.pages == 0 and "certificate verify failed" in refused.problems[0]
    server.shutdown()
    server.server_close()


def test_one_reading_serves_those_who_ask_together(good, monkeypatch):
    pages = MetricsPages([good], NONE, timeout_s=5.0)
    first = pages.share_figures()
    assert pages.share_figures() is first
    monkeypatch.setattr("kvorum.console.metrics_pages.SHARED_S", 0.0)
    assert pages.share_figures() is not first


def test_addresses_may_have_a_scheme_and_a_path():
    assert page_url("b1:9404") == "http://b1:9404/metrics"
    assert page_url("HTTPS://b1:9404/metrics") == "https://b1:9404/metrics"
    assert page_url("http://[::1]:9404/") == "http://[::1]:9404/metrics"
    with pytest.raises(ConfigError, match="ftp://b1:9404"):
        page_url("ftp://b1:9404")
    with pytest.raises(ConfigError, match="b1"):
        page_url("b1")


# --- the view ------------------------------------------------------------------------------------


def share_group(name: str = "g") -> dict:
    offset = {
        "topic": "orders", "partition": 0, "committed_offset": 4, "end_offset": 14, "lag": 6,
        "metadata": "", "member_id": None,
    }  # fmt: skip
    return {
        "group": name, "state": "Stable", "type": "share", "protocol": "simple", "coordinator": 1,
        "members": [], "offsets": [offset, {**offset, "partition": 1}],
    }  # fmt: skip


def view(**changes: object) -> dict:
    return document_of("group", facts_with(groups={"g": share_group()}, **changes), {"name": "g"})


def test_a_share_partition_has_its_figures_and_one_that_nobody_fetches_has_none():
    brokers = len(sample_with().image.brokers)
    figures = ShareFigures(rows={("g", "orders", 0): ROW, ("h", "orders", 1): ROW}, pages=brokers)
    shown = view(figures=figures, reads_metrics=True)
    assert shown["rows"]["orders-0"].items() >= ROW.items()
    assert "in_flight" not in shown["rows"]["orders-1"]
    assert "figures_note" not in shown


def test_a_page_says_which_figures_it_has_not_got():
    assert view()["figures_note"] == NO_PAGES
    assert "figures_note" not in view(reads_metrics=True)  # they are being read
    few = view(figures=ShareFigures(pages=1), reads_metrics=True)["figures_note"]
    assert few.startswith(f"Only 1 of {len(sample_with().image.brokers)} brokers' metrics are read")
    failed = ShareFigures(problems=("http://b1:9404/metrics: refused",))
    assert view(figures=failed, reads_metrics=True)["figures_note"] == (
        "Figures are missing: http://b1:9404/metrics: refused."
    )


def test_a_group_of_another_type_has_no_figures():
    facts = facts_with(groups={"g": {**share_group(), "type": "consumer"}})
    assert "figures_note" not in document_of("group", facts, {"name": "g"})
