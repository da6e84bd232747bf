"""A controller that listens elsewhere than the others look for it says so."""

from __future__ import annotations

import pytest

from kvorum.launch.config.properties import NodeConfig, controller_config
from kvorum.launch.directories.metadata_log import listener_complaint
from kvorum.raft.model.voters import Voter, VoterSet

DISK, OTHER_DISK = b"d" * 16, b"e" * 16
DYNAMIC = {"controller.quorum.bootstrap.servers": "h1:9192,h2:9192"}
STATIC = {"controller.quorum.voters": "1@h1:9192,2@h2:9192"}
VOTERS = VoterSet.of([Voter(1, DISK, "h1", 9192), Voter(2, b"f" * 16, "h2", 9192)])


def config(quorum: dict[str, str], listener: str, **more: str) -> NodeConfig:
    return controller_config(
        {
            "node.id": 1,
            "cluster.id": "H8cXxonAvNgrLxjJFXJs9g",
            "listeners": f"CONTROLLER://{listener}",
            "log.dirs": "/nowhere",
            **quorum,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )[0]


@pytest.mark.parametrize(
    ("node", "disk", "voters"),
    [
        (config(DYNAMIC, "h1:9192"), DISK, VOTERS),
        (
            config(DYNAMIC, "0.0.0.0:9192", advertised_listeners="CONTROLLER://h1:9192"),
            DISK,
            VOTERS,
        ),
        (config(DYNAMIC, "h9:9192"), OTHER_DISK, VOTERS),  # it has no vote
        (config(DYNAMIC, "h9:9192"), DISK, VoterSet()),
        (config(STATIC, "h1:9192"), DISK, VoterSet.static((1, 2))),
        (
            config(STATIC, "0.0.0.0:9192", advertised_listeners="CONTROLLER://h1:9192"),
            DISK,
            VoterSet.static((1, 2)),
        ),
        (
            config(STATIC, "[::]:9192", advertised_listeners="CONTROLLER://h1:9192"),
            DISK,
            VoterSet.static((1, 2)),
        ),
    ],
)
def test_where_the_others_look_for_it_there_is_nothing_to_say(node, disk, voters):
    for end_offset in (0, 7):
        assert listener_complaint(node, disk, voters, end_offset) is None


def test_each_kind_of_quorum_has_its_own_way_out():
    moved = config(DYNAMIC, "[::1]:9192")
    new = listener_complaint(moved, DISK, VOTERS, 0)
    assert new is not None and new.startswith("node 1 listens on [::1]:9192, but the bootstrap ch")
    assert "has it at h1:9192" in new and "kvorum init FOLDER --controller ID@HOST[:PORT]" in new
    running = listener_complaint(moved, DISK, VOTERS, 7)
    assert running is not None and "the voter set has it at h1:9192" in running
    assert "peer.address.overrides=1=[::1]:9192 on the other controllers" in running
    static = listener_complaint(config(STATIC, "h1:9999"), DISK, VoterSet.static((1, 2)), 0)
    assert static is not None and "listens on h1:9999, but controller.quorum.voters" in static
    assert "sends the other nodes to h1:9192" in static
