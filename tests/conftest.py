"""Options of the whole test suite."""

from hypothesis import Phase, settings

# For `make mutants`: whether anything objects is the question, not the smallest example.
settings.register_profile("mutants", phases=[Phase.explicit, Phase.reuse, Phase.generate])


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the outputs of the transcripts in tests/scripts anew instead of comparing",
    )
