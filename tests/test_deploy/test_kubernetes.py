"""The Helm chart, and the manifests that it makes with its default values."""

from __future__ import annotations

import json

import pytest
import yaml

from kvorum.launch.config.node_file import node_properties
from kvorum.launch.config.properties import broker_config, controller_config
from tests.test_deploy.chart import (
    CHART,
    RELEASE,
    SECURE,
    SET_ID,
    VERSION,
    of_kind,
    pods,
)
from tests.test_deploy.tools import DEPLOY, TOOLS, run, tool

MANIFESTS = DEPLOY / "kubernetes" / "kvorum.yaml"
KINDS = ("service-v1", "statefulset-apps-v1", "poddisruptionbudget-policy-v1")
HEAD = f"""\
# Made by: helm template {" ".join(("kvorum", "deploy/helm/kvorum", *RELEASE[2:]))}
# Apply with: kubectl create namespace kvorum && kubectl apply -f deploy/kubernetes/kvorum.yaml
# Take another cluster id: head -c 16 /dev/urandom | base64 | tr '+/' '-_' | tr -d '='
"""


def manifests():
    return [item for item in yaml.safe_load_all(MANIFESTS.read_text(encoding="utf-8")) if item]


def of(kind):
    return of_kind(manifests(), kind)


@pytest.mark.parametrize("values", [(), SECURE])
def test_helm_lints_the_chart(values):
    run(tool("helm"), "lint", "--strict", CHART, *VERSION, *SET_ID, *values)


def test_the_manifests_are_what_the_chart_makes():
    made = HEAD + run(tool("helm"), "template", *RELEASE)
    assert MANIFESTS.read_text(encoding="utf-8") == made


@pytest.mark.parametrize(
    "values",
    [
        (),
        SECURE,
        ("--set", "brokers.count=5", "--set", "controllers.storageClass=fast"),
        (
            "--set",
            "updateStrategy=RollingUpdate",
            "--set",
            "image.tag=v1",
            "--set",
            "topologyKeys=null",
        ),
    ],
)
@pytest.mark.parametrize("version", ["1.31.0", "1.34.0", "1.37.0"])
def test_kubernetes_schemas_take_what_the_chart_makes(values, version, tmp_path):
    kubeconform = tool("kubeconform")
    schemas = TOOLS / "schemas" / "kubernetes_validate" / "kubernetes-json-schema"
    if not schemas.is_dir():
        pytest.skip("no schemas of Kubernetes; make deploy-check fetches them")
    made = run(tool("helm"), "template", *RELEASE, *values)
    # The package's schemas refer to their definitions by the path of a server: inline the
    # definitions.
    folder = schemas / f"v{version}-local-strict"
    definitions = (folder / "_definitions.json").read_text(encoding="utf-8")
    for name in KINDS:
        schema = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        whole = json.dumps(schema | {"$defs": json.loads(definitions)["$defs"]})
        (tmp_path / f"{name}.json").write_text(whole.replace("/api/_definitions.json#", "#"))
    location = f"{tmp_path}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    said = run(kubeconform, "-strict", "-summary", "-schema-location", location, "-", text=made)
    assert "Invalid: 0, Errors: 0, Skipped: 0" in said


@pytest.mark.parametrize("bad", ["clusterId=short", "brokers.count=0", "unknown=1"])
def test_a_bad_value_is_refused_by_the_chart(bad):
    helm = tool("helm")
    with pytest.raises(AssertionError, match=bad.partition("=")[0].rpartition(".")[2]):
        run(helm, "template", *RELEASE, "--set", bad)


@pytest.mark.parametrize(("role", "first"), [("controller", 1), ("broker", 101)])
def test_the_variables_of_each_pod_make_a_node(role, first):
    one = of("StatefulSet")[f"kvorum-{role}"]["spec"]
    assert (one["ordinals"]["start"], one["podManagementPolicy"]) == (first, "Parallel")
    (container,) = one["template"]["spec"]["containers"]
    assert container["args"] == [role]
    for pod in (pod for pod in pods(manifests()) if pod.role == role):
        properties = node_properties(None, [], pod.variables())
        config, _ = (controller_config if role == "controller" else broker_config)(properties)
        assert (config.node_id, config.advertised[0]) == (pod.ordinal, pod.host)
        if role == "controller":
            assert config.voter_addresses[pod.ordinal] == config.advertised
        (mount,) = (m for m in container["volumeMounts"] if m["name"] == "data")
        assert config.directory.startswith(mount["mountPath"] + "/")
        shutdown_s = config.node.controlled_shutdown_timeout_ms / 1000
        assert one["template"]["spec"]["terminationGracePeriodSeconds"] >= 2 * shutdown_s


@pytest.mark.parametrize("role", ["controller", "broker"])
def test_pods_find_each_other_before_they_are_ready_and_one_at_a_time_may_go(role):
    one = of("StatefulSet")[f"kvorum-{role}"]["spec"]
    service = of("Service")[one["serviceName"]]["spec"]
    assert service["publishNotReadyAddresses"] and service["clusterIP"] == "None"
    budget = of("PodDisruptionBudget")[f"kvorum-{role}s"]["spec"]
    labels = one["template"]["metadata"]["labels"]
    assert budget["maxUnavailable"] == 1
    for selector in (service["selector"], budget["selector"]["matchLabels"]):
        assert selector.items() <= labels.items()
    (container,) = one["template"]["spec"]["containers"]
    paths = {
        probe: container[probe]["httpGet"]["path"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {
        "startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz",
    }  # fmt: skip
