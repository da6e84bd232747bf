"""Traces: one request of a client, across the broker and the active controller."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.live.by_hand import HandMade
from tests.live.cluster import run_kvorum
from tests.polling import DEADLINE_S, eventually

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


class Collector:
    """Receives spans over OTLP/HTTP, as a collector of OpenTelemetry does."""

    def __init__(self) -> None:
        self.spans: list[tuple[dict[str, str], Any]] = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = ExportTraceServiceRequest()
                request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
                for resource in request.resource_spans:
                    of_node = {a.key: a.value.string_value for a in resource.resource.attributes}
                    for scope in resource.scope_spans:
                        collector.spans += [(of_node, span) for span in scope.spans]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def named(self, name: str) -> list[tuple[dict[str, str], Any]]:
        return [(node, span) for node, span in self.spans if span.name == name]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    collector = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    yield collector
    collector.close()


def test_a_request_is_one_trace_across_broker_and_controller(
    collector: Collector, tmp_path: Path
) -> None:
    hand = HandMade(tmp_path, controllers=1, settings=["kvorum.tracing.enable=true"])
    try:
        hand.start("controller-1", "broker-101")
        create = ("topics", "create", "t", "-b", hand.bootstrap)
        eventually(lambda: run_kvorum(*create).returncode == 0, "the topic is made")
        calls = eventually(lambda: collector.named("kvorum.rpc.Admin/CreateTopics"), "a call")
        requests = eventually(lambda: collector.named("CreateTopics"), "a request")
        call_node, call = calls[-1]
        request_node, request = next(
            found for found in requests if found[1].trace_id == call.trace_id
        )
        assert request_node["service.instance.id"] == "broker-101"
        assert call_node["service.instance.id"] == "controller-1"
        assert call.parent_span_id == request.span_id and not request.parent_span_id
        begun, ended = request.start_time_unix_nano, request.end_time_unix_nano
        assert begun <= call.start_time_unix_nano <= call.end_time_unix_nano <= ended
        attributes = {a.key: a.value for a in request.attributes}
        assert attributes["kvorum.api_key"].int_value == 19
        assert attributes["enduser.id"].string_value == "ANONYMOUS"
        producer = Producer({"bootstrap.servers": hand.bootstrap})
        producer.produce("t", b"v")
        assert producer.flush(DEADLINE_S) == 0
        _, produced = eventually(lambda: collector.named("Produce"), "a produce")[0]
        assert produced.end_time_unix_nano > produced.start_time_unix_nano
        # Heartbeats belong to no request, and have no spans.
        assert not collector.named("kvorum.rpc.Controller/Heartbeat")
    finally:
        hand.close()
