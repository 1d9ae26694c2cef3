"""The chart: its values, and what it makes of them as the kept examples show it.

helm is a program of its own, which not every machine has. Manifests are checked as they are kept,
and whether the chart has changed since; where helm is, they are held to what it makes now.
"""

import copy
import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from localizer.config import build_config as localizer_config
from localizer.config import build_hangs_config
from ops.acl.plan import ROLES
from ops.bridge.config import build_config as bridge_config
from ops.deploy.rendering import CHART, EXAMPLES, RENDERED, VALUES, digest, names, render
from probers.agent import FLUSH_NS
from probers.collector.config import CollectConfig
from probers.config.settings import build_config as agent_config
from probers.health.client import parser
from schemas.kafka.connection import settings_from_table
from schemas.metrics.settings import parse_listen
from schemas.process.health import LIVE, READY
from schemas.version import VERSION
from skeleton_job.config import build_config as skeleton_config
from streams.config import build_config as worker_config
from tests import ROOT
from tests.unit.ops.deploy.program import runs

EVERYTHING = "strimzi"
# The oldest and the newest that the validator knows and the chart is for.
KUBERNETES = ("1.29", "1.36")
# Of operators that need not be there; Kubernetes has no schemas of them.
FOREIGN = {"ServiceMonitor", "PrometheusRule", "ScaledObject"}
PROCESSES = {"worker", "localizer", "skeleton", "hangs", "bridge", "web"}
# Of the agents' image, on each host.
ON_HOSTS = {"agent", "collector"}
needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not on the path")


def load(path: Path) -> Any:
    """Return the content of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def documents(name: str = EVERYTHING) -> tuple[dict[str, Any], ...]:
    """Return the manifests of an example."""
    text = (EXAMPLES / f"{name}{RENDERED}").read_text(encoding="utf-8")
    return tuple(yaml.safe_load_all(text))


def of_kind(kind: str, name: str = EVERYTHING) -> dict[str, Any]:
    """Return the manifests of a kind by the last word of their names."""
    found = {d["metadata"]["name"]: d for d in documents(name) if d["kind"] == kind}
    return {title.removeprefix("skeletonhunter-"): document for title, document in found.items()}


def pods(name: str = EVERYTHING) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pods' parts of all that makes pods, by component."""
    for document in documents(name):
        if document["kind"] in {"Deployment", "DaemonSet", "Job"}:
            labels = document["metadata"]["labels"]
            yield labels["app.kubernetes.io/component"], document["spec"]["template"]["spec"]


def settings(role: str, name: str = EVERYTHING) -> dict[str, Any]:
    """Return a role's settings as the chart writes them."""
    (config,) = of_kind("ConfigMap", name).values()
    return tomllib.loads(config["data"][f"{role}.toml"])


@needs_helm
@pytest.mark.parametrize("name", names())
def test_the_kept_examples_are_what_helm_makes(name: str) -> None:
    """Else: `make charts`."""
    kept = (EXAMPLES / f"{name}{RENDERED}").read_text(encoding="utf-8")
    assert f"{digest(name)}\n{render('helm', EXAMPLES / f'{name}{VALUES}')}" == kept


@pytest.mark.parametrize("name", names())
def test_the_kept_examples_were_made_from_this_chart(name: str) -> None:
    """Else: `make charts`, for which helm is needed."""
    kept = (EXAMPLES / f"{name}{RENDERED}").read_text(encoding="utf-8")
    assert kept.partition("\n")[0] == digest(name)


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", names())
def test_kubernetes_takes_them(name: str, version: str) -> None:
    """Strictly: no field that its schemas do not have."""
    for document in documents(name):
        if document["kind"] not in FOREIGN:
            kubernetes_validate.validate(document, version, strict=True)


