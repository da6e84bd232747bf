"""A cluster that this run did not start: a TOML file says how each node is broken and mended.

The run takes down at most `max_nodes_down` nodes at once. All topics that it makes begin with the
file's prefix and are deleted at the end. `dead_man.py` heals if the run is gone. What the file has
no command for is outside the capabilities. Nodes that die unasked are not seen: nothing here can
ask a machine about its processes.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kvorum.chaos.addresses import client_of, secured
from kvorum.chaos.live.host.links import Link, LinkPlan
from kvorum.chaos.live.host.toxiproxy import Toxiproxy
from kvorum.chaos.live.systems.attached_file import AttachedFile, AttachedNode
from kvorum.chaos.live.systems.dead_man import (
    BEAT_MS,
    HEALED,
    HEARTBEAT,
    JOURNAL,
    LOG,
    Journal,
    beat,
    clear_toxics,
    heal,
    run_command,
    start_dead_man,
)
from kvorum.chaos.live.systems.protocol import (
    DEAD,
    RUNNING,
    Capability,
    Node,
    NotObservable,
    QuorumStatus,
)
from kvorum.chaos.live.systems.quorum_requests import describe_quorum
from kvorum.client.security import NONE, ClientSecurity
from kvorum.runtime.errors import ConfigError, KvorumError
from kvorum.runtime.fault_board import FaultBoard

_STATUS_TIMEOUT_S = 5.0
_ADMIN_TIMEOUT_S = 20.0
_END_TIMEOUT_S = 10.0
_LOG_TAIL_BYTES = 2_000


class AttachedSystem:
    """Implements `systems.protocol.System`. folder: of heartbeat, journal and the timer's log."""

    name = "attached"

    def __init__(
        self,
        *,
        file: AttachedFile,
        plan: LinkPlan,
        toxiproxy: Toxiproxy | None,
        folder: Path,
        security: ClientSecurity = NONE,
    ) -> None:
        self.plan = plan
        self._file = file
        self._security = security
        self._toxiproxy = toxiproxy
        self._folder = folder
        self._proxies = tuple(link.name for link in plan.links)
        self._journal = Journal(
            path=folder / JOURNAL,
            command_timeout_ms=file.command_timeout_ms,
            toxiproxy=file.toxiproxy,
            proxies=self._proxies,
        )
        self._killed: set[str] = set()
        self._paused: set[str] = set()
        self._dead_man: subprocess.Popen[bytes] | None = None
        self._heart: _Heart | None = None

    @property
    def version(self) -> str:
        return self._file.version

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._file.capabilities

    @property
    def killed(self) -> frozenset[str]:
        return frozenset(self._killed)

    @property
    def paused(self) -> frozenset[str]:
        return frozenset(self._paused)

    @property
    def topic_prefix(self) -> str:
        return self._file.topic_prefix

    @property
    def max_nodes_down(self) -> int | None:
        return self._file.max_nodes_down

    def start(self) -> None:
        """Check that the file fits the cluster, and start the dead-man timer. Raises ConfigError if
        the cluster has a broker that the file does not name, or topics that begin with the
        prefix, and NotObservable if no broker answers."""
        self._check_brokers()
        left = self._own_topics()
        if left:
            raise ConfigError(
                f"{self._file.path}: topic_prefix: the cluster has topics that begin with "
                f"{self._file.topic_prefix!r} ({', '.join(left[:3])}), and a run deletes all of "
                "them at its end; delete them, or choose another prefix"
            )
        self._check_proxies()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._journal.write()
        beat(self._folder, 0)
        self._dead_man = start_dead_man(self._folder, heal_after_ms=self._file.heal_after_ms)
        self._heart = _Heart(self._folder)
        self._heart.start()

    def stop(self) -> None:
        """Bring every node back, take the toxics off, delete the run's topics, end the timer.

        Raises KvorumError if a part of that failed. Then the timer goes on, and tries to heal once
        more.
        """
        dead_man, self._dead_man = self._dead_man, None
        if dead_man is None or self._heart is None:
            return
        has_healed = dead_man.poll() == HEALED
        problems = [] if has_healed else heal(self._journal)
        if not problems:
            self._killed.clear()
            self._paused.clear()
        # Also while a node is down: the timer brings it back, but knows nothing of topics.
        problems += self._delete_topics()
        self._heart.stop()
        if problems:
            tail = f"the dead-man timer tries once more, see {self._folder / LOG}"
            raise KvorumError("; ".join([*problems, tail]))
        (self._folder / HEARTBEAT).unlink(missing_ok=True)
        try:
            dead_man.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # Everything is healed: the timer has nothing left to do.
            dead_man.kill()
            dead_man.wait()

    def is_running(self) -> bool:
        """False after the dead-man timer has healed, or if it was ended by someone else: then the
        run's faults are no longer what the history says."""
        return self._dead_man is not None and self._dead_man.poll() is None

    def nodes(self) -> list[Node]:
        return [
            Node(
                name=node.name,
                node_id=node.node_id,
                is_controller=node.is_controller,
                pid=None,
                state=DEAD if node.name in self._killed else RUNNING,
                listener=secured(node.address, self._security),
                log_file="",
            )
            for node in self._file.nodes
        ]

    def bootstrap(self) -> str:
        return secured(self._file.bootstrap, self._security)

    def kill(self, name: str) -> None:
        self._take_down(name, "kill", way_back="start")

    def pause(self, name: str) -> None:
        self._take_down(name, "pause", way_back="resume")

    def stop_node(self, name: str) -> None:
        self._take_down(name, "stop", way_back="start")

    def resume(self, name: str) -> None:
        if name not in self._paused:
            raise KvorumError(f"{name} is not paused, it cannot be resumed")
        self._run(name, "resume")
        self._paused.discard(name)
        self._journal.remove(name)

    def restart(self, name: str) -> None:
        if name not in self._killed:
            raise KvorumError(f"{name} was not killed or stopped, it cannot be started")
        self._run(name, "start")
        self._killed.discard(name)
        self._journal.remove(name)

    def wipe(self, name: str) -> None:
        if name not in self._killed:
            raise KvorumError(f"{name} was not killed or stopped, its disk cannot be wiped")
        self._run(name, "wipe")

    def died_unasked(self) -> list[str]:
        return []

    @property
    def fault_boards(self) -> Mapping[str, FaultBoard]:
        return {}

    def may_die(self, name: str) -> None:
        """Has no effect: the deaths of these nodes are not seen."""

    def must_live(self, name: str) -> None:
        """Has no effect."""

    def log_tail(self, name: str = "") -> str:
        """The words of the dead-man timer: the cluster's own logs are on its machines."""
        log_file = self._folder / LOG
        if not log_file.exists():
            return ""
        return log_file.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL_BYTES:]

    def quorum_witnesses(self) -> list[str]:
        """Brokers: each asks the active controller, so no controller's listener is needed."""
        down = self._killed | self._paused
        return [name for name in self._file.brokers if name not in down]

    def quorum_status(self, name: str) -> QuorumStatus:
        return describe_quorum(
            secured(self._node(name).address, self._security), timeout_s=_STATUS_TIMEOUT_S
        )

    def controller_listener(self, name: str) -> tuple[str, int]:
        host, _, port = self._node(name).address.rpartition(":")
        return host.strip("[]"), int(port)

    def export_metadata(self, directory: str, *, timeout_s: float) -> str:
        raise KvorumError("an attached cluster's metadata log is on its own machines")

    def _take_down(self, name: str, word: str, *, way_back: str) -> None:
        node = self._node(name)
        down = self._killed | self._paused
        if name in down:
            raise KvorumError(f"{name} is down already, it cannot be taken down by {word!r}")
        limit = self._file.max_nodes_down
        if len(down) >= limit:
            raise KvorumError(
                f"{name} cannot be taken down: {', '.join(sorted(down))} is down, and "
                f"max_nodes_down is {limit}"
            )
        # Both before the command: a command that fails half-way may have taken the node down.
        self._journal.add(name, self._command(node, way_back))
        (self._paused if word == "pause" else self._killed).add(name)
        self._run(name, word)

    def _run(self, name: str, word: str) -> None:
        command = self._command(self._node(name), word)
        run_command(command, timeout_ms=self._file.command_timeout_ms)

    def _command(self, node: AttachedNode, word: str) -> tuple[str, ...]:
        command = node.commands.get(word)
        if command is None:
            raise KvorumError(f"{self._file.path}: {node.name} has no command {word!r}")
        return command

    def _node(self, name: str) -> AttachedNode:
        for node in self._file.nodes:
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self._file.nodes)
        raise KvorumError(f"no node is named {name!r} (nodes: {known})")

    def _check_brokers(self) -> None:
        seen = set(_metadata(self.bootstrap()).brokers)
        named = {node.node_id for node in self._file.nodes if node.is_broker}
        if seen != named:
            raise ConfigError(
                f"{self._file.path}: node: the cluster at {self.bootstrap()} has the brokers "
                f"{sorted(seen)} now, the file names {sorted(named)}; every broker needs a "
                "[[node]], and must run before a run begins"
            )

    def _check_proxies(self) -> None:
        if self._toxiproxy is None:
            return
        for link in self.plan.links:
            left = sorted(self._toxiproxy.toxics(link))
            if left:
                raise ConfigError(
                    f"{self._file.path}: the proxy {link.name} has toxics already "
                    f"({', '.join(left)}); remove them first: a run takes every toxic off its "
                    "proxies"
                )

    def _own_topics(self) -> list[str]:
        topics = _metadata(self.bootstrap()).topics
        return sorted(name for name in topics if name.startswith(self._file.topic_prefix))

    def _delete_topics(self) -> list[str]:
        """Delete every topic with the prefix; one sentence for each that is left."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            names = self._own_topics()
        except NotObservable as error:
            return [f"the topics of the run may be left: {error}"]
        if not names:
            return []
        admin = AdminClient({**client_of(self.bootstrap()), "log_level": 2})
        problems = []
        deletions = admin.delete_topics(names, request_timeout=_ADMIN_TIMEOUT_S)
        for name, deletion in deletions.items():
            try:
                deletion.result()
            except KafkaException as error:
                problems.append(f"topic {name} is left: {error}")
        return problems


class SharedToxiproxy(Toxiproxy):
    """A toxiproxy server that others use too: `reset` is for the run's proxies alone."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self._own: tuple[str, ...] = ()

    def claim(self, names: tuple[str, ...]) -> None:
        """Set the proxies that `reset` is for."""
        self._own = names

    def reset(self) -> None:
        clear_toxics(self, self._own)


