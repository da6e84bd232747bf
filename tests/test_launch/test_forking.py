"""Forked nodes: the cause of a node's death is in its log."""

from __future__ import annotations

import os
from pathlib import Path

from kvorum.launch.cluster.plan import NodePlan
from kvorum.launch.dev.forking import spawn


def test_a_node_whose_start_raises_leaves_the_reason_in_its_log(tmp_path: Path) -> None:
    log_file = tmp_path / "logs" / "broker-101.log"
    node = NodePlan(
        name="broker-101", node_id=101, role="broker", port=1, advertised="", directory="",
        log_file=str(log_file), properties={"node.id": object()},
    )  # fmt: skip
    child = spawn(node)
    _, status = os.waitpid(child.pid, 0)
    os.close(child.ready_fd)
    assert os.waitstatus_to_exitcode(status) != 0
    assert "Traceback" in log_file.read_text()
