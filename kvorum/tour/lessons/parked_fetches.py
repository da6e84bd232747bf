"""Lesson 17."""

from __future__ import annotations

import re
import shlex

from kvorum.tour.lesson import PATIENT, Lesson
from kvorum.tour.picture import bars
from kvorum.tour.stage import Stage
from kvorum.tour.telling import number_after

_CONNECTIONS, _EACH = 100, 500
_PARKED = _CONNECTIONS * _EACH
_SECONDS = 5
_FETCHES = re.compile(r'requests{operation="Fetch"} (\d+)')
_PROGRAM = f"""\
import os, selectors, socket, struct
host, port = os.environ["KVORUM_BOOTSTRAP_SERVER"].split(":")
answers = selectors.DefaultSelector()
for partition in range({_CONNECTIONS + 1}):
    # Fetch v4: from offset 0 on, at least a byte, within 10 minutes
    body = struct.pack(">iiiibih5siiqi", -1, 600_000, 1, 1 << 20, 0, 1,
                       5, b"quiet", 1, partition, 0, 1 << 20)
    request = struct.pack(">ihhih", len(body) + 10, 1, 4, 0, -1) + body
    connection = socket.create_connection((host, int(port)))
    connection.sendall(request * ({_EACH} if partition else 1))
    answers.register(connection, selectors.EVENT_READ, partition)
while True:
    for key, _ in answers.select():
        (size,) = struct.unpack(">i", key.fileobj.recv(4, socket.MSG_WAITALL))
        key.fileobj.recv(size, socket.MSG_WAITALL)
        print("partition", key.data, flush=True)
"""


def show(stage: Stage) -> None:
    port = stage.free_port()
    patient = shlex.join(word for each in PATIENT for word in ("--set", each))
    ports = f"--port {port} --metrics-port {port + 50}"
    stage.run(f"kvorum init nodes --controllers 1 --brokers 1 {ports} {patient}")
    stage.use_brokers(f"127.0.0.1:{port}")
    for role, node in (("controller", "controller-1"), ("broker", "broker-101")):
        start = f"kvorum {role} --config nodes/{node}.toml > {node}.log 2>&1"
        stage.run(f"({start} & echo $! > {node}.pid)")
    stage.wait_for("kvorum health", lambda out: "1 of 1 active" in out)
    stage.run(f"kvorum topics create quiet --partitions {_CONNECTIONS + 1}")
    page = f"curl -s http://127.0.0.1:{port + 51}/metrics | grep ^kvorum_purgatory"
    cpu = "cut -d ' ' -f 14,15 /proc/$(cat broker-101.pid)/stat"
    memory = "grep VmRSS /proc/$(cat broker-101.pid)/status"
    small_kb = number_after("VmRSS", stage.run(memory))
    stage.say("The broker's CPU time, of the user and of the system, in ticks of 10 ms:")
    # First the broker ends the work of the partitions that it has just made.
    idle_ms = _used_ms(stage.run(f"sleep {_SECONDS}; {cpu}; sleep {_SECONDS}; {cpu}"))
    stage.say(
        f"park.py opens a connection for each partition and sends {_EACH} fetches through it, for "
        "partition 0 only one, without waiting for answers. It prints the partition of each answer."
    )
    stage.write("park.py", _PROGRAM)
    stage.run(f"({stage.python} park.py > answers 2>&1 & echo $! > park.pid)")
    stage.wait_for(page, lambda out: _fetches(out) == _PARKED + 1)
    parked_ms = _used_ms(stage.run(f"{cpu}; sleep {_SECONDS}; {cpu}"))
    each = (number_after("VmRSS", stage.run(memory)) - small_kb) * 1024 // _PARKED
    answers = stage.run("cat answers")
    stage.fact(
        f"{_PARKED + 1:,} fetches wait, none was answered. In {_SECONDS} s the broker used "
        f"{parked_ms} ms of CPU; {idle_ms} ms when no fetch was there.",
        not answers and parked_ms <= idle_ms + 50 * _SECONDS,
    )
    stage.fact(f"What they take is memory, {each:,} bytes each.", 0 < each < 10_000)
    stage.run("kvorum produce quiet --partition 0 one")
    answers = stage.wait_for("cat answers", lambda out: out != "")
    left = _fetches(stage.run(page))
    stage.fact(
        f"A record in partition 0 woke the fetch that waited for it, and no other: {left:,} wait.",
        answers == "partition 0\n" and left == _PARKED,
    )
    figures = {"no fetch": idle_ms, f"{_PARKED + 1:,} parked": parked_ms}
    title = f"CPU time of the broker in {_SECONDS} s"
    stage.draw(bars(title, {**figures, "a whole core": 1000 * _SECONDS}, "ms"))


def _fetches(page: str) -> int:
    found = _FETCHES.search(page)
    return -1 if found is None else int(found[1])


def _used_ms(ticks: str) -> int:
    """The CPU time between two lines of ticks."""
    first, last = (sum(map(int, line.split())) for line in ticks.splitlines())
    return (last - first) * 10


LESSON = Lesson(
    number=17,
    name="parked-fetches",
    title="Fifty thousand parked fetches cost no CPU",
    claim=(
        "A consumer at the end of a log need not ask again and again: its fetch waits in the "
        "purgatory, without CPU, until a record of its partition or its deadline wakes it."
    ),
    show=show,
    seen="a long poll: an entry in a table of the broker, and nothing that runs.",
    code="kvorum/broker/purgatory/deadlines.py",
    page="docs/metrics.md",
    try_next="5_000 in place of 600_000 in park.py: 50,000 answers at one deadline",
    controllers=0,
)
