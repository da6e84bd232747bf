"""Options of the whole test suite."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

# No profile of the user changes a test.
os.environ["KVORUM_PROFILES"] = os.devnull
# Hypothesis has no deadline: on a loaded machine, elapsed time says nothing about the code.
TIMELESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("timeless", TIMELESS)
settings.load_profile("timeless")
# For `make mutants`, which asks only if a test fails: no failing example is shrunk.
settings.register_profile("mutants", TIMELESS, phases=[Phase.explicit, Phase.reuse, Phase.generate])


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the outputs of the transcripts in tests/scripts anew instead of comparing",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """`-n auto`: three workers for two cores, because tests of brokers wait part of their time."""
    return (os.cpu_count() or 1) * 3 // 2


#: The modules of live tests that take longest, each from ten seconds to two minutes. The others
#: follow them, so that two workers come to their ends at about the same time.
SLOWEST_FIRST = (
    "tests/live/test_wheel.py",
    "tests/test_chaos/test_short_experiments_one.py",
    "tests/test_chaos/test_short_experiments_two.py",
    "tests/test_analytics/test_kafka_source.py",
    "tests/test_chaos/test_live_disk_and_clock_faults.py",
    "tests/test_analytics/test_standalone.py",
    "tests/clients/test_families.py",
    "tests/clients/test_group_migration_java.py",
    "tests/test_analytics/test_kafka_source_crash.py",
    "tests/test_chaos/test_packet_loss.py",
    "tests/live/test_partitions.py",
    "tests/clients/test_group_java.py",
    "tests/clients/test_config_clients.py",
    "tests/test_chaos/test_kafka_system.py",
    "tests/test_cli/test_against_kafka.py",
    "tests/live/test_voters.py",
    "tests/test_chaos/test_live_run.py",
    "tests/test_cli/test_produce_consume.py",
    "tests/test_cli/test_reset_offsets.py",
    "tests/clients/test_transactional_copy.py",
    "tests/clients/test_transactions.py",
    "tests/live/test_damaged_leader.py",
    "tests/live/test_log_directories.py",
    "tests/clients/test_group_migration.py",
    "tests/live/test_no_quorum.py",
    "tests/clients/test_group_consumer_protocol_java.py",
    "tests/clients/test_group_librdkafka.py",
)


def pytest_collection_modifyitems(items):
    order = {module: place for place, module in enumerate(SLOWEST_FIRST)}
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(order)))