def attached_plan(file: AttachedFile, proxies: Mapping[str, tuple[str, str]]) -> LinkPlan:
    """The nodes and links of a file. proxies: name -> (listen, upstream) on its server.

    Raises ConfigError for a proxy that the server does not have. Pure.
    """
    links = []
    for at, link in enumerate(file.links):
        if link.proxy not in proxies:
            known = ", ".join(sorted(proxies)) or "none"
            raise ConfigError(
                f"{file.path}: link[{at}].proxy: the toxiproxy at {file.toxiproxy} has no proxy "
                f"{link.proxy!r}; it has {known}"
            )
        listen, upstream = proxies[link.proxy]
        links.append(
            Link(
                source=link.source,
                destination=link.destination,
                listen=listen,
                upstream=upstream,
                proxy=link.proxy,
            )
        )
    return LinkPlan(controllers=file.controllers, brokers=file.brokers, links=tuple(links))


class _Heart(threading.Thread):
    """Counts in the heartbeat file until it is stopped."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="chaos-heartbeat", daemon=True)
        self._folder = folder
        self._stop_wanted = threading.Event()

    def run(self) -> None:
        count = 0
        while not self._stop_wanted.wait(BEAT_MS / 1000):
            count += 1
            beat(self._folder, count)

    def stop(self) -> None:
        self._stop_wanted.set()
        self.join()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metadata:
    brokers: frozenset[int]
    topics: tuple[str, ...]


def _metadata(bootstrap: str) -> _Metadata:
    """Broker ids and topic names. Raises NotObservable."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({**client_of(bootstrap), "log_level": 0})
    try:
        found = admin.list_topics(timeout=_ADMIN_TIMEOUT_S)
    except KafkaException as error:
        raise NotObservable(f"no broker of {bootstrap} gave its metadata: {error}") from error
    return _Metadata(brokers=frozenset(found.brokers), topics=tuple(found.topics))
