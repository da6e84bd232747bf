"""Seeds of the quorum's simulation: safe, live, and the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from chaos.sim.quorum import QuorumScenario, run_seed, scenario_of

# Those among the first that end within a second or so.
SEEDS = (*range(7), 10, 11, *range(13, 27), 28, 29)
ROUGH = QuorumScenario(
    voters=3, observers=1, duration_ms=8_000, delay_ms_max=30, loss=0.1, duplication=0.05,
    fsync_ms_max=20, fault_interval_ms=300, crash=0.5, partition=0.3, pause=0.1,
)  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_seed_is_safe_and_converges(seed):
    outcome = run_seed(seed)
    assert outcome.seed == seed and outcome.epochs >= 1
    assert outcome.committed >= outcome.acknowledged


def test_seeds_differ_in_kind_and_do_real_work():
    kinds = {scenario_of(seed).voters for seed in SEEDS}
    assert kinds == {1, 3, 5}
    assert any(scenario_of(seed).crash and scenario_of(seed).loss for seed in SEEDS)


@pytest.mark.parametrize("seed", [100, 101, 102])
def test_rough_world_changes_leaders_and_still_acknowledges(seed):
    outcome = run_seed(seed, ROUGH)
    assert outcome.epochs > 1 and outcome.acknowledged > 0


def test_same_seed_gives_the_same_digest_in_every_process():
    script = (
        "from chaos.sim.quorum import run_seed\n"
        "print([run_seed(seed).digest for seed in (3, 6, 10)])"
    )

    def digests(hash_seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=110,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
        )
        return done.stdout

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(digests, ("1", "2"))
    assert first == second
    assert len(set(first.strip("[]\n").split(", "))) == 3
