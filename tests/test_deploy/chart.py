"""The output of the Helm chart: manifests, and the variables of their pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from tests.shell import Shell, shell_block
from tests.test_deploy.tools import DEPLOY, run, tool

CHART = DEPLOY / "helm" / "kvorum"
CLUSTER_ID = "a3ZvcnVtLWt1YmVybmV0ZQ"
VERSION = ("--kube-version", "1.31.0")
SET_ID = ("--set", f"clusterId={CLUSTER_ID}")
RELEASE = ("kvorum", str(CHART), "--namespace", "kvorum", *VERSION, *SET_ID)
SECURE = (
    "--set",
    "security.enabled=true",
    "--set",
    "security.secretName=kvorum-certificates",
)

KUBECTL = """\
#!/bin/sh
echo "$*" >>kubectl.log
[ "$1 $2" = "create secret" ] || exit 0
mkdir -p secret
for word; do
    case $word in --from-file=*) cp "${word#--from-file=}" secret/ ;; esac
done
"""

HELM = """\
#!/bin/sh
[ "$1" = install ] || exit 0
shift
exec {helm} template --kube-version 1.31.0 "$@" >manifests.yaml
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod of a StatefulSet. spec: of the StatefulSet."""

    role: str
    ordinal: int
    spec: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"kvorum-{self.role}-{self.ordinal}"

    @property
    def host(self) -> str:
        return f"{self.name}.{self.spec['serviceName']}.kvorum.svc.cluster.local"

    @property
    def container(self) -> Mapping[str, Any]:
        (container,) = self.spec["template"]["spec"]["containers"]
        return container  # type: ignore[no-any-return]

    def variables(self) -> dict[str, str]:
        """The container's variables as the kubelet fills them in."""
        found: dict[str, str] = {}
        fields = {
            "metadata.name": self.name,
            "metadata.labels['apps.kubernetes.io/pod-index']": str(self.ordinal),
        }
        for entry in self.container["env"]:
            value = entry.get("value")
            if value is None:
                value = fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            for name, known in found.items():
                value = value.replace(f"$({name})", known)
            found[entry["name"]] = value
        return found

    def secrets(self) -> dict[str, str]:
        """The keys of the Secret by the files that the container has of them."""
        mounts = [m for m in self.container["volumeMounts"] if m["name"] == "secrets"]
        assert all(mount["readOnly"] for mount in mounts)
        return {
            mount["mountPath"]: mount.get("subPath")
            or mount["subPathExpr"].replace("$(POD_NAME)", self.name)
            for mount in mounts
        }


def install_as_documented(shell: Shell) -> None:
    """Run the commands of docs/deploying.md in a shell whose folder then has the Secret's files in
    `secret`, and the manifests in manifests.yaml. Skips the test without helm."""
    shell.install("kubectl", KUBECTL)
    shell.install("helm", HELM.format(helm=tool("helm")))
    (shell.folder / "deploy").symlink_to(DEPLOY)
    shell.run(shell_block("docs/deploying.md", "pods"))


def rendered(*values: str) -> list[dict[str, Any]]:
    """The manifests that the chart makes with these values. Skips the test without helm."""
    made = run(tool("helm"), "template", *RELEASE, *values)
    return [item for item in yaml.safe_load_all(made) if item]


def of_kind(manifests: Sequence[Mapping[str, Any]], kind: str) -> dict[str, Any]:
    """The manifests of a kind by their names."""
    return {item["metadata"]["name"]: item for item in manifests if item["kind"] == kind}


def pods(manifests: Sequence[Mapping[str, Any]]) -> Iterator[Pod]:
    """The pods of the StatefulSets, controllers first."""
    for role in ("controller", "broker"):
        spec = of_kind(manifests, "StatefulSet")[f"kvorum-{role}"]["spec"]
        first = spec["ordinals"]["start"]
        for ordinal in range(first, first + spec["replicas"]):
            yield Pod(role=role, ordinal=ordinal, spec=spec)
