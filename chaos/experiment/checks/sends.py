"""Guarantees about the order of what one producer sends.

Names and meanings follow Jepsen's Kafka tests. Jepsen also counts records of other producers
between two of one transaction (`int-send-skip`): Kafka interleaves them always, so no check does.
"""

from __future__ import annotations

import numpy as np

from kvorum.chaos.experiment.checks import catalogue
from kvorum.chaos.experiment.checks.columns import Ints
from kvorum.chaos.experiment.checks.evidence import PartitionEvidence
from kvorum.chaos.experiment.checks.model import Board


def nonmonotonic_send(partition: PartitionEvidence, board: Board) -> None:
    """A process sent a record after an acknowledgement, and the log has it at or below the offset
    acknowledged before. Sends under way at the same time may take either order."""
    found = board[catalogue.NONMONOTONIC_SEND]
    placed = partition.acked_offsets >= 0
    for process in np.unique(partition.acked_processes[placed]):
        mine = placed & (partition.acked_processes == process)
        # A history is in the order of its times, so acknowledgements are.
        acked_us = partition.acked_us[mine]
        offsets, values = partition.acked_offsets[mine], partition.acked_values[mine]
        highest = np.maximum.accumulate(offsets)
        invoked_us = acked_us - partition.acked_latency_us[mine]
        earlier = np.searchsorted(acked_us, invoked_us, side="left") - 1
        chosen = np.flatnonzero(earlier >= 0)
        found.examined += len(chosen)
        wrong = chosen[offsets[chosen] <= highest[earlier[chosen]]]

        def enter(
            at: int,
            process: int = int(process),
            values: Ints = values,
            offsets: Ints = offsets,
            floor: Ints = highest[earlier],
        ) -> None:
            found.add(
                f"{partition.process(process)} sent value {values[at]} after offset {floor[at]} "
                f"was acknowledged, and it is at {offsets[at]}",
                topic=partition.topic,
                partition=partition.number,
                value=int(values[at]),
                offset=int(offsets[at]),
            )

        found.add_all(wrong, len(wrong), enter)


def int_nonmonotonic_send(partition: PartitionEvidence, board: Board) -> None:
    """Two records of one transaction are in the log in another order than they were sent."""
    found = board[catalogue.INT_NONMONOTONIC_SEND]
    written = partition.written[partition.written[:, 1] >= 0]
    pairs = np.flatnonzero(written[1:, 2] == written[:-1, 2])
    found.examined += len(pairs)
    wrong = pairs[written[pairs + 1, 1] <= written[pairs, 1]] + 1
    found.add_all(
        wrong,
        len(wrong),
        lambda at: found.add(
            f"value {written[at, 0]} was sent after {written[at - 1, 0]} and is at offset "
            f"{written[at, 1]}, before {written[at - 1, 1]}",
            topic=partition.topic,
            partition=partition.number,
            value=int(written[at, 0]),
            offset=int(written[at, 1]),
        ),
    )