def merged(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return values with changes, mapping by mapping, as helm does it."""
    found = copy.deepcopy(values)
    for key, change in changes.items():
        known = found.get(key)
        both = isinstance(known, dict) and isinstance(change, dict)
        found[key] = merged(known, change) if both and known is not None else change
    return found


def faults(changes: dict[str, Any]) -> str:
    """Return what the schema says of the chart's values with changes; "": nothing."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = merged(load(CHART / "values.yaml"), changes)
    return "; ".join(e.message for e in jsonschema.Draft7Validator(schema).iter_errors(values))


@pytest.mark.parametrize("name", names())
def test_the_schema_takes_the_examples(name: str) -> None:
    """Over the chart's own values."""
    assert faults(load(EXAMPLES / f"{name}{VALUES}")) == ""


BAD: list[tuple[dict[str, Any], str]] = [
    ({"kafka": {"bootstrap": ""}}, "does not match"),
    ({"kafka": {"bootstrap": "broker"}}, "does not match"),
    ({"kafka": {"authentication": "plain"}}, "is not one of"),
    ({"kafka": {"options": {"sasl.password": "x"}}}, "should not be valid under"),
    ({"agent": {"rnics": []}}, "[] should be non-empty"),
    ({"agent": {"rnics": [{"rail": 0}]}}, "is not valid under any of the given schemas"),
    ({"agent": {"capabilities": ["ALL"]}}, "'ALL' is not one of"),
    ({"collector": {"capabilities": ["SYS_ADMIN"]}}, "are valid under the given schema"),
    ({"web": {"enabled": True}}, "'' should be non-empty"),
    ({"bridge": {"enabled": True}}, "[] should be non-empty"),
    ({"bridge": {"targets": [{"type": "pagerduty"}]}}, "'routingKey' is a required property"),
    (
        {"bridge": {"targets": [{"type": "pagerduty", "routingKey": "secret itself"}]}},
        "is not of type 'object'",
    ),
    ({"worker": {"replica": 3}}, "'replica' was unexpected"),
    ({"worker": {"replicas": 0}}, "less than the minimum"),
    ({"networkPolicy": {"kafkaPorts": [99_999]}}, "greater than the maximum"),
]


@pytest.mark.parametrize(("changes", "why"), BAD)
def test_the_schema_refuses_what_cannot_work(changes: dict[str, Any], why: str) -> None:
    """What must be given, words that are none, and secrets that stand in values."""
    assert why in faults(merged(load(EXAMPLES / f"minimal{VALUES}"), changes))


@needs_helm
def test_helm_holds_values_to_the_schema(tmp_path: Path) -> None:
    """The file has the name that it looks for."""
    values = tmp_path / "values.yaml"
    values.write_text("kafka: {bootstrap: 'kafka:9092'}")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        render("helm", values)
    assert "rnics" in caught.value.stderr


def test_the_chart_is_of_this_program() -> None:
    """Its version decides on the image that is run."""
    chart = load(CHART / "Chart.yaml")
    assert (chart["appVersion"], chart["version"]) == (VERSION, VERSION)
    for role, pod in pods():
        for container in pod["containers"]:
            repository = "skeletonhunter-agent" if role in ON_HOSTS else "skeletonhunter"
            assert container["image"] == f"{repository}:{VERSION}"


@pytest.mark.parametrize("name", names())
def test_processes_understand_their_settings(name: str) -> None:
    """Each takes its own file: login, certificate and tables."""
    (config,) = of_kind("ConfigMap", name).values()
    builders = {
        "worker": worker_config, "localizer": localizer_config, "skeleton": skeleton_config,
        "hangs": build_hangs_config,
    }  # fmt: skip
    for file in config["data"]:
        role = file.removesuffix(".toml")
        table = settings(role, name)
        kafka = {k: v for k, v in table["kafka"].items() if not k.endswith((".location", ".file"))}
        settings_from_table(kafka["bootstrap.servers"], kafka)
        if role in builders:
            builders[role]({}, table.get(role, {}))
        if role in PROCESSES:
            assert parse_listen(table["metrics"]["listen"]) == ("0.0.0.0", 9464)  # noqa: S104
    assert {"sasl.password", "ssl.key.password"}.isdisjoint(
        key
        for file in config["data"]
        for key in settings(file.removesuffix(".toml"), name)["kafka"]
    )


def test_each_process_logs_in_as_the_role_that_has_its_rights() -> None:
    """`acl plan --strimzi` makes users, and Strimzi secrets, of these names."""
    (config,) = of_kind("ConfigMap").values()
    for file in config["data"]:
        role = file.removesuffix(".toml")
        assert role in ROLES
        assert settings(role)["kafka"]["sasl.username"] == f"skeletonhunter-{role}"
    for role, pod in pods():
        secrets = [v["secret"]["secretName"] for v in pod["volumes"] if v["name"] == "kafka-user"]
        assert secrets == [f"skeletonhunter-{'operator' if role == 'topics' else role}"]


def mounted(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return a pod's volumes by the folder or file where its first container has them."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    (container,) = pod["containers"]
    return {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}


def test_files_that_settings_name_are_mounted(tmp_path: Path) -> None:
    """Passwords, certificates, tokens: each is a key of a secret, at the path that is read."""
    everything = dict(pods())
    for role, pod in everything.items():
        found = mounted(pod)
        table = settings("operator" if role == "topics" else role)["kafka"]
        for key in ("sasl.password.file", "ssl.ca.location", "schema.registry.password.file"):
            assert "secret" in found[str(Path(table[key]).parent)]
    page = everything["web"]["containers"][0]["args"]
    named = [word for word in page if word.startswith("/")]
    assert {str(Path(word).parent) for word in named} == {"/etc/web-tls", "/etc/web-token"}
    table = settings("bridge")["bridge"]
    files = [v for target in table["target"] for k, v in target.items() if k.endswith("_file")]
    assert len(files) == 3
    assert set(files) <= set(mounted(everything["bridge"]))
    for number, file in enumerate(files):
        (tmp_path / str(number)).write_text("secret")
        content = json.dumps(table).replace(file, str(tmp_path / str(number)))
        table = json.loads(content)
    config = bridge_config({}, table)
    assert [target.name for target in config.targets] == ["am", "pd", "tickets"]


def test_commands_exist_and_probes_ask_what_answers() -> None:
    """Live and ready, of the port where the settings let it listen; the page's are its own."""
    for role, pod in pods():
        if role in ON_HOSTS:
            continue
        (container,) = pod["containers"]
        assert runs(container["args"])
        if role == "topics":
            continue
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["metrics"] == 9464
        asks = {
            name: container[f"{name}Probe"]["httpGet"]
            for name in ("startup", "liveness", "readiness")
        }
        assert [ask["path"] for ask in asks.values()] == [LIVE, LIVE, READY]
        where = {(ask["port"], ask.get("scheme", "HTTP")) for ask in asks.values()}
        assert where == {("https", "HTTPS") if role == "web" else ("metrics", "HTTP")}


@pytest.mark.parametrize("name", names())
def test_nothing_may_more_than_it_needs(name: str) -> None:
    """No root but the agent's number, no capability, no token of Kubernetes, no file to write."""
    for role, pod in pods(name):
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
        # The collector looks into the processes of other pods, and reads nothing else of the host.
        assert pod.get("hostPID", False) == (role == "collector")
        assert pod.get("hostNetwork", False) == (role == "agent")
        assert pod["securityContext"].get("runAsNonRoot", False) == (role not in ON_HOSTS)
        for container in pod["containers"] + pod.get("initContainers", []):
            rights = container["securityContext"]
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["capabilities"]["drop"] == ["ALL"]
            added = {
                "agent": ["IPC_LOCK"],
                # The files of ranks that are not root's are theirs alone.
                "collector": ["SYS_PTRACE", "DAC_READ_SEARCH", "SYS_ADMIN"],
            }.get(role, [])
            assert rights["capabilities"].get("add", []) in ([], added)
            assert container["resources"]["limits"]["memory"]
            writable = {m["name"] for m in container["volumeMounts"] if not m.get("readOnly")}
            own = {"agent": {"run"}, "collector": set[str]()}
            assert writable == own.get(role, {"cache", "tmp"})


def test_there_is_another_one_before_one_goes() -> None:
    """Upgrades begin with the new pod; a drain takes one at a time; policies let nobody else in."""
    for role, deployment in of_kind("Deployment").items():
        rolling = deployment["spec"]["strategy"]["rollingUpdate"]
        assert rolling == {"maxSurge": 1, "maxUnavailable": 0}
        if role != "web":
            assert of_kind("PodDisruptionBudget")[role]["spec"]["maxUnavailable"] == 1
    assert of_kind("Deployment", "minimal")["localizer"]["spec"]["replicas"] == 2
    assert set(of_kind("NetworkPolicy")) == PROCESSES | {"topics", "collector"}
    for role, policy in of_kind("NetworkPolicy").items():
        selector = policy["spec"]["podSelector"]["matchLabels"]
        assert selector["app.kubernetes.io/component"] == role
        assert all(rule["from"] for rule in policy["spec"]["ingress"])


def test_what_is_scraped_is_what_the_rules_ask_for() -> None:
    """The job is theirs, whichever pods there are, and lag is what more workers are made for."""
    rules = load(ROOT / "ops" / "deploy" / "prometheus" / "rules.yml")
    (monitor,) = of_kind("ServiceMonitor").values()
    job = {
        r["targetLabel"]: r.get("replacement")
        for r in monitor["spec"]["endpoints"][0]["relabelings"]
    }
    assert f'up{{job="{job["job"]}"}}' in json.dumps(rules).replace('\\"', '"')
    (service,) = [s for title, s in of_kind("Service").items() if title == "metrics"]
    chosen = monitor["spec"]["selector"]["matchLabels"]
    assert chosen.items() <= service["metadata"]["labels"].items()
    (scaled,) = of_kind("ScaledObject").values()
    assert "replicas" not in of_kind("Deployment")["worker"]["spec"]
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    assert "skeletonhunter_lag_seconds" in query


@needs_helm
def test_the_rules_are_those_of_prometheus() -> None:
    """One file: the chart holds a link to it."""
    text = render("helm", EXAMPLES / f"minimal{VALUES}", "--set", "metrics.rules=true")
    (made,) = (d for d in yaml.safe_load_all(text) if d["kind"] == "PrometheusRule")
    assert made["spec"] == load(ROOT / "ops" / "deploy" / "prometheus" / "rules.yml")


def agent() -> dict[str, Any]:
    """Return the agents' pod."""
    return dict(pods())["agent"]


def test_one_file_serves_all_agents(tmp_path: Path) -> None:
    """An agent takes it; host and addresses it finds; key and socket are where volumes are."""
    table = settings("agent")["agent"]
    key = tmp_path / "probe.key"
    key.write_text("0" * 64)
    key.chmod(0o440)
    paths = mounted(agent())
    assert str(Path(table["probe_key_file"]).parent) in paths
    (container,) = agent()["containers"]
    (host,) = [e for e in container["env"] if e["name"] == "SKELETONHUNTER_AGENT_HOST_ID"]
    assert host["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    environment = {"SKELETONHUNTER_AGENT_HOST_ID": "node17"}
    config = agent_config({}, environment, {**table, "probe_key_file": str(key)})
    assert (config.host_id, [rnic.address for rnic in config.rnics]) == ("node17", [None, None])
    assert config.health is not None
    assert str(Path(str(config.health.path)).parent) in paths
    assert agent()["terminationGracePeriodSeconds"] > (config.linger_ns + FLUSH_NS) / 1e9 + 5


def test_a_collector_is_told_its_host_and_reads_its_table() -> None:
    """It runs the module of the agents' image, with the name that the platform has of the host."""
    (container,) = dict(pods())["collector"]["containers"]
    *python, module = container["command"]
    assert (python, module) == (["python3", "-P", "-m"], "probers.collector")
    (host,) = [e for e in container["env"] if e["name"] == "SKELETONHUNTER_COLLECT_HOST_ID"]
    assert host["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    flags = {f.name for f in fields(CollectConfig)}
    assert set(settings("collector")["collect"]) <= flags


@pytest.mark.parametrize("name", ["livenessProbe", "readinessProbe"])
def test_agents_are_asked_by_a_command_of_their_image(name: str) -> None:
    """The client takes its arguments, and has ended before its time is up."""
    probe = agent()["containers"][0][name]
    command = probe["exec"]["command"]
    assert command[:5] == ["python3", "-P", "-m", "probers", "health"]
    given = parser().parse_args(command[5:])
    assert given.live is (name == "livenessProbe")
    assert given.timeout_s < probe["timeoutSeconds"]
