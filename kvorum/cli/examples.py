"""Examples at the end of each command's --help. A test parses every one of them."""

from __future__ import annotations

from collections.abc import Mapping

import click

_TEXTS = """
dev --data-dir lab --brokers 3 --background
dev --data-dir lab --port 19092 --secure
dev logs -f broker-101 --data-dir lab
dev restart broker-101 --data-dir lab
dev status --data-dir lab
dev stop --data-dir lab
init cluster --controllers 3 --brokers 3
init cluster --controller 1@10.0.0.1 --broker 101@10.0.0.4 --metrics-port 9404 --secure
init cluster --add broker --host 10.0.0.7
controller --config cluster/controller-1.toml
broker --config cluster/broker-101.toml --set log.retention.hours=24
health -b localhost:9092
health --wait 60
cluster check --restart-safe broker-101
cluster roll --restart-command 'ssh {host} systemctl restart kvorum-{role}'
cluster roll --data-dir lab --dry-run
top
top --once -o json
produce orders paid
produce orders --key-separator : --file orders.txt
produce orders -f json --acks all
consume orders -n 10
consume orders -o -5 --print-key
consume orders --follow --group billing
topics create orders --partitions 6 --replication-factor 3
topics create orders bills --if-not-exists --config cleanup.policy=compact
topics list
topics list 'ord*' --exclude-internal -o name
topics list --under-replicated
topics describe orders bills
topics describe --unavailable
topics delete orders bills --if-exists
topics trim orders --offset 120 -p 1
partitions add orders --partitions 12
partitions elect orders:0
partitions elect --all
partitions reassign topics.json --generate --broker-list 101,102,103
partitions reassign plan.json --execute --throttle 10000000
partitions reassign --list
partitions restore orders:0 --config cluster/broker-101.toml --dry-run
brokers list
brokers describe 101
brokers log-dirs 101
brokers move-replicas 101 orders:3 orders:4 --to /disk2/kvorum --throttle 50000000
brokers move-replicas 101 --from /disk1/kvorum --wait
brokers move-replicas 101 --balance --dry-run
brokers unregister 104
groups list
groups list --state Empty -o name
groups describe billing --members
groups delete billing
groups reset-offsets billing --topic orders --to-earliest
groups reset-offsets billing --all-topics --to-datetime 2026-01-31T12:00:00 --execute
groups delete-offsets billing --topic orders:0
transactions list --state Ongoing
transactions describe pay-1
transactions producers orders --partition 0
transactions abort pay-1
transactions find-hanging --broker-id 101
configs describe --entity topic --name orders --all
configs describe --entity broker --name 101
configs alter --entity topic --name orders --set retention.ms=60000
configs alter --entity topic --name orders --delete retention.ms
acls create --allow-principal alice --producer --topic orders
acls create --allow-principal alice --operation read --topic ord --prefixed
acls list --topic orders --pattern match
acls delete --principal User:alice --dry-run
users create alice --password-file alice.txt > alice.properties
users list
users set-password alice
users delete alice --mechanism SCRAM-SHA-256
tokens create --max-lifetime-ms 86400000
tokens list
tokens renew 7Jx2 --period-ms 3600000
tokens expire 7Jx2 --yes
features describe
features upgrade --feature metadata.version=30 --dry-run
features downgrade --feature metadata.version=29 --dry-run
quorum status
quorum replication
quorum timeline --node 1
quorum add-voter --id 4
quorum remove-voter --id 4 --dry-run
quorum unregister 4
quorum recover --config cluster/controller-1.toml --unsafe
raft record --node 1 --out flight.jsonl
raft replay flight.jsonl
metadata ls /topics
metadata cat /topics/orders/0
metadata tree /topics --depth 2
metadata find orders
metadata diff 100 200
metadata dump --from 100
metadata shell --directory cluster/data/controller-1
metadata export --out out
metadata snapshot --out snapshots
snapshot inspect 00000000000000000100-0000000001.checkpoint
log dump 00000000000000000000.log --print-data-log
log verify data/broker-101/orders-0
certs dev secrets --node broker-101 --user alice
console -b localhost:9092
console --lab lab --allow-changes
chaos run leader-kill
chaos run my.yaml --seed 4 --out run
chaos list
chaos schema
chaos validate my.yaml
chaos replay chaos-runs/RUN
chaos diff chaos-runs/FIRST chaos-runs/SECOND
chaos duel leader-kill
chaos export chaos-runs/RUN --format edn
chaos sim --seed 0 --count 100
tour
tour elections --pause
tour 2 -o json
demo --out demo
lake add chaos-runs/RUN --lake lake
lake list --lake lake
lake compact --lake lake
profile set lab bootstrap_server=10.0.0.1:9092 output=wide
profile use lab
profile list
profile show lab
profile delete lab
completion bash
report chaos-runs/RUN
version
version -o json
"""

TEXTS = tuple(_TEXTS.split("\n")[1:-1])
"""Command lines without the word kvorum."""


def examples_of(path: str) -> list[str]:
    """The examples of a command, such as `topics create`, or of a noun that is one itself."""
    return [text for text in TEXTS if text == path or text.startswith(f"{path} ")]


def add_examples(command: click.Command, path: str) -> None:
    """Put examples at the end of the help of a command and of those below it."""
    commands: Mapping[str, click.Command] = {}
    if isinstance(command, click.Group):
        commands = command.commands
    for name, below in commands.items():
        add_examples(below, f"{path} {name}")
    if not commands or (isinstance(command, click.Group) and command.invoke_without_command):
        own = [text for text in examples_of(path) if _is_of(text, path, commands)]
        lines = "\n".join(f"  kvorum {text}" for text in own)
        command.epilog = f"\b\nExamples:\n{lines}" if own else command.epilog


def _is_of(text: str, path: str, commands: Mapping[str, click.Command]) -> bool:
    """True if the example is of the command itself, and not of one below it."""
    following = text.removeprefix(path).split()
    return not following or following[0] not in commands
