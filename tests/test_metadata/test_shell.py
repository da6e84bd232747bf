"""The shell as transcripts: input after `>`, then the output."""

import dataclasses
import random
import shlex

import pytest

from kvorum.metadata.image.image import EMPTY_IMAGE
from kvorum.metadata.image.persistent_map import Map
from kvorum.metadata.image.records import Config, Partition, PartitionChange, Topic
from kvorum.metadata.inspect.history import MetadataCopy, OffsetNotHeld, history_of
from kvorum.metadata.inspect.shell import HELP, Shell, ShellError
from kvorum.metadata.inspect.tree import NoSuchPath, root
from kvorum.runtime.errors import KvorumError
from tests.test_metadata.folders import batches_of, replayed, snapshot_bytes

ORDERS = b"o" * 16
RECORDS = [
    None,
    Topic("orders", ORDERS),
    Partition(ORDERS, 0, (1, 2), (1, 2), 1),
    Partition(ORDERS, 1, (2, 1), (2, 1), 2),
    Config(2, "orders", "retention.ms", "60000"),
    PartitionChange(ORDERS, 0, isr=(2,), leader=2),
]

TRANSCRIPT = """
kvorum:/> pwd
/
kvorum:/> cd topics
kvorum:/topics> ls
orders/
kvorum:/topics> ls orders
id
0/
1/
kvorum:/topics> cd orders/0
kvorum:/topics/orders/0> ls isr
isr
kvorum:/topics/orders/0> cat leader
2
kvorum:/topics/orders/0> tree /configs
topic/
  orders/
    retention.ms = 60000
kvorum:/topics/orders/0> tree ../.. --depth 1
orders/
kvorum:/topics/orders/0> cd ..
kvorum:/topics/orders> find leader
/topics/orders/0/leader = 2
/topics/orders/1/leader = 2
kvorum:/topics/orders> find * --value 60000
kvorum:/topics/orders> find /** --value 60000
/configs/topic/orders/retention.ms = 60000
kvorum:/topics/orders> at 4
at offset 4, epoch 1; the cluster reaches 0 to 6
kvorum@4:/topics/orders> cat 0/isr
[
  1,
  2
]
kvorum@4:/topics/orders> diff 5
- /configs/topic {"orders": {"retention.ms": "60000"}}
kvorum@4:/topics/orders> diff 5 6
~ /topics/orders/0/isr: [1, 2] -> [2]
~ /topics/orders/0/leader: 1 -> 2
~ /topics/orders/0/leader_epoch: 0 -> 1
~ /topics/orders/0/partition_epoch: 0 -> 1
kvorum@4:/topics/orders> dump 4 5
{"offset": 4, "epoch": 1, "timestamp_ms": 1003, "type": "Config", "version": 0, "data": {"resource_type": 2, "resource_name": "orders", "name": "retention.ms", "value": "60000"}}
kvorum@4:/topics/orders> at 1
at offset 1, epoch 1; the cluster reaches 0 to 6
kvorum@1:/topics/orders> ls
! no such path in the metadata: /topics/orders
kvorum@1:/topics/orders> at 9
! the cluster has no image at offset 9: it reaches 0 to 6
kvorum@1:/topics/orders> at end
at offset 6, epoch 1; the cluster reaches 0 to 6
kvorum:/topics/orders> cd id
! /topics/orders/id is a value; cat shows it
kvorum:/topics/orders> make
! no such command: 'make'; help lists them
kvorum:/topics/orders> tree --depth
! usage: tree [PATH] [--depth N]            all that lies there, a line each
kvorum:/topics/orders> cat 'unfinished
! "cat 'unfinished": No closing quotation
kvorum:/topics/orders> # a word to the reader
kvorum:/topics/orders> cd
kvorum:/> help pwd
pwd                                where you stand
kvorum:/> exit
"""  # noqa: E501


def history(records=RECORDS, start=0):
    batches = batches_of(records, random.Random(3), start=start)
    return history_of(MetadataCopy(records=b"".join(batches)), name="the cluster")


def test_a_session_reads_as_its_transcript():
    shell = Shell(history)
    said = []
    typed = [line.partition("> ")[2] for line in TRANSCRIPT.splitlines() if line.startswith("kvo")]
    for line in typed:
        said.append(f"{shell.prompt}{line}")
        try:
            answer = "\n".join(shell.run(line))
        except KvorumError as error:
            answer = f"! {error}"
        said += answer.splitlines()
    assert said == TRANSCRIPT.strip().splitlines()
    assert shell.is_over


