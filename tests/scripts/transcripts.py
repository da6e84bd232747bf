"""Transcripts: a script runs in a fresh world and must print what it printed before.

A script is a text file of blocks: `#` lines that tell the story, commands, `----`, the output of
the commands, an empty line. `pytest --rewrite` writes the present output; read the difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NOTHING = "ok"


@dataclass
class Block:
    """comments: lines before the commands, empty ones included."""

    comments: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)


def parse(text: str) -> list[Block]:
    blocks = [Block()]
    is_output = False
    for line in text.splitlines():
        if is_output and not line:
            blocks.append(Block())
            is_output = False
        elif is_output:
            blocks[-1].output.append(line)
        elif line == "----":
            is_output = True
        elif not line or line.startswith("#"):
            blocks[-1].comments.append(line)
        else:
            blocks[-1].commands.append(line)
    return [b for b in blocks if b.comments or b.commands]


def render(blocks: list[Block]) -> str:
    parts = []
    for block in blocks:
        lines = [*block.comments, *block.commands]
        if block.commands:
            lines += ["----", *block.output]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def play(text: str, harness: Any) -> str:
    """The script with the present output of its commands. harness: runs a command, returns its
    lines.
    """
    blocks = parse(text)
    for block in blocks:
        shown = [line for command in block.commands for line in harness.run(command)]
        block.output = shown or [NOTHING]
    return render(blocks)


def check(path: Path, harness: Any, *, is_rewritten: bool) -> None:
    """Assert that the script prints what it printed before; with --rewrite, write the present
    output instead.
    """
    before = path.read_text(encoding="utf-8")
    now = play(before, harness)
    if is_rewritten:
        path.write_text(now, encoding="utf-8")
        return
    assert now.splitlines() == before.splitlines()
    assert "UNSAFE" not in now
