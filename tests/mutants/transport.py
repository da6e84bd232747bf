"""Rules of gRPC over HTTP/2, each with an edit that breaks it."""

from __future__ import annotations

import functools

from tests.mutants.model import Mutant

CLIENT = "kvorum/runtime/http2/client.py"
CLIENT_CONNECTION = "kvorum/runtime/http2/client_connection.py"
CONNECTION = "kvorum/runtime/http2/connection.py"
CONTEXT = "kvorum/runtime/http2/context.py"
KEEPALIVE = "kvorum/runtime/http2/keepalive.py"
SERVER = "kvorum/runtime/http2/server.py"
STREAM = "kvorum/runtime/http2/stream.py"
NODE = "kvorum/raft/node/raft_node.py"
RAFT_SERVICER = "kvorum/raft/node/servicer.py"
RAFT_TRANSPORT = "kvorum/raft/node/transport.py"

_FILES = ("listening", "bad_clients", "bad_servers", "callers", "streams", "calls", "fuzz")
_TESTS = (
    *(f"tests/test_runtime/test_http2_{name}.py" for name in _FILES),
    "tests/test_raft/test_transport.py",
    "tests/test_raft/test_node.py",
)
_mutant = functools.partial(Mutant, tests=_TESTS, has_simulator=False)

