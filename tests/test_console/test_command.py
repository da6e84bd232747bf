"""The command itself: what it imports, and what it says without its packages."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kvorum.client.failures import CommandFailed
from kvorum.console.server import listen
from tests.tree import ROOT


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_help_imports_no_server():
    done = run(
        "import sys\n"
        "from kvorum.cli.main import cli\n"
        "for words in (['--help'], ['console', '--help']):\n"
        "    assert cli.main(words, standalone_mode=False) == 0\n"
        "print(sorted({'starlette', 'uvicorn', 'grpc', 'kio'} & set(sys.modules)))\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--allow-changes" in done.stdout


@pytest.mark.parametrize("package", ["uvicorn", "starlette"])
def test_missing_package_is_named_with_the_extra_that_brings_it(package):
    done = run(
        f"import sys; sys.modules[{package!r}] = None; sys.argv = ['kvorum', 'console']\n"
        "from kvorum.__main__ import main; main()\n"
    )
    assert done.returncode == 1
    assert done.stderr == f"kvorum: this needs {package}: pip install 'kvorum[web]'\n"
    assert done.stdout == ""


def test_an_address_of_another_machine_is_the_fault_of_host_and_not_of_port():
    with pytest.raises(
        CommandFailed, match=r"192\.0\.2\.1 is no address of this machine"
    ) as refused:
        listen("192.0.2.1", 0)
    assert "--host" in str(refused.value) and "--port" not in str(refused.value)
