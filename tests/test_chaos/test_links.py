from __future__ import annotations

from kvorum.chaos.live.host.links import ProxyStream, link_count, plan_links


def plan(controllers=3, brokers=3):
    return plan_links(
        controllers, brokers, client_port=20000, controller_port=20100, proxy_port=20200
    )


def test_there_is_a_proxy_per_listener_and_per_directed_peer_link():
    links = plan().links
    assert len(links) == link_count(3, 3) == 24
    assert len({link.listen for link in links}) == 24
    assert len({link.name for link in links}) == 24
    ends = {(link.source, link.destination) for link in links}
    assert ("clients", "broker-101") in ends
    assert ("controller-1", "controller-3") in ends
    assert ("broker-102", "controller-1") in ends
    assert ("broker-102", "broker-101") in ends
    assert ("controller-1", "broker-101") not in ends


def test_proxies_lead_to_what_the_nodes_bind():
    found = {link.name: link.upstream for link in plan().links}
    assert found["clients.broker-103"] == "127.0.0.1:20002"
    assert found["broker-101.controller-2"] == "127.0.0.1:20101"


def test_document_sends_every_connection_through_a_proxy():
    made = plan()
    document = made.document()
    proxies = {link.listen for link in made.links}
    assert set(document) == {*made.controllers, *made.brokers}
    for name, node in document.items():
        peers = node["peers"]
        assert set(peers.values()) <= proxies
        others = [other for other in made.controllers if other != name]
        if name.startswith("broker"):
            others += [other for other in made.brokers if other != name]
            assert node["advertised"] in proxies
        assert sorted(peers) == sorted(others)
    assert set(made.bootstrap().split(",")) == {
        document[name]["advertised"] for name in made.brokers
    }


def test_one_way_concerns_bytes_of_both_sides_connections():
    streams = plan().streams("controller-1", "controller-2")
    assert {(link.name, stream) for link, stream in streams} == {
        ("controller-1.controller-2", ProxyStream.UPSTREAM),
        ("controller-2.controller-1", ProxyStream.DOWNSTREAM),
    }


def test_link_that_only_one_side_opens_has_one_proxy():
    made = plan()
    to_broker = made.streams("controller-1", "broker-101")
    assert [(link.name, stream) for link, stream in to_broker] == [
        ("broker-101.controller-1", ProxyStream.DOWNSTREAM)
    ]
    both = made.streams("clients", "broker-101", both_ways=True)
    assert {stream for _, stream in both} == {ProxyStream.UPSTREAM, ProxyStream.DOWNSTREAM}
    assert made.streams("clients", "controller-1") == []
