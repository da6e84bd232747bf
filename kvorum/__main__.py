"""`python -m kvorum` is the command `kvorum`. Every process of the command, and every node, begins
with `main`; nothing else calls it."""

import sys


def main() -> None:
    """Run the command line of this process."""
    # kio registers its types with hypothesis wherever that is installed, which takes a process
    # 80 ms and ten megabytes and leaves a folder where it was started. None is import's word for
    # "not there". Not when this module is imported: who imports it may want to test something.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from kvorum.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
