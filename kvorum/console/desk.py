"""Everything that the console knows and can do, behind plain methods: the routes call it.

A desk owns its readings and their threads. It makes the `Facts` of the newest readings when a page
asks for a view.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kvorum.client.configs.broker_configs import BrokerConfigs
from kvorum.client.connection import BrokerGone, UserRefused
from kvorum.client.current import acting_as, current_security
from kvorum.client.failures import EXIT_FAILED, EXIT_NOT_AUTHORIZED, EXIT_UNREACHABLE, CommandFailed
from kvorum.client.groups.group_client import GroupClient, NoSuchGroup
from kvorum.client.security import NONE, ClientSecurity
from kvorum.console.broker_source import Source
from kvorum.console.core.news import News, news_between
from kvorum.console.core.patch import Document, without_nulls
from kvorum.console.core.sample import Sample
from kvorum.console.core.share_figures import ShareFigures
from kvorum.console.core.topics_summary import Summaries, TopicBook
from kvorum.console.core.views import (
    OF_GROUPS,
    OF_SHARE_PARTITIONS,
    REPLICATION,
    Facts,
    NoSuchTopic,
    NotThere,
    Parameters,
    document_of,
    logs_shown,
)
from kvorum.console.feed import Feed
from kvorum.console.lab import Lab
from kvorum.console.message_reader import MessageReader, Question
from kvorum.console.metrics_pages import MetricsPages
from kvorum.console.replication_reader import Replication, ReplicationReader
from kvorum.console.runs import Runs
from kvorum.console.source import open_broker
from kvorum.console.travel import Travel
from kvorum.metadata.image.image import ClusterImage
from kvorum.runtime.tasks import TaskGroup
from kvorum.runtime.text import whole_number

_log = logging.getLogger(__name__)
T = TypeVar("T")

SAMPLE_INTERVAL_S = 1.0
GROUPS_INTERVAL_S = 3.0
LAB_INTERVAL_S = 0.5
REPLICATION_INTERVAL_S = 0.4
FIRST_WAIT_S = 1.5
"""How long a page request waits for the first reading."""
FRESH_WAIT_S = 0.05
"""How long the first request after an idle time waits for a new reading before it gets the old."""
GROUPS_MAX = 200
"""Groups that are described; each costs several requests to its coordinator."""
NEWS_MAX = 40
STALE_AFTER_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A sample, and the counts made from it in the thread that took it."""

    sample: Sample
    summaries: Summaries


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """rows: descriptions by name.
    left_out: groups beyond GROUPS_MAX.
    problem: the reason why some rows are of an earlier reading, or missing; "" if all are new.
    """

    rows: dict[str, Document]
    left_out: int
    problem: str = ""


