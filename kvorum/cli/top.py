"""`kvorum top`: a cluster's quorum, brokers, topics and groups, with what they do a second."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from kvorum.cli.common import broker_addresses, cluster_options, is_structured, show
from kvorum.cli.watch import live

if TYPE_CHECKING:
    from kvorum.cli.top_view import Row, Sample, View

_LAST = "kvorum.cli.top.last"
_PAUSE_S = 1.0
_BROKERS = ["broker_id", "state", "leaders", "replicas", "out_of_sync", "size_bytes", "bytes_per_s"]
_TOPICS = [
    "topic", "partitions", "offline", "under_replicated", "end_offsets", "records_per_s",
]  # fmt: skip
_GROUPS = ["group", "state", "partitions", "lag", "lag_change", "records_per_s"]
_NUMBERS = ("size_bytes", "bytes_per_s", "end_offsets", "records_per_s", "lag", "lag_change")


@click.command()
@click.option(
    "--rows", type=click.IntRange(min=1), default=10, show_default=True,
    help="Topics and groups shown.",
)  # fmt: skip
@live
@cluster_options
def top(rows: int, **options: Any) -> None:
    """What the cluster does: topics by records a second, groups by lag, disks by growth.

    On a terminal it is renewed until Ctrl-C; --once, or another output, shows one answer, whose
    rates are those of a second.
    """
    addresses = broker_addresses(options, "controllers have no records")

    from kvorum.cli.top_sample import take_sample
    from kvorum.cli.top_view import view_of
    from kvorum.client.cluster.broker_backend import BrokerBackend
    from kvorum.client.cluster.brokers import Brokers

    context = click.get_current_context()
    backend = BrokerBackend(addresses, options["timeout"])
    context.call_on_close(backend.close)
    brokers = Brokers(addresses, options["timeout"])
    context.call_on_close(brokers.close)
    before: Sample | None = context.meta.get(_LAST)
    if before is None:
        before = take_sample(backend, brokers)
        time.sleep(_PAUSE_S)
    now = take_sample(backend, brokers)
    context.meta[_LAST] = now
    view = view_of(before, now)
    if is_structured(options["output"]):
        show(options["output"], asdict(view))
    else:
        _show_tables(view, rows)


def _show_tables(view: View, rows: int) -> None:
    from kvorum.cli.top_view import short

    quorum = view.quorum
    if quorum["leader_id"] is None:
        click.echo(f"quorum: no leader: {quorum['problem']}")
    else:
        click.echo(
            f"quorum: leader {quorum['leader_id']}, epoch {quorum['leader_epoch']}, "
            f"{quorum['voters']} voters ({quorum['lagging_voters']} lagging), "
            f"high watermark {quorum['high_watermark']}, "
            f"{short(quorum['records_per_s'])} records a second"
        )
    for table, columns, limit in (
        (view.brokers, _BROKERS, len(view.brokers)),
        (view.topics, _TOPICS, rows),
        (view.groups, _GROUPS, rows),
    ):
        click.echo()
        show("table", [_shortened(row) for row in table[:limit]], columns)
        if len(table) > limit:
            click.echo(f"({len(table) - limit} more: --rows)")


def _shortened(row: Row) -> Row:
    from kvorum.cli.top_view import short

    return {key: short(value) if key in _NUMBERS else value for key, value in row.items()}
