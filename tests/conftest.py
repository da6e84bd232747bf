"""Options of the whole test suite."""

from hypothesis import HealthCheck, Phase, settings

# No test objects to elapsed time: of a loaded machine it says nothing about the code.
TIMELESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("timeless", TIMELESS)
settings.load_profile("timeless")
# For `make mutants`: whether anything objects is the question, not the smallest example.
settings.register_profile("mutants", TIMELESS, phases=[Phase.explicit, Phase.reuse, Phase.generate])


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the outputs of the transcripts in tests/scripts anew instead of comparing",
    )