class Desk:
    """The readings and actions for one user.

    lab, runs, metrics: None without --lab, --runs or pages of metrics.
    security: of the user whose rights count; None for the command's own.
    is_user_refused: brokers refuse that user's login, so the user's session is over.
    """

    def __init__(
        self,
        source: Source,
        *,
        timeout_s: float,
        lab: Lab | None,
        runs: Runs | None,
        metrics: MetricsPages | None = None,
        security: ClientSecurity | None = None,
    ) -> None:
        self.source = source
        self._security = security
        self.lab = lab
        self.runs = runs
        self._timeout_s = timeout_s
        self._book = TopicBook()
        self._news: deque[News] = deque(maxlen=NEWS_MAX)
        self._told: Sample | None = None
        self._travel = Travel()
        self._travel_lock = asyncio.Lock()
        self._runs_lock = asyncio.Lock()
        self.is_user_refused = False
        self.cluster: Feed[Look] = Feed(
            "cluster", self._look, interval_s=SAMPLE_INTERVAL_S, on_error=self._note
        )
        self.groups: Feed[Groups] = Feed(
            "groups",
            lambda: self._as_user(self._read_groups),
            interval_s=GROUPS_INTERVAL_S,
            on_error=self._note,
        )
        self.processes: Feed[Any] | None = None
        if lab is not None:
            self.processes = Feed("lab", lab.processes, interval_s=LAB_INTERVAL_S)
        self._replicas = ReplicationReader(self._image)
        self.replication: Feed[Replication] = Feed(
            "replication",
            lambda: self._as_user(self._replicas.read),
            interval_s=REPLICATION_INTERVAL_S,
            on_error=self._note,
        )
        self.figures: Feed[ShareFigures] | None = None
        if metrics is not None:
            self.figures = Feed("metrics", metrics.share_figures, interval_s=GROUPS_INTERVAL_S)

    @contextlib.asynccontextmanager
    async def running(self, on_failure: Callable[[BaseException], None]) -> AsyncIterator[None]:
        """The readings go on within this block, as far as somebody wants them. on_failure: called
        with an error of the console itself."""
        tasks = TaskGroup(on_failure)
        for feed in {*self._feeds("group"), *self._feeds(REPLICATION)}:
            tasks.spawn(feed.run(), f"console {feed.name}")
        try:
            yield
        finally:
            await tasks.stop()
            self._replicas.close()

    # --- views --------------------------------------------------------------------------------

    async def view(self, name: str, parameters: Parameters) -> Document:
        """A view with its `meta`. Raises NotThere for an unknown view, BadParameter, and
        CommandFailed if the user may not describe the topic or group."""
        self._want(name, parameters)
        for feed in self._feeds(name):
            is_first, was_idle, version = feed.version == 0, feed.is_idle, feed.version
            feed.ask()
            if is_first or was_idle:
                await feed.next(version, FIRST_WAIT_S if is_first else FRESH_WAIT_S)
        document = self.document(name, parameters)
        if "absent" in document:
            await self.check_access(name, parameters)
        return document

    async def check_access(self, name: str, parameters: Parameters) -> None:
        """Raise CommandFailed if the user may not describe the thing that a view is about."""
        if self._security is None and current_security() is NONE:
            return  # without security there is nothing that a user may not describe
        thing = parameters.get("name", "")
        if name not in ("topic", REPLICATION, "group") or not thing or self.cluster.value is None:
            return

        def ask() -> None:
            backend = open_broker(self.source, self._timeout_s)
            client = GroupClient(backend, self._timeout_s)
            try:
                if name != "group":
                    backend.topics([thing])
                else:
                    client.describe([thing])
            except CommandFailed as error:
                if error.exit_code == EXIT_NOT_AUTHORIZED:
                    raise
                # It is not there, or no broker can tell: the page says so itself.
                _log.debug("%s %s: %s", name, thing, error)
            finally:
                client.close()
                backend.close()

        await self._asked(ask)

    def _note(self, error: Exception) -> None:
        """Remember that brokers refuse the user's login: the user is deleted, or has another
        password. Errors of the console's own user do not count."""
        if self._security is not None and isinstance(error, UserRefused):
            self.is_user_refused |= error.user == self._security.user

    async def _asked(self, ask: Callable[[], T]) -> T:
        """The answer to a question of the user's, asked in a thread."""
        try:
            return await asyncio.to_thread(self._as_user, ask)
        except UserRefused as error:
            self._note(error)
            raise

    def _as_user(self, act: Callable[[], T]) -> T:
        """Act with the connections of the user whose rights count."""
        if self._security is None:
            return act()
        with acting_as(self._security):
            return act()

    @contextlib.contextmanager
    def watching(self, name: str) -> Iterator[list[Feed[Any]]]:
        """The readings that a view needs, which go on within this block."""
        feeds = self._feeds(name)
        with contextlib.ExitStack() as stack:
            for feed in feeds:
                stack.enter_context(feed.watch())
            yield feeds

    def document(self, name: str, parameters: Parameters) -> Document:
        """The view as of now, with its `meta`. Raises NotThere for an unknown view,
        BadParameter."""
        meta = self.meta(name)
        self._want(name, parameters)
        look = self.cluster.value
        if look is None:
            processes = {} if self.processes is None else self.processes.value or {}
            return {"meta": meta, "processes": _by_text(processes)}
        return {"meta": meta, **document_of(name, self._facts(look), parameters)}

    def _want(self, name: str, parameters: Parameters) -> None:
        """Have the logs read that a view shows. Raises BadParameter."""
        image = self._image()
        if name == REPLICATION and image is not None:
            self._replicas.want(logs_shown(image, parameters))

    def _image(self) -> ClusterImage | None:
        return None if self.cluster.value is None else self.cluster.value.sample.image

    def _feeds(self, name: str) -> list[Feed[Any]]:
        feeds: list[Feed[Any]] = [self.cluster]
        if name == REPLICATION:
            feeds.append(self.replication)
        if name in OF_GROUPS:
            feeds.append(self.groups)
        if self.figures is not None and name in OF_SHARE_PARTITIONS:
            feeds.append(self.figures)
        if self.processes is not None:
            feeds.append(self.processes)
        return feeds

    def _facts(self, look: Look) -> Facts:
        sample = look.sample
        if sample is not self._told:
            if self._told is not None:
                self._news.extend(news_between(self._told, sample))
            self._told = sample
        groups = self.groups.value
        return Facts(
            sample=sample,
            summaries=look.summaries,
            news=self._news,
            processes={} if self.processes is None else self.processes.value or {},
            groups=None if groups is None else groups.rows,
            groups_left_out=0 if groups is None else groups.left_out,
            logs=self.replication.value or {},
            figures=None if self.figures is None else self.figures.value,
            reads_metrics=self.figures is not None,
        )

    def meta(self, name: str) -> Document:
        """The reading behind a view: status (waiting, live or stale), error, taken_ms,
        lab_error."""
        feed: Feed[Any] = self.cluster
        error = feed.error
        if name in OF_GROUPS:
            feed = self.groups
            error = feed.error or ("" if feed.value is None else feed.value.problem)
        is_old = time.time() - feed.taken_ms / 1000 > STALE_AFTER_S and not feed.is_idle
        status = "live"
        if feed.value is None:
            status = "waiting"
        elif error or is_old:
            status = "stale"
        lab_error = "" if self.processes is None else self.processes.error
        meta = {"status": status, "error": error or None, "lab_error": lab_error or None}
        shown: Document = without_nulls({**meta, "taken_ms": feed.taken_ms})
        return shown

    # --- questions of one page ----------------------------------------------------------------

    async def messages(self, question: Question) -> Document:
        return await self._reading(lambda reader: reader.page(question), question.topic)

    async def message(self, topic: str, partition: int, offset: int, decoding: str) -> Document:
        return await self._reading(
            lambda reader: reader.message(topic, partition, offset, decoding), topic
        )

    async def _reading(self, read: Callable[[MessageReader], Document], topic: str) -> Document:
        def act(image: ClusterImage) -> Document:
            reader = MessageReader(image, self._timeout_s)
            try:
                return read(reader)
            finally:
                reader.close()

        sample, version = await self._sample(), self.cluster.version
        try:
            document = await self._asked(lambda: act(sample.image))
        except NoSuchTopic:
            # A topic may be younger than the sample.
            await self.cluster.next(version, FIRST_WAIT_S)
            newer = await self._sample()
            try:
                document = await self._asked(lambda: act(newer.image))
            except NoSuchTopic:
                await self.check_access("topic", {"name": topic})
                raise
        stripped: Document = without_nulls(document)
        return stripped

    async def configs(self, kind: str, name: str) -> Document:
        """The configs of a topic, of a broker, or ("") of all brokers, with defaults. Raises
        NotThere, CommandFailed."""
        image = (await self._sample()).image

        def act() -> list[Document]:
            backend = BrokerConfigs(self.source.broker_addresses(), self._timeout_s)
            try:
                return backend.describe_configs(kind, name, is_all=True)
            finally:
                backend.close()

        try:
            rows = await self._asked(act)
        except CommandFailed as error:
            # The broker is asked first: a name that this user may not see is refused, there or not.
            if error.exit_code == EXIT_FAILED and not _is_known(image, kind, name):
                raise NotThere(str(error)) from error
            raise
        return {"kind": kind, "name": name, "rows": [without_nulls(row) for row in rows]}

    async def tree(self, parameters: Parameters) -> Document:
        return await self._travelling(self._travel.tree, parameters)

    async def tree_difference(self, parameters: Parameters) -> Document:
        return await self._travelling(self._travel.difference, parameters)

    async def _travelling(self, ask: Callable[..., Document], parameters: Parameters) -> Document:
        await self._sample()
        async with self._travel_lock:
            document = await asyncio.to_thread(lambda: ask(self.source.history, parameters))
        stripped: Document = without_nulls(document)
        return stripped

    async def list_runs(self) -> Document:
        if self.runs is None:
            raise NotThere("no folder of runs was named; start the console with --runs DIR")
        async with self._runs_lock:
            return await asyncio.to_thread(self.runs.listed)

    async def act(self, action: str, node: str) -> str:
        """Carry out an action on a node of the lab; returns a sentence. Raises KvorumError,
        OSError.

        Several may go on at once: a controller may become ready only with a second one."""
        if self.lab is None:
            raise CommandFailed("this console has no lab; start it with --lab DIR")
        return await asyncio.to_thread(self.lab.act, action, node)

    async def _sample(self) -> Sample:
        """The newest sample. Raises CommandFailed if there has been none."""
        self.cluster.ask()
        if self.cluster.value is None:
            await self.cluster.next(self.cluster.version, FIRST_WAIT_S)
        if self.cluster.value is None:
            raise CommandFailed(
                self.cluster.error or "the cluster has not answered yet", EXIT_UNREACHABLE
            )
        return self.cluster.value.sample

    def _look(self) -> Look:
        sample = self.source.read()
        return Look(sample=sample, summaries=self._book.read(sample.image))

    def _read_groups(self) -> Groups:
        backend = open_broker(self.source, self._timeout_s)
        client = GroupClient(backend, self._timeout_s)
        try:
            names = [str(row["group"]) for row in client.list_groups([])]
            before = {} if self.groups.value is None else self.groups.value.rows
            lost = sorted(set(before) - set(names))
            rows, problem = described_groups(client, names[:GROUPS_MAX], before, lost)
            left_out = max(len(names) - GROUPS_MAX, 0)
            return Groups(rows=rows, left_out=left_out, problem=problem)
        finally:
            client.close()
            backend.close()


