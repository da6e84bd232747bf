"""`python -m kvorum` runs the command `kvorum`. Every process of the command line, and every node,
starts with `main`; no other code calls it."""

import sys


def main() -> None:
    """Run the command line of this process."""
    # If hypothesis is installed, kio registers its types with it, which takes a process 80 ms and
    # ten megabytes and leaves a folder in the working directory. An entry of None makes the import
    # fail. It is set here and not at import, since a test that imports this module may need
    # hypothesis.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from kvorum.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