def test_session_follows_a_source_that_grows_unless_it_stands_at_an_offset():
    more = [*RECORDS, Config(2, "orders", "retention.ms", "7"), Topic("new", b"n" * 16)]
    reads = []

    def read_on(held):
        reads.append(held.end_offset)
        late = batches_of(more, random.Random(3), start=held.end_offset)
        return held.extended(MetadataCopy(records=b"".join(late)))

    shell = Shell(history, read_on)
    assert list(shell.run("ls /topics")) == ["new/", "orders/"]
    assert list(shell.run("cat /configs/topic/orders/retention.ms")) == ['"7"']
    list(shell.run("at 5"))
    assert reads == [6, 8, 8]
    assert list(shell.run("ls /topics")) == ["orders/"]
    assert reads == [6, 8, 8]
    assert shell.history.image_at() == replayed(more, len(more))


def test_session_goes_on_behind_a_log_that_was_trimmed():
    more = [*RECORDS, Topic("new", b"n" * 16)]
    copy = MetadataCopy(snapshot=snapshot_bytes(replayed(more, 7)))
    shell = Shell(history, lambda held: held.extended(copy))
    assert list(shell.run("ls /topics")) == ["new/", "orders/"]
    with pytest.raises(OffsetNotHeld, match="reaches 7"):
        list(shell.run("at 3"))


def test_refresh_reads_the_source_again():
    states = [history(RECORDS[:3]), history()]
    shell = Shell(lambda: states.pop(0))
    assert list(shell.run("cat /topics/orders/0/leader")) == ["1"]
    assert next(shell.run("refresh")).startswith("at offset 6,")
    assert list(shell.run("cat /topics/orders/0/leader")) == ["2"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", [f"{name} " for name in (*HELP, "quit")]),
        ("c", ["cat ", "cd "]),
        ("cd /t", ["/topics/", "/topics_by_id/"]),
        ("cd t", ["topics/", "topics_by_id/"]),
        ("ls /topics/orders/", ["/topics/orders/id", "/topics/orders/0/", "/topics/orders/1/"]),
        (
            "cat topics/orders/0/le",
            [f"topics/orders/0/leader{more}" for more in ("", "_epoch", "_recovery_state")],
        ),
        ("cat /nowhere/x", []),
        ("cat /topics/orders/id/x", []),
        ("help p", ["pwd"]),
        ("at ", []),
    ],
)
def test_tab_offers_what_the_last_word_may_become(line, found):
    assert Shell(history).complete(line) == found


def test_completion_looks_from_where_the_user_stands():
    shell = Shell(history)
    list(shell.run("cd /topics/orders"))
    assert shell.complete("cat ") == ["id", "0/", "1/"]
    assert shell.complete("cat ../o") == ["../orders/"]
    list(shell.run("at 1"))
    assert shell.complete("cat ") == []


def test_tab_offers_names_with_blanks_and_quotes_so_that_the_shell_reads_them():
    image = dataclasses.replace(
        EMPTY_IMAGE,
        client_quotas=Map({(("user", name),): Map({"rate": 1.0}) for name in ("al ice", "o'neil")}),
    )
    shell = Shell(history)
    shell._root = lambda: root(image)
    offered = shell.complete("cat /client_quotas/user=")
    assert offered == [r"/client_quotas/user=al\ ice/", r"/client_quotas/user=o\'neil/"]
    assert [shlex.split(path) for path in offered] == [
        ["/client_quotas/user=al ice/"], ["/client_quotas/user=o'neil/"],
    ]  # fmt: skip


@pytest.mark.parametrize("line", ["ls a b", "at x", "diff", "diff 1 2 3", "dump 1 2 3", "pwd x",
                                  "find", "find a --value", "exit now", "tree --depth 0",
                                  "refresh x", "cd a b"])  # fmt: skip
def test_wrong_use_says_how(line):
    with pytest.raises(ShellError, match=f"^usage: {line.split()[0]} "):
        list(Shell(history).run(line))


def test_a_path_that_is_gone_is_refused():
    with pytest.raises(NoSuchPath):
        list(Shell(history).run("ls /topics/gone"))
