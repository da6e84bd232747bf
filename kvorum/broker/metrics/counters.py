"""The numbers that a broker counts while it works: by API, by topic, and of its parts. Pure.

They are counted with or without a metrics listener. Under load a request costs a few additions:
each is counted, but only some are timed (`TIMED_INTERVAL_S`).

Walk: `server` -> `RequestMetrics`, `network.connection` -> `RequestTiming`;
`partition.replica` and `api.fetch` -> `TopicMetrics`.
"""

from __future__ import annotations

from kvorum.broker.metrics.share_counters import ShareMetrics
from kvorum.runtime.metrics import Histogram
from kvorum.runtime.tracing import Span

TIMED_INTERVAL_S = 0.005
"""Of each API, one request in this time is timed, so that timing costs the same at any rate: 3 µs a
request would be a tenth of the CPU of a small append, replicated twice."""


class RequestMetrics:
    """Requests of one API.

    requests: number of requests read.
    errors: number of errors by code, without NONE: the code of the whole answer, or of each
        partition in Produce and Fetch.

    Of timed requests: total_s, from reading to sending; local_s, in the handler; remote_s, waiting
    for others (replication, data, a controller); throttle_s, the pause that a quota gave the
    client; send_s, until the socket had taken the answer and all those before it. due_s: when the
    next request is timed.
    """

    __slots__ = (
        "due_s", "errors", "local_s", "name", "remote_s", "requests", "send_s", "throttle_s",
        "total_s",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = 0
        self.errors: dict[int, int] = {}
        self.due_s = 0.0
        self.total_s = Histogram()
        self.local_s = Histogram()
        self.remote_s = Histogram()
        self.throttle_s = Histogram()
        self.send_s = Histogram()


class RequestTiming:
    """One timed request.

    began_s: when it was read.
    handled_s: end of its handler.
    ready_s: its answer was ready. Times of one clock, 0.0 if not yet.
    """

    __slots__ = ("began_s", "handled_s", "metrics", "ready_s")

    def __init__(self, metrics: RequestMetrics, began_s: float) -> None:
        self.metrics = metrics
        self.began_s = began_s
        self.handled_s = 0.0
        self.ready_s = 0.0

    def end(self, sent_s: float, throttle_s: float) -> None:
        """The answer has left."""
        metrics = self.metrics
        # If the handler filled the answer itself, the answer was ready before the handler returned:
        # it waited for nothing.
        handled_s = self.handled_s or sent_s
        ready_s = max(self.ready_s, handled_s)
        metrics.total_s.observe(sent_s - self.began_s)
        metrics.local_s.observe(handled_s - self.began_s)
        metrics.remote_s.observe(ready_s - handled_s)
        metrics.throttle_s.observe(throttle_s)
        metrics.send_s.observe(sent_s - ready_s)


class TracedTiming(RequestTiming):
    """A timed request with a span, which ends when the answer has left."""

    __slots__ = ("span",)

    def __init__(self, metrics: RequestMetrics, began_s: float, span: Span) -> None:
        super().__init__(metrics, began_s)
        self.span = span

    def end(self, sent_s: float, throttle_s: float) -> None:
        """See `RequestTiming.end`."""
        super().end(sent_s, throttle_s)
        self.span.end()


class TopicMetrics:
    """The work of this broker for one topic; or the sum over several.

    messages_in, bytes_in: appended by clients here as leader.
    bytes_out: read by consumers.
    replication_bytes_in, replication_bytes_out: between brokers.
    produce_requests: batches that were appended.
    fetch_requests: partitions in answers that had records for them; failed_*: those that ended in
        an error.
    isr_shrinks, isr_expands: changes of the ISR of a partition that this broker leads.
    failed_isr_updates: proposals that the controller refused.
    replicas: on this broker.
    """

    __slots__ = (
        "bytes_in", "bytes_out", "failed_fetch_requests", "failed_isr_updates",
        "failed_produce_requests", "fetch_requests", "isr_expands", "isr_shrinks", "messages_in",
        "name", "produce_requests", "replicas", "replication_bytes_in", "replication_bytes_out",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        for field in TopicMetrics.__slots__:
            if field != "name":
                setattr(self, field, 0)

    bytes_in: int
    bytes_out: int
    failed_fetch_requests: int
    failed_isr_updates: int
    failed_produce_requests: int
    fetch_requests: int
    isr_expands: int
    isr_shrinks: int
    messages_in: int
    produce_requests: int
    replicas: int
    replication_bytes_in: int
    replication_bytes_out: int

    def note_isr(self, before: frozenset[int], after: frozenset[int]) -> None:
        """The committed ISR of a led partition is `after` now."""
        if after != before:
            self.isr_shrinks += bool(before - after)
            self.isr_expands += bool(after - before)

    def add(self, other: TopicMetrics) -> None:
        """Add the numbers of another topic to this sum."""
        for field in TopicMetrics.__slots__:
            if field != "name":
                setattr(self, field, getattr(self, field) + getattr(other, field))


class ConnectionMetrics:
    """Connections of one listener: made and closed since the start; the rest is open.

    authentications, failed_authentications: by SASL, or else by the TLS handshake.
    reauthentications, failed_reauthentications: of clients that were authenticated (KIP-368).
    expired: closed because their clients did not authenticate again in time.
    """

    __slots__ = (
        "authentications", "closed", "expired", "failed_authentications",
        "failed_reauthentications", "made", "reauthentications",
    )  # fmt: skip

    def __init__(self) -> None:
        self.made = 0
        self.closed = 0
        self.authentications = 0
        self.failed_authentications = 0
        self.reauthentications = 0
        self.failed_reauthentications = 0
        self.expired = 0

    def note_login(self, *, is_again: bool, is_allowed: bool) -> None:
        """An exchange of SASL has ended. is_again: the client was authenticated before it."""
        if is_again:
            self.reauthentications += is_allowed
            self.failed_reauthentications += not is_allowed
        else:
            self.authentications += is_allowed
            self.failed_authentications += not is_allowed


class BrokerMetrics:
    """All counters of one broker.

    requests: by API key.
    follower_fetch: the part of Fetch that other brokers sent.
    topics: by topic id; a topic is here while this broker has a replica of it.
    departed: the sum of the topics that are gone.
    connections: by listener.
    flush_s: fsyncs of logs of partitions.
    share: of share groups.
    """

    def __init__(self) -> None:
        self.requests: dict[int, RequestMetrics] = {}
        self.follower_fetch = RequestMetrics("FetchFollower")
        self.topics: dict[bytes, TopicMetrics] = {}
        self.departed = TopicMetrics("")
        self.connections: dict[str, ConnectionMetrics] = {}
        self.flush_s = Histogram()
        self.share = ShareMetrics()

    def of_api(self, key: int, name: str) -> RequestMetrics:
        """Make the metrics of an API, with its first request. name: in the form `init_producer_id`;
        metrics have it as `InitProducerId`."""
        made = self.requests[key] = RequestMetrics(name.title().replace("_", ""))
        return made

    def note_error(self, key: int, code: int) -> None:
        """An answer of the API has this error."""
        metrics = self.requests.get(key)
        if metrics is not None:
            metrics.errors[code] = metrics.errors.get(code, 0) + 1

    def opened(self, topic_id: bytes, name: str) -> TopicMetrics:
        """The metrics of the topic of a replica that this broker now has."""
        found = self.topics.get(topic_id)
        if found is None:
            found = self.topics[topic_id] = TopicMetrics(name)
        found.replicas += 1
        return found

    def closed(self, topic_id: bytes) -> None:
        """A replica has left this broker; with the last one of its topic the counters go."""
        found = self.topics.get(topic_id)
        if found is not None:
            found.replicas -= 1
            if not found.replicas:
                del self.topics[topic_id]
                self.departed.add(found)

    def listener(self, name: str) -> ConnectionMetrics:
        found = self.connections.get(name)
        if found is None:
            found = self.connections[name] = ConnectionMetrics()
        return found
