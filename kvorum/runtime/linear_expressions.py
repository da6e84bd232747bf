"""Regular expressions whose matching is linear in the text, so that no peer can block a node.

They have RE2's syntax: no look-arounds and no back-references.
"""

from __future__ import annotations

from typing import Any

from kvorum.runtime.errors import KvorumError

PROGRAM_BYTES_MAX = 1 << 20
"""Memory limit of one compiled expression with its cache of states: an expression as short as
`((\\w{99}){99}){9}` would need much."""


class BadExpression(KvorumError):
    """An expression that cannot be used; the message gives the reason, without the expression."""


def compiled(expression: str) -> Any:
    """Compile an expression, as RE2's pattern. Raises BadExpression."""
    try:
        import re2  # imported here: a node without expressions saves three megabytes
    except ImportError as error:
        raise BadExpression(
            "expressions need the package google-re2, which this node's Python lacks: "
            "pip install google-re2"
        ) from error
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PROGRAM_BYTES_MAX
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        told = error.args[0]
        text = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
        raise BadExpression(text) from error
