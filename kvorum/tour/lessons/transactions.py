"""Lesson 14."""

from __future__ import annotations

from kvorum.tour.lesson import Lesson
from kvorum.tour.picture import logs
from kvorum.tour.stage import Stage

_SHOWN = "grep -o 'payload: .*\\|endTxnMarker: [A-Z]*'"
_PROGRAM = """\
import os, sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": os.environ["KVORUM_BOOTSTRAP_SERVER"],
                     "transactional.id": "shop"})
producer.init_transactions()
producer.begin_transaction()
producer.produce("payments", sys.argv[1], partition=0)
producer.flush()
if sys.argv[2] == "crash":
    os._exit(1)
getattr(producer, f"{sys.argv[2]}_transaction")()
"""


def show(stage: Stage) -> None:
    stage.run("kvorum topics create payments --partitions 1")
    stage.say("pay.py sends one record in a transaction, and then commits it, aborts it, or dies:")
    stage.write("pay.py", _PROGRAM)
    stage.run(f"{stage.python} pay.py paid-1 commit")
    stage.run(f"{stage.python} pay.py never-2 abort")
    stage.run_in_vain(f"{stage.python} pay.py open-3 crash")
    log = "lab/broker-101/payments-0/00000000000000000000.log"
    dumped = stage.run(f"kvorum log dump {log} --print-data-log")
    stage.fact(
        "Each record has its producer's id, epoch and sequence number, and each transaction that "
        "ended a marker in the partition.",
        "endTxnMarker: COMMIT" in dumped and "endTxnMarker: ABORT" in dumped,
    )
    everything = stage.run("kvorum consume payments --isolation read_uncommitted")
    stage.fact("The log has all three records.", "never-2" in everything and "open-3" in everything)
    committed = stage.run("kvorum consume payments")
    stage.fact(
        "read_committed gets the first alone. (It is the default here, not in Kafka's clients.)",
        "paid-1" in committed and "never-2" not in committed,
    )
    stage.say(
        "open-3 is in a transaction whose producer is dead. Readers stop before it, at the last "
        "stable offset, even for records that are in no transaction:"
    )
    stage.run("kvorum produce payments plain-4")
    held = stage.run("kvorum consume payments")
    stage.fact("plain-4 waits behind it.", "plain-4" not in held)
    stage.say(
        "A new producer with the same transactional.id fences the dead one, and aborts. Without "
        "one the coordinator would, after transaction.timeout.ms."
    )
    stage.run(f"{stage.python} pay.py paid-5 commit")
    read = stage.wait_for("kvorum consume payments", lambda out: "paid-5" in out)
    stage.fact("Now plain-4 and paid-5 are read, open-3 never.",
               "plain-4" in read and "open-3" not in read)  # fmt: skip
    found = stage.run(f"kvorum log dump {log} --print-data-log | {_SHOWN}").split()[1::2]
    marks = ((found.index("open-3"), "LSO while open-3 is open"), (len(found), "LSO at the end"))
    outs = {"read": committed.split(), "later": read.split(), "log": found}
    rows = {
        name: [each.partition("-")[0] if each in out else "" for each in found]
        for name, out in outs.items()
    }
    title = "What readers of committed records got, and the log with its markers"
    stage.draw(logs(title, rows, str.isupper, marks))


LESSON = Lesson(
    number=14,
    name="transactions",
    title="Transactions: markers and the last stable offset",
    claim=(
        "A transaction is records in the log like any others, and a marker behind them; readers "
        "of committed records leave out what was aborted, and stop where one is open."
    ),
    show=show,
    seen="that nothing is taken out of the log: readers are told what counts.",
    code="kvorum/broker/transactions",
    page="docs/protocol/transactions.md",
    try_next="kvorum transactions describe shop",
)
