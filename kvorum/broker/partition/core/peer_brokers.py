"""Facts about the other brokers, shared by all partitions of one broker."""

from __future__ import annotations

from collections.abc import Mapping

from kvorum.broker.partition.core.follower_state import UNKNOWN_EPOCH
from kvorum.metadata.image.image import BrokerImage


class PeerBrokers:
    """Facts that all partitions of this broker share; the driver keeps them current.

    brokers: registrations by id.
    last_fetch_ms: arrival of each follower's latest fetch of any partition; an incremental fetch
        does not name idle partitions, which are judged by this time instead.
    has_rack_readers: consumers are sent to the replica in their rack.
    """

    __slots__ = ("brokers", "has_rack_readers", "last_fetch_ms")

    def __init__(self, *, has_rack_readers: bool = False) -> None:
        self.brokers: Mapping[int, BrokerImage] = {}
        self.last_fetch_ms: dict[int, int] = {}
        self.has_rack_readers = has_rack_readers

    def is_broker(self, broker_id: int, broker_epoch: int) -> bool:
        """True if `broker_epoch` proves that a request comes from that broker.

        Only brokers and controllers know a broker's epoch, while any client may name a broker's id.
        Such a client could move high watermarks and ISRs, and read uncommitted records.
        """
        return broker_epoch != UNKNOWN_EPOCH and broker_epoch == self.epoch_of(broker_id)

    def rack_of(self, broker_id: int) -> str | None:
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.rack

    def is_active(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def epoch_of(self, broker_id: int) -> int:
        broker = self.brokers.get(broker_id)
        return UNKNOWN_EPOCH if broker is None else broker.broker_epoch
