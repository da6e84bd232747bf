"""`python -m kvorum` is the command `kvorum`. Every process of the command, and every node, begins
here; nothing else imports it."""

import sys

# kio registers its types with hypothesis wherever that is installed, which takes a process 80 ms
# and ten megabytes and leaves a folder where it was started. None is import's word for "not there".
sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]

from kvorum.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
