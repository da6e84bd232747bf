"""The relay between librdkafka and brokers that want the login of a delegation token."""

from __future__ import annotations

import socket
import struct

from kvorum.client.token_relay import TokenRelay, _brokers, _coordinator, _versions
from kvorum.wire.kio_codec import encode_response, read_response


def moved(address: tuple[str, int]) -> tuple[str, int]:
    return ("127.0.0.1", address[1] + 1)


def test_another_program_of_the_machine_gets_no_connection_to_the_broker():
    with socket.create_server(("127.0.0.1", 0)) as broker:
        relay = TokenRelay(1.0)
        address = relay.address_for(broker.getsockname())
        assert relay.address_for(broker.getsockname()) == address
        with socket.create_connection(address, timeout=30) as stranger:
            request = struct.pack(">hhih", 18, 0, 1, 5) + b"other"
            stranger.sendall(struct.pack(">i", len(request)) + request)
            assert stranger.recv(1) == b""
        broker.setblocking(False)
        try:
            broker.accept()
        except BlockingIOError:
            return
        raise AssertionError("the relay has connected to the broker")


def test_brokers_get_the_relays_addresses_and_the_rest_stays():
    values = {
        "throttle_time": 0, "cluster_id": "c", "controller_id": 101, "topics": [],
        "brokers": [{"node_id": n, "host": "b", "port": 9092 + n, "rack": rack}
                    for n, rack in ((101, None), (102, "east"))],
    }  # fmt: skip
    body = bytes(encode_response("metadata", 12, values))
    found = read_response("metadata", 12, memoryview(_brokers(b"\0" + body, moved))[1:])
    assert [(b.node_id, b.host, b.port, b.rack) for b in found.brokers] == [
        (101, "127.0.0.1", 9194, None), (102, "127.0.0.1", 9195, "east"),
    ]  # fmt: skip
    assert (found.cluster_id, found.controller_id) == ("c", 101)


def test_a_coordinator_gets_the_relays_address():
    values = {"throttle_time": 0, "error_code": 0, "error_message": None, "node_id": 101,
              "host": "b", "port": 9092}  # fmt: skip
    body = bytes(encode_response("find_coordinator", 2, values))
    found = read_response("find_coordinator", 2, memoryview(_coordinator(body, moved)))
    assert (found.node_id, found.host, found.port) == (101, "127.0.0.1", 9093)


def test_versions_whose_answers_name_brokers_elsewhere_are_left_out():
    keys = [{"api_key": key, "min_version": 0, "max_version": 20} for key in (0, 1, 2, 3, 10)]
    body = bytes(encode_response("api_versions", 3, {"error_code": 0, "api_keys": keys}))
    found = read_response("api_versions", 3, memoryview(_versions(body, moved)))
    assert [row.max_version for row in found.api_keys] == [9, 15, 20, 12, 2]
