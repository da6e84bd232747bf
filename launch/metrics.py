"""Sets up a node's metrics, if its configuration asks for them.

prometheus-client, and the modules that use it, are imported here and late: a node without metrics
does not pay for them at its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kvorum.launch.metrics_server import MetricsServer
from kvorum.launch.properties import Address

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from kvorum.broker.manager.replica_manager import ReplicaManager
    from kvorum.broker.network.server import KafkaServer
    from kvorum.metadata.controller.loop import ControllerLoop
    from kvorum.metadata.image.image import ClusterImage
    from kvorum.metadata.rpc.client import ControllerClient
    from kvorum.raft.core import RaftCore

Collect = Callable[[], "Iterable[Metric]"]


class _Collector:
    def __init__(self, *sources: Collect) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        for source in self._sources:
            yield from source()


async def serve_controller_metrics(
    listener: Address | None, core: RaftCore, loop: ControllerLoop
) -> MetricsServer | None:
    """A running server; None without a listener. Raises ConfigError if the port is not
    available."""
    if listener is None:
        return None
    from kvorum.metadata.metrics import image_metrics, quorum_metrics

    return await _serve(
        listener,
        lambda: quorum_metrics(core),
        lambda: image_metrics(loop.controller.committed, loop.leaderless_ms),
    )


async def serve_broker_metrics(
    listener: Address | None,
    core: RaftCore,
    image: Callable[[], ClusterImage],
    replicas: ReplicaManager,
    server: KafkaServer,
    client: ControllerClient,
) -> MetricsServer | None:
    """A running server; None without a listener. Raises ConfigError if the port is not
    available."""
    if listener is None:
        return None
    from kvorum.broker.metrics.broker_metrics import broker_metrics
    from kvorum.metadata.metrics import image_metrics, quorum_metrics

    return await _serve(
        listener,
        lambda: quorum_metrics(core),
        lambda: image_metrics(image(), client.leader_age_ms),
        lambda: broker_metrics(replicas, server),
    )


async def _serve(listener: Address, *sources: Collect) -> MetricsServer:
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(*sources))
    server = MetricsServer(lambda: generate_latest(registry), CONTENT_TYPE_LATEST)
    await server.start(*listener)
    return server
