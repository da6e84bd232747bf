"""The driver of `kvorum cluster roll`: it restarts, asks and waits; `metadata.inspect.roll` has the
rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

from kvorum.cli.common import bootstrap_of
from kvorum.cli.health import read_view
from kvorum.cli.restarting import Restart
from kvorum.cli.watch import one_answer
from kvorum.client.failures import EXIT_NO_QUORUM, CommandFailed, Row, each_warning_once, warn
from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.inspect.health import ClusterView
from kvorum.metadata.inspect.roll import (
    RollNode,
    gone_controllers,
    hazards_of_start,
    is_registered_again,
    nodes_of,
    not_back,
    not_registered,
    roll_order,
    settle_s,
)
from kvorum.runtime.errors import ConfigError, required
from kvorum.runtime.text import address_text

PAUSE_S = 0.25
"""Pause between two looks at a cluster that is not healthy yet."""


def until(look: Callable[[], str | None], deadline: float) -> str | None:
    """Call `look` until it finds no obstacle; return None, or the obstacle at the deadline.

    A connection that fails meanwhile is one to a node that restarts. A hint at TLS or a login would
    be wrong: the cluster has answered this command before.
    """
    with each_warning_once():
        while True:
            try:
                with one_answer():
                    found = look()
            except CommandFailed as error:
                found = error.reason
            if found is None or time.monotonic() >= deadline:
                return found
            warn(f"waiting: {found}")
            time.sleep(PAUSE_S)


class Roll:
    """One run over the nodes. Use: `planned`, or `run`; `rows` has what was done.

    asked: ids of the nodes to restart; none for all. settle_s: the pause after a broker in front of
    the next one; None for the rule's. cluster_id: of the cluster whose nodes `restart` restarts, if
    it is known. Raises CommandFailed if no node of the cluster can be reached, and for a node that
    it does not have; ConfigError if it is another cluster.
    """

    def __init__(
        self,
        options: dict[str, Any],
        restart: Restart | None,
        *,
        asked: Collection[int],
        timeout_s: float,
        settle_s: float | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self._options = dict(options)
        self._cluster_id = cluster_id
        self._restart = restart
        self._timeout_s = timeout_s
        self._settle_s = settle_s
        self._restart_began = 0.0
        self.rows: list[Row] = []
        self._nodes = nodes_of(self._read_image())
        with one_answer():
            view = self._read_view()
        if not asked:
            self._leave_out_gone(view)
        known = {node.node_id for node in self._nodes}
        unknown = sorted(set(asked) - known)
        if unknown:
            listed = ", ".join(map(str, sorted(known)))
            raise CommandFailed(f"the cluster has no node {unknown[0]}; it has {listed}")
        self._done = known - set(asked) if asked else set[int]()
        self._total = len(known) - len(self._done)
        self._know_all_brokers(view)

    def _leave_out_gone(self, view: ClusterView) -> None:
        gone = gone_controllers(view, self._nodes)
        for node in gone:
            warn(f"{node.name} neither votes nor follows the quorum: it is left out")
        self._nodes = [node for node in self._nodes if node not in gone]

    def planned(self) -> list[Row]:
        """The order as it is now; it changes if another controller is elected meanwhile."""
        order = roll_order(self._nodes, self._leader_id(), self._done)
        return [{"node": n.name, "role": n.role, "host": n.host} for n in order]

    def run(self) -> CommandFailed | None:
        """Restart the nodes; the reason if the roll stopped early."""
        while order := roll_order(self._nodes, self._leader_id(), self._done):
            node = order[0]
            began = time.monotonic()
            failure = self._roll_one(node, began + self._timeout_s)
            row: Row = {"node": node.name, "role": node.role, "host": node.host}
            row["result"] = "restarted" if failure is None else "stopped here"
            row["seconds"] = round(time.monotonic() - began, 2)
            self.rows.append(row)
            if failure is not None:
                return failure
            self._done.add(node.node_id)
            warn(f"{node.name} restarted after {row['seconds']} s ({len(self.rows)}/{self._total})")
            self._settle(node)
        return None

    def _settle(self, node: RollNode) -> None:
        """Wait until clients are connected to the restarted node again."""
        left = roll_order(self._nodes, -1, self._done)
        pause_s = settle_s(node, left, time.monotonic() - self._restart_began)
        if pause_s and self._settle_s is not None:
            pause_s = self._settle_s
        if pause_s:
            warn(f"waiting {pause_s:.1f} s for clients to connect to {node.name} again")
            time.sleep(pause_s)

    def _roll_one(self, node: RollNode, deadline: float) -> CommandFailed | None:
        reason = until(lambda: self._not_safe(node), deadline)
        within = f"{self._timeout_s:g} s"
        if reason is not None:
            what = f"{node.name} was not restarted: {reason} after {within}"
            return self._stopped(node, what, EXIT_NO_QUORUM)
        restart = required(self._restart, "a roll that restarts nodes was told how")
        self._restart_began = time.monotonic()
        try:
            restart.run(node, max(deadline - self._restart_began, 1.0))
        except CommandFailed as failed:
            return self._stopped(node, f"{node.name}: {failed}", failed.exit_code)
        images: list[ClusterImage] = []
        reason = until(lambda: self._not_back(node, images), deadline)
        if reason is None:
            return None
        what = f"{node.name} was restarted: {reason} after {within}"
        if not restart.is_ready and reason == not_registered(node):
            what = (
                f"the command for {node.name} succeeded, but {reason} within {within}; see that "
                "the command restarts it"
            )
        return self._stopped(node, what, EXIT_NO_QUORUM)

    def _stopped(self, node: RollNode, what: str, exit_code: int) -> CommandFailed:
        left = [n.node_id for n in roll_order(self._nodes, -1, self._done)]
        rest = [str(node_id) for node_id in left if node_id != node.node_id]
        return CommandFailed(
            f"the roll stopped: {what}; not touched: {', '.join(rest) or 'none'}; see kvorum "
            f"health and the node's log, then run it again for {' '.join(map(str, left))}",
            exit_code,
        )

    def _not_safe(self, node: RollNode) -> str | None:
        return "; ".join(hazards_of_start(self._read_view(), node)) or None

    def _not_back(self, node: RollNode, images: list[ClusterImage]) -> str | None:
        """The reason why the next node must wait; None if it may follow. images: keeps the first
        image with the new registration, since reading an image takes long."""
        if not images:
            image = self._read_image()
            if is_registered_again(image, node):
                images.append(image)
        else:
            image = images[0]
        return not_back(self._read_view(), image, node)

    def _leader_id(self) -> int:
        """The quorum's leader; -1 if none leads: the health is checked before any restart."""
        from kvorum.cli.backends import open_backend

        try:
            with one_answer():
                backend = open_backend(
                    self._options["bootstrap_server"],
                    self._options["bootstrap_controller"],
                    self._options["timeout"],
                )
                return int(backend.quorum()["leader_id"])
        except CommandFailed:
            return -1

    def _read_image(self) -> ClusterImage:
        from kvorum.cli.backends import open_controllers
        from kvorum.metadata.inspect.history import image_of

        with one_answer():
            client = open_controllers(
                self._options["bootstrap_server"],
                self._options["bootstrap_controller"],
                self._options["timeout"],
            )
            return image_of(client.read_metadata_log())

    def _read_view(self) -> ClusterView:
        """The cluster as it is now. Raises ConfigError if the launcher has another one: most
        clusters have the same node ids, so its node of that id would be restarted instead."""
        view = read_view(self._options)
        found = None if view.quorum is None else view.quorum["cluster_id"]
        if None not in (found, self._cluster_id) and found != self._cluster_id:
            raise ConfigError(
                f"--data-dir has the cluster {self._cluster_id}, and the address given is of the "
                f"cluster {found}: leave the address out"
            )
        return view

    def _know_all_brokers(self, view: ClusterView) -> None:
        """Ask any node of the cluster from now on: the given ones are restarted too."""
        kind, given = bootstrap_of(
            self._options["bootstrap_server"], self._options["bootstrap_controller"]
        )
        rows = view.brokers if kind == "broker" else (view.quorum or {"nodes": ()})["nodes"]
        addresses = dict.fromkeys([*given, *((str(r["host"]), int(r["port"])) for r in rows)])
        text = ",".join(address_text(*address) for address in addresses)
        name = "bootstrap_server" if kind == "broker" else "bootstrap_controller"
        self._options[name] = text
