"""How evenly new replicas are placed on brokers: `python -m bench.placement`.

For each size of cluster many topics are placed, each by itself as the controller does it. Skew is
the difference between the brokers with the most and the fewest replicas. A topic whose partitions
are a multiple of the brokers shows the rule itself; one more partition shows the start of a round.
With uneven racks brokers cannot have equal numbers, since replicas are distributed over racks
first.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from kvorum.metadata.controller.decide.placement import UsableBroker, place
from kvorum.runtime.errors import Rejected

BROKER_COUNTS = (1, 2, 3, 5, 10, 20, 50)
RACK_COUNTS = (1, 2, 3, 5)
TOPICS = 20
FACTOR = 3
SEED = 1

Placements = list[tuple[int, ...]]


def even_racks(brokers: int, racks: int) -> list[UsableBroker]:
    """Brokers assigned to racks in turn."""
    return [UsableBroker(i, f"rack-{i % racks}", True) for i in range(brokers)]


def uneven_racks(brokers: int, racks: int) -> list[UsableBroker]:
    """One broker in each rack except the first, which has all the others."""
    return [UsableBroker(i, f"rack-{i if i < racks else 0}", True) for i in range(brokers)]


def placed(
    brokers: Sequence[UsableBroker], partitions: int, topics: int, rng: random.Random
) -> Placements:
    """Replicas of all partitions of this number of topics."""
    factor = min(FACTOR, len(brokers))
    found: Placements = []
    for _ in range(topics):
        made = place(brokers, partition_count=partitions, replication_factor=factor, rng=rng)
        if isinstance(made, Rejected):
            raise ValueError(made.message)
        found += made
    return found


def skew(counts: Counter[int], brokers: Sequence[UsableBroker]) -> int:
    per_broker = [counts.get(broker.broker_id, 0) for broker in brokers]
    return max(per_broker) - min(per_broker)


def shared_racks(brokers: Sequence[UsableBroker], placements: Placements) -> int:
    """Partitions that have two replicas in a rack although there were enough racks."""
    rack_of = {broker.broker_id: broker.rack for broker in brokers}
    racks = len(set(rack_of.values()))
    return sum(
        len({rack_of[r] for r in replicas}) < min(racks, len(replicas)) for replicas in placements
    )


def row(brokers: Sequence[UsableBroker], partitions: int, topics: int) -> tuple[int, int, int]:
    """Skew of leaders, skew of replicas, partitions that share a rack."""
    placements = placed(brokers, partitions, topics, random.Random(SEED))
    leaders = Counter(replicas[0] for replicas in placements)
    replicas = Counter(r for replicas in placements for r in replicas)
    return skew(leaders, brokers), skew(replicas, brokers), shared_racks(brokers, placements)


def main() -> None:
    print(f"replication factor {FACTOR}, seed {SEED}; a skew of 0 is perfectly even")
    print(f"{'racks':>12} {'brokers':>7} | one topic, whole rounds | {TOPICS} topics, n+1 each")
    print(f"{'':>12} {'':>7} | leaders replicas shared | leaders replicas shared")
    for name, cluster in (("even", even_racks), ("uneven", uneven_racks)):
        for racks in RACK_COUNTS:
            for count in BROKER_COUNTS:
                if count < racks or (racks == 1 and name == "uneven"):
                    continue
                brokers = cluster(count, racks)
                whole = row(brokers, 10 * count, 1)
                ragged = row(brokers, count + 1, TOPICS)
                print(
                    f"{name:>8} {racks:>3} {count:>7} | "
                    f"{whole[0]:>7} {whole[1]:>8} {whole[2]:>6} | "
                    f"{ragged[0]:>7} {ragged[1]:>8} {ragged[2]:>6}"
                )


if __name__ == "__main__":
    main()
