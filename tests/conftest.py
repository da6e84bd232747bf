"""Options of the whole test suite."""


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the outputs of the transcripts in tests/scripts anew instead of comparing",
    )
