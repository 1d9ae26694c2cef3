"""The chart on a real Kubernetes API server: strict fields, admission, access, upgrade, roll back.

`make test-kube`. etcd, kube-apiserver and helm must be on the path. There are no controllers and no
nodes, so no pod starts: what the API server itself decides is tested. A kube-apiserver that
`go build` made must know its version, or the chart takes it for one that is too old:
`-ldflags "-X k8s.io/component-base/version.gitVersion=v1.36.3"`.
"""

import json
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from socket import create_server
from typing import Any, Final

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ops.deploy.rendering import CHART, EXAMPLES, RENDERED, VALUES, names
from ops.running.processes import ProcessGroup

PROGRAMS: Final = ("etcd", "kube-apiserver", "helm")
missing = [name for name in PROGRAMS if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not on the path: {', '.join(missing)}")

READY_S: Final = 90.0
NAMESPACE: Final = "skeletonhunter"
RELEASE: Final = "skeletonhunter"
ADMIN: Final = "token-of-admin"
DEPLOYER: Final = "token-of-deployer"
# Of operators that are not there.
FOREIGN: Final = {"ServiceMonitor", "PrometheusRule", "ScaledObject"}
NATIVE: Final = (
    "metrics.serviceMonitor=false", "metrics.rules=false", "worker.autoscaling.enabled=false",
)  # fmt: skip
# What docs/guide/deploying.md says that whoever installs must have.
RIGHTS: Final = {
    "apps": ["deployments", "daemonsets"],
    "batch": ["jobs"],
    "policy": ["poddisruptionbudgets"],
    "networking.k8s.io": ["networkpolicies"],
    "": ["configmaps", "secrets", "services"],
}


def free_port() -> int:
    """Return a port that nobody listens at."""
    with closing(create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """An API server, and how it is asked."""

    url: str
    folder: Path

    def ask(
        self, path: str, body: Any = None, *, token: str = ADMIN, method: str | None = None
    ) -> tuple[int, Any]:
        """Return status and answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - our own server
            self.url + path, data=data, method=method,
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )  # fmt: skip
        context = ssl.create_default_context(cafile=str(self.folder / "pki" / "apiserver.crt"))
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:  # noqa: S310
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def helm(self, *arguments: str, token: str = DEPLOYER) -> subprocess.CompletedProcess[str]:
        """Run helm with the rights of a token."""
        return subprocess.run(
            [
                "helm", *arguments, "--namespace", NAMESPACE, "--kube-apiserver", self.url,
                "--kube-token", token, "--kube-ca-file", str(self.folder / "pki" / "apiserver.crt"),
            ],
            capture_output=True, text=True, check=False, timeout=120,
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
            executable=shutil.which("helm"),
        )  # fmt: skip

    def deployment(self, role: str) -> dict[str, Any]:
        """Return a Deployment as the server has it."""
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}-{role}"
        status, found = self.ask(path)
        assert status == 200, found
        assert isinstance(found, dict)
        return found


def path_of(document: dict[str, Any]) -> str:
    """Return where objects of a kind are made in the namespace."""
    version = document["apiVersion"]
    kind = document["kind"].lower()
    plural = kind.removesuffix("y") + "ies" if kind.endswith("y") else kind + "s"
    group = "api" if "/" not in version else "apis"
    return f"/{group}/{version}/namespaces/{NAMESPACE}/{plural}"


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """Give an API server with a namespace, and a deployer who may do what the guide says."""
    folder = tmp_path_factory.mktemp("kube")
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    private = folder / "accounts.key"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    tokens = folder / "tokens.csv"
    tokens.write_text(f'{ADMIN},admin,1,"system:masters"\n{DEPLOYER},deployer,2\n')
    etcd, peer, api = free_port(), free_port(), free_port()
    with ProcessGroup(folder / "logs") as group:
        group.start(
            "etcd",
            [
                "etcd", f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync",
                f"--listen-client-urls=http://127.0.0.1:{etcd}",
                f"--advertise-client-urls=http://127.0.0.1:{etcd}",
                f"--listen-peer-urls=http://127.0.0.1:{peer}",
                f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                f"--initial-cluster=default=http://127.0.0.1:{peer}",
            ],
        )  # fmt: skip
        group.start(
            "kube-apiserver",
            [
                "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}",
                f"--cert-dir={folder / 'pki'}", "--bind-address=127.0.0.1", f"--secure-port={api}",
                f"--token-auth-file={tokens}", "--authorization-mode=RBAC",
                f"--service-account-key-file={private}",
                f"--service-account-signing-key-file={private}",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--disable-admission-plugins=ServiceAccount",
                "--service-cluster-ip-range=10.0.0.0/24",
            ],
        )  # fmt: skip
        found = Kubernetes(f"https://127.0.0.1:{api}", folder)
        deadline = time.monotonic() + READY_S
        while True:
            group.check()
            try:
                status, _ = found.ask("/api/v1/namespaces/default")
            except (OSError, ValueError):
                status = 0
            if status == 200:
                break
            assert time.monotonic() < deadline, group.child("kube-apiserver").log_tail()
            time.sleep(0.5)
        prepare(found)
        yield found


def prepare(kubernetes: Kubernetes) -> None:
    """Make the namespace, and the deployer's role in it."""
    kubernetes.ask("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    access = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    rules = [
        {"apiGroups": [group], "resources": kinds, "verbs": ["*"]}
        for group, kinds in RIGHTS.items()
    ]
    status, answer = kubernetes.ask(
        f"{access}/roles", {"metadata": {"name": "deployer"}, "rules": rules}
    )
    assert status == 201, answer
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "User", "name": "deployer", "apiGroup": group}
    role = {"kind": "Role", "name": "deployer", "apiGroup": group}
    status, answer = kubernetes.ask(
        f"{access}/rolebindings",
        {"metadata": {"name": "deployer"}, "subjects": [subject], "roleRef": role},
    )
    assert status == 201, answer


@pytest.mark.parametrize("name", names())
def test_the_server_takes_each_manifest_strictly(kubernetes: Kubernetes, name: str) -> None:
    """No field that it does not know, no value that it refuses; nothing is kept."""
    documents = yaml.safe_load_all((EXAMPLES / f"{name}{RENDERED}").read_text(encoding="utf-8"))
    for document in documents:
        if document["kind"] in FOREIGN:
            continue
        path = path_of(document) + "?dryRun=All&fieldValidation=Strict"
        status, answer = kubernetes.ask(path, document)
        assert status == 201, answer


def test_it_is_installed_upgraded_and_rolled_back_by_somebody_with_few_rights(
    kubernetes: Kubernetes,
) -> None:
    """Readers before writers by their tags; the settings' checksum changes with the settings."""
    values = ["--values", str(EXAMPLES / f"strimzi{VALUES}")]
    for word in NATIVE:
        values += ["--set", word]
    done = kubernetes.helm("install", RELEASE, str(CHART), *values)
    assert done.returncode == 0, done.stderr
    before = {role: kubernetes.deployment(role) for role in ("worker", "localizer")}
    assert before["worker"]["spec"]["replicas"] == 2
    new = ["--set", "image.tag=9.9.9", "--set", "worker.imageTag=0.1.0"]
    new += ["--set", "localizer.settings.confidence=0.95"]
    done = kubernetes.helm("upgrade", RELEASE, str(CHART), *values, *new)
    assert done.returncode == 0, done.stderr
    after = {role: kubernetes.deployment(role) for role in before}
    assert template(after["worker"]) == template(before["worker"])
    (container,) = template(after["localizer"])["spec"]["containers"]
    assert container["image"] == "skeletonhunter:9.9.9"
    checksum = [template(d["localizer"])["metadata"]["annotations"] for d in (before, after)]
    assert checksum[0] != checksum[1]
    done = kubernetes.helm("rollback", RELEASE, "1")
    assert done.returncode == 0, done.stderr
    assert template(kubernetes.deployment("localizer")) == template(before["localizer"])
    done = kubernetes.helm("uninstall", RELEASE)
    assert done.returncode == 0, done.stderr
    status, _ = kubernetes.ask("/api/v1/nodes", token=DEPLOYER)
    assert status == 403


def template(deployment: dict[str, Any]) -> dict[str, Any]:
    """Return the pods' part of a Deployment."""
    found = deployment["spec"]["template"]
    assert isinstance(found, dict)
    return found


def test_a_field_that_kubernetes_does_not_know_is_refused(kubernetes: Kubernetes) -> None:
    """So the checks above would notice one."""
    document = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "x"},
        "spec": {"maxUnavaliable": 1},
    }  # fmt: skip
    status, answer = kubernetes.ask(
        path_of(document) + "?dryRun=All&fieldValidation=Strict", document
    )
    assert status == 400
    assert "maxUnavaliable" in answer["message"]
