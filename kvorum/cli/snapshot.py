"""`kvorum snapshot`: checkpoint files on disk."""

from __future__ import annotations

import json
from typing import Any

import click

from kvorum.cli.common import plain_output_option
from kvorum.client.failures import CommandFailed
from kvorum.runtime.text import address_text


@click.group()
def snapshot() -> None:
    """Inspect snapshot files on disk; reads only, needs no cluster."""


@snapshot.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--records", "with_records", is_flag=True, help="Print a JSON line for each record too."
)
@plain_output_option
def inspect(file: str, with_records: bool, output: str) -> None:
    """Verify every byte of checkpoint FILE and show its contents.

    With --records and -o json every line of the output is one JSON value, the summary first.
    """
    import asyncio

    from kvorum.metadata.image.record_codec import UnreadableRecord
    from kvorum.runtime.errors import CorruptData

    try:
        # The whole file is checked before the first line is printed, so a damaged file gives no
        # partial output.
        summary = asyncio.run(_summary(file))
    except CorruptData as error:
        raise CommandFailed(str(error)) from error
    except UnreadableRecord as error:
        raise CommandFailed(f"{file}: checksums ok, but {error}") from error
    if output == "json":
        click.echo(json.dumps(summary, indent=None if with_records else 2))
    else:
        _show_summary(summary)
    if with_records:
        asyncio.run(_show_records(file))


async def _summary(path: str) -> dict[str, Any]:
    import os
    from collections import Counter

    from kvorum.metadata.image.snapshot_job import records_in
    from kvorum.runtime.async_disk import OsAsyncDisk
    from kvorum.snapshots.format import VERSION, iter_payloads
    from kvorum.snapshots.store import verify_named

    disk = OsAsyncDisk()
    header = await verify_named(disk, path)
    frames = 0
    by_type: Counter[str] = Counter()
    async for payload in iter_payloads(disk, path):
        frames += 1
        by_type.update(type(record).__name__ for record in records_in(payload))
    return {
        "name": os.path.basename(path),
        "version": VERSION,
        "end_offset": header.end_offset,
        "epoch": header.epoch,
        "timestamp_ms": header.timestamp_ms,
        "kraft_version": header.kraft_version,
        "voters": [
            {"node_id": node_id, "directory_id": directory_id, "host": host, "port": port}
            for node_id, directory_id, host, port in header.voters
        ],
        "frames": frames,
        "records": sum(by_type.values()),
        "records_by_type": dict(sorted(by_type.items())),
        "bytes": await disk.size(path),
        "checksum": "ok",
        "footer": "ok",
    }


def _show_summary(summary: dict[str, Any]) -> None:
    from datetime import UTC, datetime, timedelta

    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=summary["timestamp_ms"])
    lines = {
        "name": summary["name"],
        "version": summary["version"],
        "end offset": summary["end_offset"],
        "epoch": summary["epoch"],
        "timestamp": f"{summary['timestamp_ms']} ({at.isoformat(timespec='milliseconds')})",
    }
    if summary["kraft_version"] or summary["voters"]:
        lines["kraft version"] = summary["kraft_version"]
        lines["voters"] = ", ".join(
            f"{v['node_id']}@{address_text(v['host'], v['port'])}:{v['directory_id']}"
            for v in summary["voters"]
        )
    lines |= {"frames": summary["frames"], "records": summary["records"]}
    lines |= {f"  {name}": count for name, count in summary["records_by_type"].items()}
    lines["bytes"] = summary["bytes"]
    for name, value in lines.items():
        click.echo(f"{name + ':':<24}{value}")
    click.echo("checksum ok, footer ok")


async def _show_records(path: str) -> None:
    from kvorum.metadata.configs.secrets import record_to_dict
    from kvorum.metadata.image.snapshot_job import records_in
    from kvorum.runtime.async_disk import OsAsyncDisk
    from kvorum.snapshots.format import iter_payloads

    async for payload in iter_payloads(OsAsyncDisk(), path):
        for record in records_in(payload):
            line = {"type": type(record).__name__, **record_to_dict(record)}
            click.echo(json.dumps(line, default=_plain))


def _plain(value: bytes) -> str:
    from kvorum.runtime.ids import uuid_text

    return uuid_text(value) if len(value) == 16 else value.hex()
