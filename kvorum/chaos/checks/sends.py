"""Guarantees about the order of what one producer sends.

Names and meanings follow Jepsen's Kafka tests. Jepsen also counts records of other producers
between two of one transaction (`int-send-skip`): Kafka interleaves them always, so no check does.
"""

from __future__ import annotations

import numpy as np

from kvorum.chaos.checks import catalogue
from kvorum.chaos.checks.columns import Bools, Ints, blocks_of
from kvorum.chaos.checks.evidence import PartitionEvidence
from kvorum.chaos.checks.results import Board


def nonmonotonic_send(partition: PartitionEvidence, board: Board) -> None:
    """A process sent a record after an acknowledgement, and the log has it at or below the offset
    acknowledged before. Sends under way at the same time may take either order."""
    found = board[catalogue.NONMONOTONIC_SEND]
    for process, mine in partition.producers():
        # Ascending, since a history is in the order of its times.
        acked_us = partition.acked_us[mine]
        offsets = partition.acked_offsets[mine]
        invoked_us = acked_us - partition.acked_latency_us[mine]
        highest = np.maximum.accumulate(offsets)
        wrong: list[Ints] = []
        for block in blocks_of(len(offsets)):
            earlier = np.searchsorted(acked_us, invoked_us[block], side="left") - 1
            chosen = np.flatnonzero(earlier >= 0)
            found.examined += len(chosen)
            is_wrong = offsets[block][chosen] <= highest[earlier[chosen]]
            wrong.append(chosen[is_wrong] + block.start)
        places = np.concatenate(wrong) if wrong else np.zeros(0, dtype=np.int64)

        def enter(
            at: int,
            process: str = process,
            mine: Bools | slice = mine,
            offsets: Ints = offsets,
            highest: Ints = highest,
            acked_us: Ints = acked_us,
            invoked_us: Ints = invoked_us,
        ) -> None:
            value = int(partition.acked_values[mine][at])
            earlier = int(np.searchsorted(acked_us, invoked_us[at], side="left")) - 1
            found.add(
                f"{process} sent value {value} after offset {highest[earlier]} was acknowledged, "
                f"and it is at {offsets[at]}",
                topic=partition.topic,
                partition=partition.number,
                value=value,
                offset=int(offsets[at]),
            )

        found.add_all(places, len(places), enter)


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
