"""`kvorum log`: segments on disk."""

from __future__ import annotations

import contextlib
import os

import click

from kvorum.client.failures import CommandFailed, warn


@click.group()
def log() -> None:
    """Look into log segments on disk; reads only."""


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--deep-iteration", is_flag=True, help="Print a line for each record too.")
@click.option("--print-data-log", is_flag=True, help="The same, with keys and values.")
@click.option("--index-sanity-check", is_flag=True, help="For indexes: would a start accept them?")
@click.option("--verify-index-only", is_flag=True, help="For indexes: do they agree with the log?")
@click.option("--offsets-decoder", is_flag=True, hidden=True)
@click.option(
    "--transaction-log-decoder", is_flag=True, help="Print records of __transaction_state."
)
def dump(
    paths: tuple[str, ...],
    deep_iteration: bool,
    print_data_log: bool,
    index_sanity_check: bool,
    verify_index_only: bool,
    offsets_decoder: bool,
    transaction_log_decoder: bool,
) -> None:
    """Print the same as kafka-dump-log for PATHS.

    Reads .log, .index, .timeindex, .txnindex, .snapshot (of producers) and leader-epoch-checkpoint
    files. Records of the metadata log are printed as JSON, without secrets. Damage and
    contradictions are reported on stderr, and the exit status is then 1.
    """
    from kvorum.raft.node.control_text import control_text
    from kvorum.runtime.disk import OsDisk
    from kvorum.runtime.errors import KvorumError
    from kvorum.storage.tools.dump import dump_lines
    from kvorum.storage.tools.dump_indexes import Complaints, IndexOptions

    if offsets_decoder:
        raise CommandFailed(
            "--offsets-decoder is not served; kafka-dump-log reads the same files, and"
            " --print-data-log prints the bytes"
        )
    complaints = Complaints()
    for path in paths:
        of_metadata = _metadata_text if print_data_log and _is_metadata(path) else None
        try:
            lines = dump_lines(
                OsDisk(),
                path,
                deep_iteration=deep_iteration,
                print_data_log=print_data_log,
                index_options=IndexOptions(
                    sanity_only=index_sanity_check, verify_only=verify_index_only
                ),
                complaints=complaints,
                control_text=control_text,
                record_text=_transaction_text if transaction_log_decoder else of_metadata,
            )
            for line in lines:
                click.echo(line)
        except KvorumError as error:
            raise CommandFailed(str(error)) from error
    for line in complaints.lines():
        click.echo(line, err=True)
    if complaints.damage:
        raise CommandFailed("; ".join(complaints.damage))
    if complaints.are_faults:
        raise CommandFailed("an index and its log do not agree")


def _is_metadata(path: str) -> bool:
    from kvorum.raft.node.metadata_log import FOLDER_NAME

    return os.path.basename(os.path.dirname(os.path.abspath(path))) == FOLDER_NAME


def _metadata_text(key: bytes, value: bytes | None) -> tuple[str, str]:
    """The record as JSON: as bytes it would show credentials and passwords."""
    from kvorum.metadata.image.record_codec import decode_record
    from kvorum.metadata.inspect.record_rows import record_json

    return "", "<DELETE>" if value is None else record_json(decode_record(value))


def _transaction_text(key: bytes, value: bytes | None) -> tuple[str, str]:
    from kvorum.broker.transactions.core.records import key_text, value_text

    return key_text(key), "<DELETE>" if value is None else value_text(value)


@log.command()
@click.argument(
    "directories", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False)
)
def verify(directories: tuple[str, ...]) -> None:
    """Check all files of the logs in DIRECTORIES, each the folder of one partition.

    Checks every batch and its CRC, the order of offsets and epochs, indexes against batches,
    transaction indexes, producer snapshots, leader epochs. Prints a line for each problem and a
    summary for each folder; the exit status is 1 if there was a problem.

    Use it on folders that no process writes to: while a broker runs on them, its writes and
    deletions look like damage.
    """
    from kvorum.launch.directories.identity import is_locked
    from kvorum.runtime.disk import OsDisk
    from kvorum.storage.tools.verify import verify_log

    is_sound = True
    for given in directories:
        directory = given.rstrip("/") or "/"
        above = os.path.dirname(os.path.abspath(directory))
        with contextlib.suppress(OSError):
            if is_locked(above):
                warn(
                    f"a broker or controller runs on {above}: what it writes or removes meanwhile "
                    f"looks like damage; stop it, or verify a copy of {directory}"
                )
        found = verify_log(OsDisk(), directory)
        for line in (*found.problems, *found.notes):
            click.echo(line)
        is_sound = is_sound and not found.problems
        verdict = f"{len(found.problems)} problems" if found.problems else "sound"
        click.echo(
            f"{directory}: {verdict}; segments={found.segments} batches={found.batches}"
            f" records={found.records} offsets=[{found.start_offset}, {found.end_offset})"
        )
    if not is_sound:
        raise CommandFailed("not all of this is sound; see above")
