"""The metadata shell without its terminal: a line in, lines out.

It keeps the user's position: a folder, and an offset or the end. It never writes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from itertools import chain

from kvorum.metadata.image.image import ClusterImage
from kvorum.metadata.inspect.history import MetadataHistory
from kvorum.metadata.inspect.record_rows import json_line
from kvorum.metadata.inspect.tree import (
    Folder,
    NoSuchPath,
    expanded,
    names_in,
    parts_of,
    resolve,
    root,
)
from kvorum.metadata.inspect.tree_queries import (
    complete,
    difference,
    difference_line,
    find,
    found_line,
    tree_lines,
)
from kvorum.runtime.errors import KvorumError
from kvorum.runtime.text import whole_number

HELP = {
    "ls": "ls [PATH]                          names in a folder",
    "cat": "cat [PATH]                         all that lies there, as JSON",
    "tree": "tree [PATH] [--depth N]            all that lies there, a line each",
    "find": "find PATTERN [--value TEXT]        paths below here: *, ?, [...] in a name, ** names",
    "diff": "diff N [M]                         what differs from offset N to M, or to here",
    "dump": "dump [FROM [TO]]                   records of the log, a JSON line each",
    "cd": "cd [PATH]                          stand in another folder",
    "pwd": "pwd                                where you stand",
    "at": "at [N | end]                       stand at an offset; at the end, which moves on",
    "refresh": "refresh                            read the source again",
    "help": "help                               this",
    "exit": "exit                               end; so do quit and Ctrl-D",
}
_COMMANDS = (*HELP, "quit")
_PATH_COMMANDS = frozenset({"ls", "cat", "tree", "find", "cd"})


_QUOTED = re.compile(r"""[\s'"\\#]""")
"""Characters that need a backslash in a word of the shell."""


class ShellError(KvorumError):
    """An unknown command or a wrong use of one; the message explains the use."""


class Shell:
    """One session. Every method raises what the source raises.

    read: reads the source from the beginning.
    read_on: reads what has been added since; None if the source does not grow.
    """

    def __init__(
        self,
        read: Callable[[], MetadataHistory],
        read_on: Callable[[MetadataHistory], MetadataHistory] | None = None,
        *,
        at_offset: int | None = None,
    ) -> None:
        self._read = read
        self._read_on = read_on
        self.history = read()
        self.at_offset = at_offset
        self._image = self.history.image_at(at_offset)
        self._folder = "/"
        self.is_over = False

    @property
    def prompt(self) -> str:
        place = "" if self.at_offset is None else f"@{self.at_offset}"
        return f"kvorum{place}:{self._folder}> "

    def run(self, line: str) -> Iterator[str]:
        """The output for one line. Raises ShellError, NoSuchPath, OffsetNotHeld."""
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise ShellError(f"{line.strip()!r}: {error}") from error
        if not words:
            return iter(())
        name, arguments = words[0], words[1:]
        command = _RUN.get(name)
        if command is None:
            raise ShellError(f"no such command: {name!r}; help lists them")
        self._follow()
        return command(self, arguments)

    def complete(self, line: str) -> list[str]:
        """The completions of a line's last word: commands, or paths; folders end with /."""
        words = line.split(" ")
        if len(words) == 1:
            return [f"{name} " for name in _COMMANDS if name.startswith(words[0])]
        if words[0] == "help":
            return [name for name in HELP if name.startswith(words[-1])]
        if words[0] not in _PATH_COMMANDS:
            return []
        try:
            found = complete(self._root(), words[-1], start=self._folder)
            return [_QUOTED.sub(r"\\\g<0>", path) for path in found]
        except NoSuchPath:
            return []

    # One method for each command.

    def _ls(self, arguments: list[str]) -> Iterator[str]:
        path = self._path(_at_most_one("ls", arguments))
        node = resolve(self._root(), path)
        return iter(names_in(node) if isinstance(node, Folder) else [path.rpartition("/")[2]])

    def _cat(self, arguments: list[str]) -> Iterator[str]:
        node = resolve(self._root(), self._path(_at_most_one("cat", arguments)))
        return iter([json.dumps(expanded(node), indent=2)])

    def _tree(self, arguments: list[str]) -> Iterator[str]:
        paths, depth = _with_option("tree", arguments, "--depth")
        depth_max = None if depth is None else _number("tree", depth)
        if depth_max == 0:
            raise _wrong_use("tree")
        node = resolve(self._root(), self._path(_at_most_one("tree", paths)))
        return tree_lines(node, depth_max)

    def _find(self, arguments: list[str]) -> Iterator[str]:
        patterns, value = _with_option("find", arguments, "--value")
        if len(patterns) != 1:
            raise _wrong_use("find")
        pattern = patterns[0]
        start = "/" if pattern.startswith("/") else self._folder
        found = find(self._root(), pattern, start=start, value_text=value)
        return (found_line(path, leaf, is_folder=folder) for path, leaf, folder in found)

    def _diff(self, arguments: list[str]) -> Iterator[str]:
        if not 1 <= len(arguments) <= 2:
            raise _wrong_use("diff")
        before = self.history.image_at(_number("diff", arguments[0]))
        after = self._image
        if len(arguments) == 2:
            after = self.history.image_at(_number("diff", arguments[1]))
        return map(difference_line, difference(root(before), root(after)))

    def _dump(self, arguments: list[str]) -> Iterator[str]:
        if len(arguments) > 2:
            raise _wrong_use("dump")
        history = self.history
        numbers = [_number("dump", argument) for argument in arguments]
        start = numbers[0] if numbers else history.log_start_offset
        stop = numbers[1] if len(numbers) > 1 else self._image.end_offset
        history.check_log_range(start, stop)
        return map(json_line, history.entries(start, stop))

    def _cd(self, arguments: list[str]) -> Iterator[str]:
        path = self._path(_at_most_one("cd", arguments)) if arguments else "/"
        if not isinstance(resolve(self._root(), path), Folder):
            raise ShellError(f"{path} is a value; cat shows it")
        self._folder = path
        return iter(())

    def _pwd(self, arguments: list[str]) -> Iterator[str]:
        if arguments:
            raise _wrong_use("pwd")
        return iter([self._folder])

    def _at(self, arguments: list[str]) -> Iterator[str]:
        word = _at_most_one("at", arguments)
        if word == "end":
            self._stand(self.history.image_at(), None)
        elif word:
            offset = _number("at", word)
            self._stand(self.history.image_at(offset), offset)
        image, history = self._image, self.history
        return iter(
            [
                f"at offset {image.end_offset}, epoch {image.epoch}; {history.name} reaches "
                f"{history.first_offset} to {history.end_offset}"
            ]
        )

    def _refresh(self, arguments: list[str]) -> Iterator[str]:
        if arguments:
            raise _wrong_use("refresh")
        history = self._read()
        self._stand(history.image_at(self.at_offset), self.at_offset)
        self.history = history
        return chain(self.history.notes, self._at([]))

    def _help(self, arguments: list[str]) -> Iterator[str]:
        return iter([HELP[name] for name in arguments if name in HELP] or HELP.values())

    def _exit(self, arguments: list[str]) -> Iterator[str]:
        if arguments:
            raise _wrong_use("exit")
        self.is_over = True
        return iter(())

    # Helpers.

    def _follow(self) -> None:
        """Read what has been added since the last command; a chosen offset stays."""
        if self._read_on is None or self.at_offset is not None:
            return
        before, history = self.history, self._read_on(self.history)
        if history.first_offset == before.first_offset:
            self._image = history.advance(self._image, history.end_offset)
        else:
            self._image = history.image_at()
        self.history = history

    def _stand(self, image: ClusterImage, at_offset: int | None) -> None:
        self._image, self.at_offset = image, at_offset

    def _root(self) -> Folder:
        return root(self._image)

    def _path(self, text: str) -> str:
        whole = text if text.startswith("/") else f"{self._folder}/{text}"
        return "/" + "/".join(parts_of(whole))


def _wrong_use(name: str) -> ShellError:
    return ShellError(f"usage: {HELP[name]}")


def _at_most_one(name: str, arguments: list[str]) -> str:
    if len(arguments) > 1:
        raise _wrong_use(name)
    return arguments[0] if arguments else ""


def _with_option(name: str, arguments: list[str], option: str) -> tuple[list[str], str | None]:
    """The arguments without an option and its value, and that value."""
    if option not in arguments:
        return arguments, None
    at = arguments.index(option)
    if at + 1 == len(arguments):
        raise _wrong_use(name)
    return arguments[:at] + arguments[at + 2 :], arguments[at + 1]


def _number(name: str, text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise _wrong_use(name)
    return number


_RUN: dict[str, Callable[[Shell, list[str]], Iterator[str]]] = {
    "ls": Shell._ls,
    "cat": Shell._cat,
    "tree": Shell._tree,
    "find": Shell._find,
    "diff": Shell._diff,
    "dump": Shell._dump,
    "cd": Shell._cd,
    "pwd": Shell._pwd,
    "at": Shell._at,
    "refresh": Shell._refresh,
    "help": Shell._help,
    "exit": Shell._exit,
    "quit": Shell._exit,
}
