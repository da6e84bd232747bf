"""Sets up the HTTP server of a node, if its configuration asks for it (`metrics.listener`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kvorum.launch.config.properties import NodeConfig
from kvorum.launch.metrics.health import Facts
from kvorum.launch.metrics.health_pages import pages
from kvorum.launch.metrics.page import lines, send_slices
from kvorum.launch.metrics.process import LoopWatch
from kvorum.launch.metrics.raft_view import has_lost_leader, role_of
from kvorum.launch.metrics.rows import ROWS
from kvorum.launch.metrics.server import MetricsServer, Send
from kvorum.launch.metrics.views import ControllerView
from kvorum.raft.node.raft_node import RaftNode
from kvorum.runtime.certificates import TlsListener
from kvorum.runtime.resolving import until_resolved

if TYPE_CHECKING:
    from kvorum.broker.server import KafkaServer
    from kvorum.launch.nodes.reach import NodeLinks
    from kvorum.metadata.controller.loop import ControllerLoop
    from kvorum.metadata.rpc.client import ControllerClient

_log = logging.getLogger("kvorum.node")


class NodeServer:
    """The server, and the test of the event loop whose results it shows."""

    def __init__(self, server: MetricsServer, watch: LoopWatch) -> None:
        self._server = server
        self._watch = watch

    async def start(self, config: NodeConfig, tls: TlsListener | None) -> None:
        """Start the server and the test of the event loop. Raises ConfigError if the port cannot be
        used."""
        if config.metrics is not None:
            await until_resolved(*config.metrics, _log)
            await self._server.start(*config.metrics, tls)
        self._watch.start()

    async def stop(self) -> None:
        self._watch.stop()
        await self._server.stop()


async def serve_controller(
    config: NodeConfig, node: RaftNode, loop: ControllerLoop, links: NodeLinks
) -> NodeServer | None:
    """A running server; None without a listener. links: have the TLS of its page, and all of the
    node's certificates. Raises ConfigError if the port cannot be used."""
    if config.metrics is None:
        return None
    controller = loop.controller
    watch = LoopWatch(lambda: controller.committed.end_offset, lambda: node.core.high_watermark)

    def steps() -> Iterator[str | None]:
        view = ControllerView(node, controller, watch, _now_s(), loop.leaderless_ms / 1000)
        view.certificates = links.certificates
        return lines(ROWS["controller"], view, config.metrics_names)

    def facts() -> Facts:
        return Facts(
            role=role_of(node),
            leader_id=node.core.leader_id,
            epoch=node.core.epoch,
            leader_age_ms=loop.leaderless_ms,
            applied_offset=controller.committed.end_offset,
            high_watermark=node.core.high_watermark,
            stuck_ms=watch.stuck_ms,
            refused_leader=node.core.refused_leader,
            **_certificate_facts(links),
        )

    return await _serve(config, node, facts, [steps], watch, tls=links.metrics)


async def serve_broker(
    config: NodeConfig,
    node: RaftNode,
    server: KafkaServer,
    client: ControllerClient,
    is_fenced: Callable[[], bool],
    refused_leader: Callable[[], str],
    *,
    links: NodeLinks,
) -> NodeServer | None:
    """A running server; None without a listener.

    refused_leader: returns why the broker does not follow the quorum's leader, or does not join; ""
        if it does.
    links: see `serve_controller`.
    Raises ConfigError if the port cannot be used.
    """
    if config.metrics is None:
        return None
    # Imported here: a controller has no code of brokers.
    from kvorum.launch.metrics.broker_view import BrokerView

    services = server.services
    registry, directories = services.registry, services.replicas.directories

    def leader_age_ms() -> int | None:
        # A heartbeat and a fetch both show that there is a leader.
        return client.leader_age_ms if has_lost_leader(node) else 0

    watch = LoopWatch(lambda: registry.image.end_offset, lambda: node.core.high_watermark)

    def steps() -> Iterator[str | None]:
        view = BrokerView(
            node, server, watch,
            now_s=_now_s(), age_ms=client.leader_age_ms, is_fenced=is_fenced(),
            refuses_leader=bool(refused_leader()),
        )  # fmt: skip
        view.certificates = links.certificates
        return lines(ROWS["broker"], view, config.metrics_names)

    def pushed() -> Iterator[str | None]:
        now_ms = services.now_ms()
        services.client_figures.forget(lambda known: services.telemetry.is_known(known, now_ms))
        return services.client_figures.lines()

    def facts() -> Facts:
        return Facts(
            role=role_of(node),
            leader_id=node.core.leader_id,
            epoch=node.core.epoch,
            leader_age_ms=leader_age_ms(),
            applied_offset=registry.image.end_offset,
            high_watermark=node.core.high_watermark,
            stuck_ms=watch.stuck_ms,
            refused_leader=refused_leader(),
            is_fenced=is_fenced(),
            directories=len(directories.items),
            offline_directories=directories.offline_count,
            **_certificate_facts(links),
        )

    return await _serve(config, node, facts, [steps, pushed], watch, tls=links.metrics)


async def _serve(
    config: NodeConfig,
    node: RaftNode,
    facts: Callable[[], Facts],
    sources: Sequence[Callable[[], Iterator[str | None]]],
    watch: LoopWatch,
    *,
    tls: TlsListener | None,
) -> NodeServer:
    async def stream(send: Send) -> None:
        for source in sources:
            await send_slices(source(), send)

    server = NodeServer(MetricsServer(pages(node, facts), {"/metrics": stream}), watch)
    await server.start(config, tls)
    return server


def _certificate_facts(links: NodeLinks) -> dict[str, Any]:
    watched = links.certificates.watched
    return {
        "certificates": len(watched) if watched else None,
        "certificate_warnings": tuple(links.certificates.end_warnings()),
    }


def _now_s() -> float:
    return asyncio.get_running_loop().time()
