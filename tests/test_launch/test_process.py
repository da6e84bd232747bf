"""What every node's process does first."""

from __future__ import annotations

import resource
import subprocess
import sys
from functools import partial

SAID = """
import resource
from launch.process import raise_file_limit
raise_file_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_node_may_open_as_many_files_as_the_system_lets_it() -> None:
    # A shell's 1,024 are soon gone: each segment that was read has a file open.
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (256, 512))
    command = [sys.executable, "-c", SAID]
    ended = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["512", "512"]
