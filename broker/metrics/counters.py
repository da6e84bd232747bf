"""The numbers that a broker counts while it works: by API, by topic, and of its parts. Pure.

They are counted with or without a metrics listener: an addition each, and no clock that the request
did not read anyway, except one for an answer that waited.

Walk: `network.connection` (times of a request) and `network.server` (its API) -> `RequestMetrics`;
`partition.replica` and `api.fetch` -> `TopicMetrics`. `metrics.sources` reads them.
"""

from __future__ import annotations

from bisect import bisect_left

from kvorum.runtime.metrics import TIME_BOUNDS_S, Histogram

_BOUNDS = TIME_BOUNDS_S


class RequestMetrics:
    """Requests of one API.

    requests: that were read. errors: answers by error code: the code of the whole answer, or of
    each partition in Produce and Fetch; NONE is not counted. total_s: from reading to sending;
    local_s: in the handler; remote_s: waiting for others (replication, data, a controller);
    throttle_s: the pause that a quota gave the client; send_s: until the socket had taken the
    answer, behind the answers before it.
    """

    __slots__ = ("errors", "local_s", "name", "remote_s", "requests", "send_s", "throttle_s",
                 "total_s")  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests = 0
        self.errors: dict[int, int] = {}
        self.total_s = Histogram(_BOUNDS)
        self.local_s = Histogram(_BOUNDS)
        self.remote_s = Histogram(_BOUNDS)
        self.throttle_s = Histogram(_BOUNDS)
        self.send_s = Histogram(_BOUNDS)

    def note_error(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1

    def note_sent(
        self, began_s: float, handled_s: float, ready_s: float, sent_s: float, throttle_s: float
    ) -> None:
        """An answer has left. handled_s: end of the handler; ready_s: when the answer was ready, 0
        if the handler itself gave it. Times of one clock.

        The histograms are changed in place here: four calls would cost as much again.
        """
        took_s = sent_s - began_s
        total = self.total_s
        total.counts[bisect_left(_BOUNDS, took_s)] += 1
        total.sum += took_s
        took_s = handled_s - began_s
        local = self.local_s
        local.counts[bisect_left(_BOUNDS, took_s)] += 1
        local.sum += took_s
        remote = self.remote_s
        if ready_s:
            took_s = ready_s - handled_s
            remote.counts[bisect_left(_BOUNDS, took_s)] += 1
            remote.sum += took_s
        else:
            remote.counts[0] += 1
            ready_s = handled_s
        if throttle_s:
            self.throttle_s.observe(throttle_s)
        else:
            self.throttle_s.counts[0] += 1
        took_s = sent_s - ready_s
        send = self.send_s
        send.counts[bisect_left(_BOUNDS, took_s)] += 1
        send.sum += took_s


class Traffic:
    """What this broker has done for one topic, or for all topics together.

    messages_in, bytes_in: appended by clients here as leader. bytes_out: read by consumers.
    replication_bytes_in, replication_bytes_out: between brokers. produce_requests, fetch_requests:
    partitions in requests, as Kafka counts them; failed_*: those that ended in an error.
    isr_shrinks, isr_expands: changes of the ISR of a partition while this broker leads it;
    failed_isr_updates: proposals that the controller refused.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch_requests",
        "failed_isr_updates",
        "failed_produce_requests",
        "fetch_requests",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "produce_requests",
        "replication_bytes_in",
        "replication_bytes_out",
    )  # fmt: skip

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.produce_requests = 0
        self.failed_produce_requests = 0
        self.fetch_requests = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.failed_isr_updates = 0
        self.failed_fetch_requests = 0


class TopicMetrics(Traffic):
    """The traffic of one topic. everywhere: of all topics, deleted ones too; each event counts in
    both. replicas: number of the topic's replicas on this broker."""

    __slots__ = ("everywhere", "name", "replicas")

    def __init__(self, name: str, everywhere: Traffic) -> None:
        super().__init__()
        self.name = name
        self.everywhere = everywhere
        self.replicas = 0

    def note_appended(self, messages: int, size_bytes: int) -> None:
        """A client's batch was appended."""
        every = self.everywhere
        self.produce_requests += 1
        self.messages_in += messages
        self.bytes_in += size_bytes
        every.produce_requests += 1
        every.messages_in += messages
        every.bytes_in += size_bytes

    def note_refused(self) -> None:
        """A client's batch was not appended."""
        for one in (self, self.everywhere):
            one.produce_requests += 1
            one.failed_produce_requests += 1

    def note_isr(self, before: frozenset[int], after: frozenset[int]) -> None:
        """The committed ISR of a led partition is `after` now."""
        if after is not before and after != before:
            self.everywhere.isr_shrinks += bool(before - after)
            self.everywhere.isr_expands += bool(after - before)

    def note_replicated(self, size_bytes: int) -> None:
        """The leader's batches were appended here."""
        self.replication_bytes_in += size_bytes
        self.everywhere.replication_bytes_in += size_bytes

    def note_fetched(self, size_bytes: int, *, is_follower: bool, is_failed: bool) -> None:
        """A partition of an answer to Fetch."""
        for one in (self, self.everywhere):
            one.fetch_requests += 1
            if is_failed:
                one.failed_fetch_requests += 1
            elif is_follower:
                one.replication_bytes_out += size_bytes
            else:
                one.bytes_out += size_bytes


class BrokerMetrics:
    """All counters of one broker.

    requests: by API key; fetches of followers have metrics of their own. topics: by topic id; a
    topic is here while this broker has a replica of it. connections: by listener. flush_s:
    fsyncs of logs of partitions.
    """

    def __init__(self) -> None:
        self.requests: dict[int, RequestMetrics] = {}
        self.follower_fetch = RequestMetrics("FetchFollower")
        self.all_topics = Traffic()
        self.topics: dict[bytes, TopicMetrics] = {}
        self.connections: dict[str, ConnectionMetrics] = {}
        self.flush_s = Histogram(_BOUNDS)

    def of_api(self, key: int, name: str) -> RequestMetrics:
        """Make the metrics of an API, with its first request. name: in the form `init_producer_id`;
        metrics have it as `InitProducerId`."""
        words = "FetchConsumer" if name == "fetch" else name.title().replace("_", "")
        made = self.requests[key] = RequestMetrics(words)
        return made

    def all_requests(self) -> list[RequestMetrics]:
        """Of every API that had a request."""
        found = [self.follower_fetch, *self.requests.values()]
        return sorted((one for one in found if one.requests), key=lambda one: one.name)

    def opened(self, topic_id: bytes, name: str) -> TopicMetrics:
        """The metrics of the topic of a replica that this broker now has."""
        found = self.topics.get(topic_id)
        if found is None:
            found = self.topics[topic_id] = TopicMetrics(name, self.all_topics)
        found.replicas += 1
        return found

    def closed(self, topic_id: bytes) -> None:
        """A replica has left this broker; with the last one of its topic the counters go."""
        found = self.topics.get(topic_id)
        if found is not None:
            found.replicas -= 1
            if not found.replicas:
                del self.topics[topic_id]

    def listener(self, name: str) -> ConnectionMetrics:
        found = self.connections.get(name)
        if found is None:
            found = self.connections[name] = ConnectionMetrics()
        return found


class ConnectionMetrics:
    """Connections of one listener: made and closed since the start; the rest is open."""

    __slots__ = ("closed", "made")

    def __init__(self) -> None:
        self.made = 0
        self.closed = 0
