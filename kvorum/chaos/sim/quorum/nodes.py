"""The nodes of a world, and which of their disks a voter set can do without."""

from __future__ import annotations

from kvorum.chaos.sim.quorum.model.state import VoterKeys, is_among, most_of
from kvorum.chaos.sim.quorum.node import SimNode
from kvorum.chaos.sim.quorum.process import ProcessWorld


class NodesWorld(ProcessWorld):
    """A world as clients, operators and faults see it. nodes: by id."""

    nodes: dict[int, SimNode]

    def living_disks(self) -> VoterKeys:
        """Disks that exist, now or after a restart, by node and directory id."""
        nodes = [node for node in self.nodes.values() if not node.is_removed]
        return frozenset((node.node_id, node.config.directory_id) for node in nodes)

    def has_disk_majority(self, voters: VoterKeys) -> bool:
        """True if a majority of these voters have their disks."""
        return _living(voters, self.living_disks()) >= most_of(len(voters))

    def may_vote(self, node: SimNode) -> bool:
        """True if the node, with its disk, is or may become a voter in some voter set."""
        sets = self.voter_checks.possible_sets()
        return any(is_among(keys, node.node_id, node.config.directory_id) for keys in sets)

    def is_disk_expendable(self, node: SimNode) -> bool:
        """True if every voter set that is or may come into force keeps a majority without the
        node's disk.

        Raft loses nothing if a minority loses disks that never vote again. If every set that may be
        in force keeps a majority, one of them can always elect and commit.
        """
        disks = self.living_disks() - {(node.node_id, node.config.directory_id)}
        return all(
            _living(keys, disks) >= most_of(len(keys))
            for keys in self.voter_checks.possible_sets()
            if is_among(keys, node.node_id, node.config.directory_id)
        )


def _living(voters: VoterKeys, disks: VoterKeys) -> int:
    """The number of these voters that have their disks."""
    return sum(is_among({key}, *disk) for key in voters for disk in disks)
