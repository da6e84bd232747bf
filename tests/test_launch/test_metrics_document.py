"""docs/metrics.md has the table of metrics, as the page is made of it."""

from __future__ import annotations

import re

import pytest

from kvorum.launch.metrics.document import markdown
from kvorum.launch.metrics.row import HISTOGRAM, NAME_SETS, Row
from kvorum.launch.metrics.rows import ROWS
from tests.tree import ROOT

EXPORTED = [row for rows in ROWS.values() for row in rows if row.exported]


@pytest.mark.parametrize("names", NAME_SETS)
def test_the_document_has_the_tables(names: str) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    table = text.partition(f"<!-- {names} -->\n\n")[2].partition("\n<!-- end -->")[0]
    assert table == markdown()[names], "python -m kvorum.launch.metrics.document prints new ones"


def exported(row: Row) -> str:
    """The name that Strimzi's rules for the JMX exporter make of the MBean."""
    mbean, _, attribute = row.mbean.partition(" ")
    domain, _, keys = mbean.partition(":")
    fields = dict(part.split("=", 1) for part in keys.split(","))
    kind = fields["type"].replace("raft-metrics", "raftmetrics")
    kind = kind.replace("raft-channel-metrics", "raftchannelmetrics")
    kind = kind.replace("broker-metadata-metrics", "brokermetadatametrics")
    name = fields.get("name", attribute)
    if name.endswith("PerSec"):
        name = f"{name.removesuffix('PerSec')}_total"
    elif name.endswith("Percent"):
        name = f"{name.removesuffix('Percent')}_percent"
    return re.sub(r"[-.:]", "_", f"{domain}_{kind}_{name}").lower()


@pytest.mark.parametrize("row", EXPORTED, ids=lambda row: row.exported)
def test_exported_names_follow_the_rules_of_the_exporter(row: Row) -> None:
    if row.exported.startswith("process_"):
        return  # the exporter's own
    suffix = "_count" if row.exported.endswith("timems_count") and row.kind != HISTOGRAM else ""
    assert row.exported == exported(row) + suffix
