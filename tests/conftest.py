"""Options of the whole test suite."""

import os
import signal

import pytest
from hypothesis import HealthCheck, Phase, settings

# No profile of the user changes a test.
os.environ["KVORUM_PROFILES"] = os.devnull
# A shell's background job ignores SIGINT, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
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


#: Modules of `make test-long`, the slowest first: Spark, JVMs against both systems, browsers, whole
#: experiments, wheels, long stories of voters, certificates and upgrades under load. They need
#: minutes each; what they cover, others touch in `make test`.
LONG = (
    "tests/test_chaos/test_short_experiments_two.py",
    "tests/live/test_tour.py",
    "tests/test_chaos/test_short_experiments_one.py",
    "tests/live/test_wheel.py",
    "tests/test_analytics/test_kafka_source.py",
    "tests/test_analytics/test_standalone.py",
    "tests/test_analytics/test_live_events.py",
    "tests/test_chaos/test_live_disk_and_clock_faults.py",
    "tests/clients/test_families.py",
    "tests/clients/test_config_clients.py",
    "tests/clients/test_java_directory_moves.py",
    "tests/test_launch/test_monitoring_live.py",
    "tests/clients/test_group_migration_java.py",
    "tests/live/test_console_page.py",
    "tests/test_analytics/test_kafka_source_crash.py",
    "tests/clients/test_group_java.py",
    "tests/clients/test_java_tools.py",
    "tests/clients/test_bootstrap_controller.py",
    "tests/test_cli/test_reset_offsets.py",
    "tests/test_chaos/test_cluster_for_tests.py",
    "tests/clients/test_streams.py",
    "tests/clients/test_verifiable_clients.py",
    "tests/clients/test_connect.py",
    "tests/clients/test_mirror_maker.py",
    "tests/clients/test_transactional_copy.py",
    "tests/live/test_voters.py",
    "tests/live/test_secure_cluster.py",
    "tests/live/test_rolling_upgrade.py",
    "tests/clients/test_group_migration.py",
    "tests/clients/test_queues.py",
    "tests/clients/test_logins.py",
    "tests/test_chaos/test_secure_lab.py",
    "tests/test_chaos/test_kafka_system.py",
    "tests/clients/test_group_consumer_protocol_java.py",
    "tests/live/test_console_secure.py",
    "tests/clients/test_acl_tools.py",
    "tests/clients/test_java_partitions.py",
    "tests/clients/test_token_tools.py",
    "tests/test_cli/test_against_kafka.py",
    "tests/test_chaos/test_packet_loss.py",
    "tests/clients/test_java_log_dirs.py",
    "tests/clients/test_java_release.py",
    "tests/test_analytics/test_kafka_source_failover.py",
)

#: The other modules of live tests that take more than ten seconds. The rest follow, so that the
#: workers come to their ends at about the same time.
SLOWEST_FIRST = (
    "tests/test_cli/test_produce_consume.py",
    "tests/test_cli/test_share_consume.py",
    "tests/clients/test_sasl_clients.py",
    "tests/clients/test_oauthbearer_clients.py",
    "tests/test_chaos/test_live_run.py",
    "tests/test_chaos/test_share_group_load.py",
    "tests/live/test_no_quorum.py",
    "tests/live/test_console.py",
    "tests/clients/test_transactions.py",
    "tests/live/test_partitions.py",
    "tests/live/test_inspection.py",
    "tests/live/test_log_directories.py",
    "tests/live/test_directory_moves.py",
    "tests/test_broker/test_directory_move_crashes.py",
    "tests/clients/test_tls_clients.py",
    "tests/live/test_roll.py",
    "tests/live/test_bad_peers.py",
    "tests/live/test_dev.py",
    "tests/live/test_features.py",
    "tests/live/test_recover.py",
    "tests/live/test_console_share_groups.py",
    "tests/live/test_trimmed_log.py",
    "tests/live/test_dev_secure.py",
)


def pytest_collection_modifyitems(items):
    order = {module: place for place, module in enumerate((*LONG, *SLOWEST_FIRST))}
    for item in items:
        if item.nodeid.partition("::")[0] in LONG and item.get_closest_marker("live"):
            item.add_marker(pytest.mark.long)
    items.sort(key=lambda item: order.get(item.nodeid.partition("::")[0], len(order)))
