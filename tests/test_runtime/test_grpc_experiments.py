"""What is switched off in gRPC is known to the gRPC that is installed."""

from __future__ import annotations

import subprocess
import sys

from runtime.grpc_experiments import EXPERIMENTS

# gRPC complains when it makes its first channel.
PROGRAM = """
import os
import {entry}
import grpc
grpc.insecure_channel("127.0.0.1:1").close()
print(os.environ["GRPC_EXPERIMENTS"])
"""


def run(entry: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(entry=entry)],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )


def test_every_process_of_a_cluster_starts_with_them_and_grpc_knows_them():
    ran = run("kvorum.cli.main")
    assert ran.stdout.strip() == EXPERIMENTS
    assert ran.stderr == ""


def test_grpc_would_complain_of_a_name_it_does_not_know():
    assert "bogus" in run("kvorum.cli.main", GRPC_EXPERIMENTS="-bogus").stderr


def test_what_the_user_has_set_stays():
    ran = run("kvorum.cli.main", GRPC_EXPERIMENTS="-event_engine_dns")
    assert ran.stdout.strip() == "-event_engine_dns"