MUTANTS = (
    _mutant(
        "writer-sleeps-through-the-end",
        "a writer that waits for window space wakes when its stream ends",
        STREAM,
        "        self.is_local_done = True\n        self.wake_writer()\n",
        "        self.is_local_done = True\n",
    ),
    _mutant(
        "empty-messages-cost-nothing",
        "an unread message also uses window space for its prefix",
        STREAM,
        "        self._held_bytes += len(message) + MESSAGE_HEAD_BYTES\n",
        "        self._held_bytes += len(message)\n",
    ),
    _mutant(
        "writes-past-a-full-socket",
        "messages wait while the socket takes no more",
        STREAM,
        "        if connection.is_congested:\n            return 0\n",
        "",
    ),
    _mutant(
        "first-stream-first-for-ever",
        "streams that wait for a full socket take turns",
        CONNECTION,
        "        if self.streams.pop(stream.id, None) is not None:\n",
        "        if False:\n",
    ),
    _mutant(
        "half-a-message-then-another",
        "no message is sent after one that was cancelled half-way",
        STREAM,
        "            self.has_partial_write = 0 < len(view) < size + MESSAGE_HEAD_BYTES\n",
        "            self.has_partial_write = False\n",
    ),
    _mutant(
        "stream-window-overflows",
        "a stream's window stays below 2^31",
        STREAM,
        "        if self.send_window > frames.WINDOW_MAX:\n",
        "        if False:\n",
    ),
    _mutant(
        "asks-more-than-the-server-takes",
        "calls wait while the server's limit of streams is reached",
        CLIENT,
        "        if len(connection.streams) >= connection.streams_max or connection.is_closing:\n",
        "        if connection.is_closing:\n",
    ),
    _mutant(
        "turn-lost-with-its-caller",
        "a waiting call that is cancelled passes its turn on",
        CLIENT_CONNECTION,
        "                    self._admit()  # pass the place on to another call\n",
        "                    pass\n",
    ),
    _mutant(
        "call-on-a-connection-that-has-gone",
        "no call begins on a connection that was lost while it was being opened",
        CLIENT,
        "            if connection.is_closing:\n                raise ConnectionError",
        "            if False:\n                raise ConnectionError",
    ),
    _mutant(
        "old-connections-stay",
        "a connection that received GOAWAY is closed with its last call",
        CLIENT_CONNECTION,
        "        if self.is_closing:\n            self._close_if_over()\n",
        "",
    ),
    _mutant(
        "server-takes-a-goodbye-for-a-refusal",
        "a GOAWAY from the client does not refuse the client's calls",
        CONNECTION,
        '        """The peer accepts no new streams, and none above last_stream_id."""\n'
        "        self.is_closing = True\n",
        "        self.is_closing = True\n        self.fail_streams()\n",
    ),
    _mutant(
        "resets-pile-up",
        "a reset stream counts until its handler has ended",
        "kvorum/runtime/http2/server_connection.py",
        "self.calls >= STREAMS_MAX",
        "len(self.streams) >= STREAMS_MAX",
    ),
    _mutant(
        "answered-and-never-forgotten",
        "an answered call is over, even if its client still sends",
        CONTEXT,
        "    if not stream.is_remote_done:\n        # The caller may",
        "    if False:\n        # The caller may",
    ),
    _mutant(
        "two-ends-of-one-call",
        "nothing is sent after the status of a call",
        STREAM,
        "        if length > self.room() or self.failure is not None or self.is_local_done:\n",
        "        if length > self.room() or self.failure is not None:\n",
    ),
    _mutant(
        "asks-and-reads-nothing",
        "unsent answers to a client that does not read are bounded",
        CONNECTION,
        "        if self.is_congested and transport.get_write_buffer_size() > UNSENT_BYTES_MAX:\n",
        "        if False:\n",
    ),
    _mutant(
        "our-stall-is-the-peers-silence",
        "a timer that fires late does not show that the peer is silent",
        KEEPALIVE,
        "(now_ms - self._due_ms > STALL_MS)",
        "False",
    ),
    _mutant(
        "one-bad-timeout-ends-all",
        "a call with an invalid timeout is refused without closing its connection",
        SERVER,
        "        except ProtocolError as error:\n"
        "            self.refuse_call(stream, grpc.StatusCode.INVALID_ARGUMENT, str(error))\n"
        "            return False\n",
        "        except ProtocolError as error:\n            raise error\n",
    ),
    _mutant(
        "handler-outlives-its-call",
        "a handler ends when its client cancels",
        SERVER,
        "        stream.on_failed = call.cancel\n",
        "",
    ),
    _mutant(
        "cut-message-is-an-end",
        "a stream that ends inside a message is an error",
        STREAM,
        "        if code is grpc.StatusCode.OK and self.has_partial_message:\n",
        "        if False:\n",
    ),
    _mutant(
        "what-the-listener-raised-is-lost",
        "an exception of on_message is raised in listen",
        STREAM,
        "                reader.set_exception(error)\n",
        "                pass\n",
    ),
    _mutant(
        "an-interrupted-listener-hears-on",
        "a cancelled listener gets no more messages",
        STREAM,
        "        if listener is not None and reader is not None and not reader.done():\n",
        "        if listener is not None and reader is not None:\n",
    ),
    _mutant(
        "what-came-before-is-not-heard",
        "a listener first gets the messages that arrived before it listened",
        STREAM,
        "        while self._messages:\n            on_message(self._next())\n",
        "",
    ),
    _mutant(
        "sent-at-once-past-the-window",
        "try_write does not send a message that does not fit now",
        STREAM,
        "        if self._is_writing or length > self.room():\n",
        "        if self._is_writing:\n",
    ),
    _mutant(
        "fetches-out-of-turn",
        "a stream has one fetch under way",
        RAFT_SERVICER,
        "        if not self.is_answered.is_set():\n",
        "        if False:\n",
    ),
    _mutant(
        "a-caller-that-went-is-not-named",
        "the node is told when a parked fetch has no caller any more",
        RAFT_SERVICER,
        "        self._servicer.forget(self._token)\n",
        "",
    ),
    _mutant(
        "a-stopping-node-keeps-its-fetches",
        "a stopping node answers its parked fetches",
        RAFT_SERVICER,
        "                caller.context.interrupt(_Stopping())\n",
        "                pass\n",
    ),
    _mutant(
        "a-broken-stream-is-no-failure",
        "a broken stream fails its node's fetch",
        RAFT_TRANSPORT,
        "            if self.is_busy:\n"
        "                self._deliver(RequestFailed(self._peer.node_id, self._correlation_id))\n",
        "",
    ),
    _mutant(
        "commitment-before-the-next-fetch",
        "a follower fetches again before its state machine applies",
        NODE,
        "                if self.core.is_leader:\n                    self._tell_committed()\n",
        "                if True:\n                    self._tell_committed()\n",
    ),
    _mutant(
        "another-leader-before-what-was-committed",
        "committed records are reported before a change of leader",
        NODE,
        "                self._tell_committed()\n                self._listener.on_leader_changed",
        "                self._listener.on_leader_changed",
    ),
)
