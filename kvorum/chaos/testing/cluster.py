"""A cluster to test an application against: real processes, and faults that a test asks for.

    from kvorum import Cluster

    with Cluster() as cluster:
        cluster.create_topic("orders", partitions=3)
        with cluster.fault("kill", target="leader:orders/0"):
            place_orders(cluster.bootstrap_servers)
        cluster.wait_until("isr-full")

Faults and targets are those of experiments. A fault in a `with` block ends with the block; without
one it lasts until `end` or `heal`. No fault needs a `duration_ms` here; a given one has no effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from kvorum.chaos.addresses import client_of
from kvorum.chaos.faults import LiveFault
from kvorum.chaos.history import HISTORY_FILE, HistoryWriter
from kvorum.chaos.live.faults.injector import Injected, Injector
from kvorum.chaos.live.host.processes import NotReached, wait_until
from kvorum.chaos.live.host.toxiproxy_server import find_server
from kvorum.chaos.live.systems.capabilities import needs_of
from kvorum.chaos.live.systems.limits import check_shape
from kvorum.chaos.live.systems.opening import LOGS, SystemChoice, choose_system, open_system
from kvorum.chaos.live.systems.protocol import (
    Capability,
    Node,
    NotObservable,
    System,
    node_named,
)
from kvorum.chaos.targets import TargetView
from kvorum.chaos.testing.arguments import WantedShape, built_fault, named_condition
from kvorum.chaos.testing.failure_text import ill_lines, log_end
from kvorum.chaos.testing.users import ADMIN, Users
from kvorum.chaos.testing.view import ClusterState, Condition, nodes_of, read_state, scraped
from kvorum.runtime.errors import ConfigError, KvorumError, required

_TOPIC_TIMEOUT_S = 20.0
_NOT_STARTED = "the cluster is not started; use it in a `with` block, or call start"

Result = TypeVar("Result")


@dataclass(slots=True)
class _Noted:
    """A fault for reports.

    injected: None for one that only ended others.
    asked: when it was asked for, with the date, in local time.
    ended: the time of day; empty while in force.
    """

    text: str
    injected: Injected | None
    asked: str
    ended: str = ""

    def line(self) -> str:
        if self.injected is None:
            return self.text
        return f"{self.text}, {f'ended {self.ended}' if self.ended else 'in force'}"


class Cluster:
    """A running cluster, and the calls that inject faults. Methods may be called from any thread.

    voters: so many controllers vote at the start, in a set that can change (0: all, in a static
        set).
    system: kvorum, or kafka for Apache Kafka from its jars.
    settings: properties for every node.
    directory: for data and logs; a temporary one, removed at the end, by default.
    proxies: None puts every link behind toxiproxy if its server can be found.
    metrics: every node of Kvorum has a Prometheus page.
    secure: TLS, users and ACLs, for Kvorum alone; its voters can change.
    seed: decides which node a target like `one:brokers` means.

    `start` raises ConfigError for what cannot be (an unknown system or property, more voters than
    controllers, no toxiproxy server with proxies=True), KvorumError if the cluster does not start.
    """

    def __init__(
        self,
        *,
        controllers: int = 3,
        brokers: int = 3,
        voters: int = 0,
        system: str = "kvorum",
        settings: Mapping[str, str] | None = None,
        directory: str | Path | None = None,
        proxies: bool | None = None,
        metrics: bool = True,
        secure: bool = False,
        seed: int = 1,
        start_timeout_s: float = 60.0,
    ) -> None:
        self._shape = WantedShape(
            controllers=controllers,
            voters=voters,
            brokers=brokers,
            settings=settings or {},
            is_secure=secure,
            timeout_s=start_timeout_s,
        )
        self._system_name = system
        self._directory = None if directory is None else Path(directory)
        self._proxies = proxies
        self._has_metrics = metrics
        self._rng = random.Random(f"{seed}/targets")
        self._stack = ExitStack()
        # One thread does everything: faults are not thread-safe, and on Linux a child process gets
        # its death signal when the thread that started it ends.
        self._thread: ThreadPoolExecutor | None = None
        self._system: System | None = None
        self._injector: Injector | None = None
        self._admin: Any = None
        self._choice: SystemChoice | None = None
        self._faults: list[_Noted] = []
        self._users: Users | None = None
        #: Topics with this prefix are known to targets without it, too.
        self.topic_prefix = ""

    # Life.

    def start(self) -> Cluster:
        """Start the cluster; returns when an acks=all write would succeed."""
        if self._thread is not None:
            raise KvorumError("the cluster is started already")
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kvorum-cluster")
        try:
            self._call(self._open)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every fault and every process. May be called again."""
        thread = self._thread
        if thread is None:
            return
        try:
            self._call(self._stack.close)
        finally:
            self._thread = None
            self._system = self._injector = self._admin = self._users = None
            thread.shutdown()

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Cluster:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)

    # The state.

    @property
    def bootstrap_servers(self) -> str:
        """host:port,... for clients; the proxies, where there are any."""
        return self._running().bootstrap()

    @property
    def version(self) -> str:
        """Name and version of the system."""
        system = self._running()
        return f"{system.name} {system.version}"

    # Users.

    @property
    def users(self) -> Users:
        """The users of a secure cluster: `users.create("alice")`. Raises KvorumError without
        secure=True."""
        self._running()
        if self._users is None:
            raise KvorumError("this cluster has no users: start it with secure=True")
        return self._users

    def client_config(self, user: str = ADMIN) -> dict[str, Any]:
        """The settings of a librdkafka client that logs in as a user: addresses, TLS, login. On a
        cluster without security the addresses alone. Raises KvorumError for an unknown user."""
        if user == ADMIN and not self._shape.is_secure:
            return client_of(self.bootstrap_servers)
        return client_of(self.users.address(user))

    def grant(
        self,
        user: str,
        *operations: str,
        topic: str = "",
        group: str = "",
        transactional_id: str = "",
        cluster: bool = False,
        prefixed: bool = False,
    ) -> None:
        """Allow a user operations, by Kafka's names (READ, WRITE, ...), on one resource.

        topic: without the prefix of the test.
        prefixed: all resources whose names begin so.
        Raises KvorumError.
        """
        named = {
            "topic": topic if topic in ("", "*") else self.topic(topic),
            "group": group,
            "transactional_id": transactional_id,
            "cluster": "cluster" if cluster else "",
        }
        chosen = [(kind, name) for kind, name in named.items() if name]
        if len(chosen) != 1 or not operations:
            raise KvorumError(
                "grant needs operations and one of topic, group, transactional_id and cluster"
            )
        ((kind, name),) = chosen
        self._call(lambda: self.users.allow(user, operations, kind, name, is_prefixed=prefixed))

    def nodes(self) -> list[Node]:
        """Every node with its name, id and process id; state is running, killed, paused or dead."""
        return self._call(lambda: nodes_of(self._running()))

    def admin(self) -> Any:
        """An AdminClient of confluent-kafka, opened once."""
        self._running()
        return self._admin

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic and wait until its partitions are led; returns its full name, with the
        prefix. replication_factor: of at most 3 brokers by default. Raises KvorumError."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        full = self.topic(name)
        copies = replication_factor or min(3, self._shape.brokers)
        topic = NewTopic(full, partitions, copies, config=dict(config or {}))
        try:
            self._admin_client().create_topics([topic], request_timeout=_TOPIC_TIMEOUT_S)[
                full
            ].result()
        except KafkaException as error:
            raise KvorumError(f"topic {full} cannot be created: {error}") from error
        self.wait_until(lambda: self._is_there(full, partitions), what=f"{full} is led")
        return full

    def delete_topics(self) -> list[str]:
        """Delete every topic of this prefix; returns their names. Without a prefix it does nothing.

        Raises KvorumError if one cannot be deleted.
        """
        from confluent_kafka import KafkaException

        if not self.topic_prefix:
            return []
        names = sorted({name for name, _ in self.state().partitions})
        own = [name for name in names if name.startswith(self.topic_prefix)]
        if not own:
            return []
        answers = self._admin_client().delete_topics(own, request_timeout=_TOPIC_TIMEOUT_S)
        for name, answer in answers.items():
            try:
                answer.result()
            except KafkaException as error:
                raise KvorumError(f"topic {name} cannot be deleted: {error}") from error
        return own

    def _is_there(self, topic: str, partitions: int) -> bool:
        try:
            state = self.state()
        except NotObservable:
            return False
        return len(state.partitions_of(topic)) == partitions and state.is_led(topic)

    def topic(self, name: str) -> str:
        """The full name of a topic of this test: with the prefix."""
        return name if name.startswith(self.topic_prefix) else self.topic_prefix + name

    def state(self) -> ClusterState:
        """Nodes, leaders and ISRs now. Raises NotObservable when no broker answers."""
        return self._call(lambda: read_state(self._running(), self._admin_client()))

    def logs(self, node: str) -> str:
        """The whole log of a node. Raises KvorumError for an unknown node."""
        system = self._running()
        path = self._call(lambda: node_named(system, node)).log_file
        return Path(path).read_text(encoding="utf-8", errors="replace")

    def metrics(self, node: str) -> dict[str, float]:
        """A node's metrics, by name and labels as Prometheus writes them.

        Raises KvorumError if the cluster has no metrics or the node gives no answer.
        """
        address = self._metrics_addresses().get(node)
        if address is None:
            known = ", ".join(self._metrics_addresses()) or "none"
            raise KvorumError(
                f"{node} has no metrics (nodes with metrics: {known}); they need system='kvorum' "
                "and metrics=True"
            )
        return scraped(node, address)

    # Faults.

    @contextlib.contextmanager
    def fault(self, name: str, /, **arguments: object) -> Iterator[Injected | None]:
        """A fault for the length of a `with` block: `with cluster.fault("kill", target=...)`.

        name and arguments: as in experiments (docs/breaking.md). Raises ConfigError for an unknown
        fault or argument, KvorumError if it cannot be carried out.
        """
        injected = self.inject(name, **arguments)
        try:
            yield injected
        finally:
            if injected is not None:
                self.end(injected)

    def inject(self, name: str, /, **arguments: object) -> Injected | None:
        """Begin a fault. Returns it, for `end`; None for one that only ends others."""
        fault = built_fault(name, arguments)
        return self._call(lambda: self._inject(name, fault))

    def end(self, injected: Injected) -> None:
        """End a fault: start, resume or connect again what it hit."""
        self._call(lambda: self._end(lambda injector: injector.end(injected)))

    def heal(self) -> None:
        """End every fault."""
        self._call(lambda: self._end(Injector.end_all))

    def forget_faults(self) -> None:
        """Leave the faults that are over out of later reports."""

        def forget() -> None:
            self._faults = [noted for noted in self._faults if noted.injected and not noted.ended]

        self._call(forget)

    def kill(self, target: str) -> tuple[str, ...]:
        """SIGKILL; returns the names of the nodes. `restart` or `heal` starts them again."""
        return self._nodes_of(self.inject("kill", target=target))

    def restart(self, target: str = "killed") -> None:
        """Start killed nodes on their old disks."""
        self.inject("restart", target=target)

    def pause(self, target: str) -> tuple[str, ...]:
        """SIGSTOP; returns the names of the nodes."""
        return self._nodes_of(self.inject("pause", target=target))

    def resume(self, target: str = "paused") -> None:
        """SIGCONT."""
        self.inject("resume", target=target)

    def cut(self, source: str, destination: str, *, both_ways: bool = False) -> Injected | None:
        """Bytes from source to destination vanish; connections stay open."""
        return self.inject("cut", source=source, destination=destination, both_ways=both_ways)

    def isolate(self, target: str, *, away_from: str = "all") -> Injected | None:
        """Cut the target from every node of another set, both ways."""
        return self.inject("isolate", target=target, away_from=away_from)

    def slow(
        self, source: str, destination: str, *, latency_ms: int, jitter_ms: int = 0
    ) -> Injected | None:
        """Delay what travels from source to destination."""
        return self.inject(
            "latency",
            source=source,
            destination=destination,
            latency_ms=latency_ms,
            jitter_ms=jitter_ms,
        )

    # Waiting.

    def wait_until(
        self,
        condition: str | Callable[[], bool],
        *,
        timeout_s: float = 30.0,
        what: str = "the condition holds",
    ) -> None:
        """Wait for a condition: one of CONDITIONS by name, or a function.

        Raises NotReached with the state of the cluster, ConfigError for an unknown name.
        """
        if isinstance(condition, str):
            named = named_condition(condition)
            what = named.meaning
            condition = self._observed(named)
        try:
            wait_until(condition, timeout_ms=round(timeout_s * 1000), what=what)
        except NotReached as error:
            raise NotReached(f"{error}\n{self.report()}") from error

    def _observed(self, condition: Condition) -> Callable[[], bool]:
        def holds() -> bool:
            try:
                return condition.holds(self.state())
            except NotObservable:
                return False

        return holds

    # For a failed test.

    def report(self) -> str:
        """The cluster in some lines of text: nodes, faults with their ends, partitions that are not
        well, and what each log says since the first of the faults."""
        lines = [f"{self.version}, bootstrap {self.bootstrap_servers}"]
        lines += [
            f"  {node.name}: {node.state}, pid {node.pid}, log {node.log_file}"
            for node in self.nodes()
        ]
        faults = [noted.line() for noted in self._faults] or ["none"]
        lines += ["faults:", *(f"  {line}" for line in faults)]
        try:
            state = self.state()
            lines.append(f"active controller: {state.active_controller}")
            lines += ill_lines(state.partitions, own_prefix=self.topic_prefix)
        except KvorumError as error:
            lines.append(f"no metadata: {error}")
        since = min((noted.asked for noted in self._faults), default="")
        for node in self.nodes():
            log = self.logs(node.name).splitlines() if node.log_file else []
            lines += [f"--- {node.name}", *log_end(log, since=since)]
        return "\n".join(lines)

    # Inside.

    def _open(self) -> None:
        from confluent_kafka.admin import AdminClient

        choice = self._choice = choose_system(self._system_name)
        check_shape(choice, self._shape)
        folder = self._folder()
        (folder / LOGS).mkdir(parents=True, exist_ok=True)
        opened = open_system(
            self._stack,
            choice,
            shape=self._shape,
            run_dir=folder,
            progress=_no_progress,
            with_proxies=self._with_proxies(),
            with_metrics=self._has_metrics,
        )
        system = self._system = opened.system
        history = self._stack.enter_context(HistoryWriter(str(folder / HISTORY_FILE)))
        self._admin = AdminClient({**client_of(system.bootstrap()), "log_level": 2})
        if self._shape.is_secure:
            self._users = Users(system, self._admin_client)
        self._injector = Injector(
            system=system,
            toxiproxy=opened.toxiproxy,
            packets=opened.packets,
            history=history,
            view=self._view,
            rng=self._rng,
        )
        self._stack.callback(self._injector.end_all)

    def _folder(self) -> Path:
        if self._directory is not None:
            return self._directory
        folder = Path(tempfile.mkdtemp(prefix="kvorum-"))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def _with_proxies(self) -> bool:
        if self._proxies is not None or self._system_name != "kvorum":
            return self._proxies is not False
        try:
            find_server()
        except ConfigError:
            return False
        return True

    def _inject(self, name: str, fault: LiveFault) -> Injected | None:
        missing = needs_of(fault) - self._running().capabilities
        denied = self._denied(fault)
        if missing or denied:
            needed = ", ".join(sorted(capability.value for capability in missing | denied.keys()))
            why = "; ".join(dict.fromkeys(denied.values())) or (
                "faults of links need a toxiproxy-server on PATH and proxies not switched off"
            )
            raise KvorumError(
                f"{fault.text()!r} needs {needed}, which this cluster does not have; {why}"
            )
        asked = time.strftime("%Y-%m-%dT%H:%M:%S")
        injected = self._injecting().inject(name, fault)
        struck = f" [{', '.join(injected.nodes)}]" if injected is not None else ""
        text = f"{time.strftime('%H:%M:%S')} {fault.text()}{struck}"
        self._faults.append(_Noted(text, injected, asked))
        self._note_ends()
        return injected

    def _denied(self, fault: LiveFault) -> dict[Capability, str]:
        """The reason for each capability that this machine denies the fault."""
        choice = required(self._choice, _NOT_STARTED)
        denials = {capability: choice.denial(capability) for capability in needs_of(fault)}
        return {capability: why for capability, why in denials.items() if why is not None}

    def _end(self, act: Callable[[Injector], None]) -> None:
        try:
            act(self._injecting())
        finally:
            self._note_ends()

    def _note_ends(self) -> None:
        """Note the end of each fault that is over, also by another fault such as a restart."""
        active = {injected.fault_id for injected in self._injecting().active()}
        for noted in self._faults:
            if noted.injected and not noted.ended and noted.injected.fault_id not in active:
                noted.ended = time.strftime("%H:%M:%S")

    def _view(self) -> TargetView:
        # Without a broker that answers, targets other than partitions are known still.
        state = read_state(self._running(), self._admin, is_required=False)
        return state.view(alias_prefix=self.topic_prefix)

    def _metrics_addresses(self) -> Mapping[str, str]:
        addresses: Mapping[str, str] = getattr(self._running(), "metrics_addresses", {})
        return addresses

    def _nodes_of(self, injected: Injected | None) -> tuple[str, ...]:
        return injected.nodes if injected is not None else ()

    def _running(self) -> System:
        if self._system is None:
            raise KvorumError(_NOT_STARTED)
        return self._system

    def _injecting(self) -> Injector:
        if self._injector is None:
            raise KvorumError(_NOT_STARTED)
        return self._injector

    def _admin_client(self) -> Any:
        self._running()
        return self._admin

    def _call(self, act: Callable[[], Result]) -> Result:
        """Run on the cluster's own thread, and wait."""
        thread = self._thread
        if thread is None:
            raise KvorumError(_NOT_STARTED)
        return thread.submit(act).result()


def _no_progress(_: str) -> None:
    return None
