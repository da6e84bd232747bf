"""`kvorum ARGUMENTS` in this process."""

from __future__ import annotations

import contextlib
import io
import sys

from kvorum.cli.main import main


def kvorum(*arguments: object) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)."""
    out, error = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["kvorum", *map(str, arguments)]
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = before
    return code, out.getvalue(), error.getvalue()