def described_groups(
    client: GroupClient,
    names: Sequence[str],
    before: Mapping[str, Document],
    lost: Sequence[str] = (),
) -> tuple[dict[str, Document], str]:
    """Descriptions by name, and the reason why some are those of `before`, or missing.

    lost: groups of `before` that no broker lists any more. A broker that becomes their coordinator
    does not list them at once, so only their coordinator's answer shows that they are deleted.

    A broker that is gone ends the reading: it may hang, and each request to it would wait for the
    whole timeout. The next reading asks again.
    """
    rows: dict[str, Document] = {}
    problem = ""
    is_gone = False
    for name in (*names, *lost):
        try:
            if not is_gone:
                rows[name] = client.describe([name])[0]
                continue
        except NoSuchGroup:
            continue  # it was deleted between the two requests
        except CommandFailed as error:
            if name in lost and error.exit_code == EXIT_NOT_AUTHORIZED:
                continue  # the user has lost the right to see it
            problem = problem or str(error)
            is_gone = isinstance(error, BrokerGone)
        if name in before:
            rows[name] = before[name]
    return rows, problem


def _by_text(processes: Any) -> Document:
    rows: Document = without_nulls({str(node): row for node, row in processes.items()})
    return rows


def _is_known(image: ClusterImage, kind: str, name: str) -> bool:
    """True if the metadata has the topic or broker; the name "" is of all brokers."""
    if kind == "topic":
        return image.topic(name) is not None
    return not name or whole_number(name) in image.brokers
