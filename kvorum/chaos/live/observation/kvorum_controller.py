"""A Kvorum controller's own view of the quorum, over its gRPC service."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from kvorum.chaos.addresses import security_at
from kvorum.chaos.outages.observations import UNKNOWN, Observation, QuorumSeen
from kvorum.rpc import admin_pb2, admin_pb2_grpc

_RECONNECT_MS = 100
#: A controller that was down for long must be seen again at once.
_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS),
    ("grpc.min_reconnect_backoff_ms", _RECONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", 2 * _RECONNECT_MS),
    ("grpc.use_local_subchannel_pool", 1),
)


class KvorumControllerView:
    """One controller, asked past the proxies over one channel."""

    def __init__(self, *, node: str, node_id: int, address: str, timeout_ms: int) -> None:
        self.node = node
        self._node_id = node_id
        self._timeout_s = timeout_ms / 1000
        self._channel = security_at(address).channels().open_blocking(address, _OPTIONS)
        self._stub = admin_pb2_grpc.AdminStub(self._channel)

    def observe(self) -> Sequence[Observation]:
        """The leader that the controller knows, and its epoch; of the leader itself also the high
        watermark and the voters' end offsets. Raises OSError without an answer."""
        try:
            answer = self._stub.DescribeQuorum(
                admin_pb2.DescribeQuorumRequest(), timeout=self._timeout_s
            )
        except grpc.RpcError as error:
            raise OSError(f"{error.code().name}: {error.details()}") from error
        is_leader = answer.leader_id == self._node_id
        ends = sorted((voter.node_id, voter.log_end_offset) for voter in answer.voters)
        return [
            QuorumSeen(
                observer=self.node,
                leader_id=answer.leader_id,
                leader_epoch=answer.leader_epoch,
                high_watermark=answer.high_watermark if is_leader else UNKNOWN,
                log_end_offsets=tuple(ends) if is_leader else (),
            )
        ]

    def close(self) -> None:
        self._channel.close()
