# SPDX-License-Identifier: Apache-2.0
"""Annotations as requests: those of the kubelet and of a caller grant, those of a pod do not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from tests import cri_annotations as written
from tests.contract import bundles, roots
from tests.contract.bundles import Bundle
from tests.contract.installation import CONTROL, Installation, asks
from tests.contract.live import prestart
from tests.contract.runtimes import Result, run

CLOSED = {"acceptEnvWhenUnprivileged": False, "acceptVolumeMounts": True}
OWN = "cdi.k8s.io/x"  # the key of a pod
ALL, AGENT = "nvidia.com/gpu=all", "acme.com/agent=host"
ENGINES = pytest.mark.parametrize(("engine", "cgroup"), [("runc", "host"), ("crun", "host")])
ROUTES = pytest.mark.parametrize("route", ["wrapper", "prestart"])
# What a pod may write to look as if something else had made its container.
FORGED = {
    OWN: ALL,
    "io.gpuhook.record": "{}",
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri-o.Annotations": json.dumps({OWN: ALL}),
    "io.kubernetes.cri-o.ContainerType": "container",
    "io.kubernetes.container.name": "main",
    "io.container.manager": "libpod",
}


@pytest.fixture
def closed(node8: Installation, tmp_path: Path) -> Installation:
    """Give a node with the closed configuration and another spec with a host directory."""
    return with_agent(node8.apart(tmp_path / "closed", request=CLOSED), tmp_path)


@pytest.fixture
def opened(node8: Installation, tmp_path: Path) -> Installation:
    """Give the node with the default settings, and that spec."""
    return with_agent(node8.apart(tmp_path / "opened"), tmp_path)


def with_agent(node: Installation, place: Path) -> Installation:
    """Describe a device of another vendor on the node: a directory of the host, writable."""
    host = place / "host"
    host.mkdir(exist_ok=True)
    mount = {"hostPath": str(host), "containerPath": "/host", "options": ["rw", "bind"]}
    spec = {
        "cdiVersion": "0.6.0",
        "kind": "acme.com/agent",
        "devices": [{"name": "host", "containerEdits": {"mounts": [mount]}}],
    }
    (node.specs / "acme.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    return node


def container(
    node: Installation,
    place: Path,
    annotations: Mapping[str, str],
    route: str = "wrapper",
    env: list[str] | None = None,
) -> Bundle:
    """Return the bundle of a container with these annotations."""
    hooks = {"hooks": prestart(node)} if route == "prestart" else {}
    root = roots.copy("debian", place / "root")
    return bundles.bundle(place / "bundle", root, ["/probe"], env or [], annotations, **hooks)


def ran(
    node: Installation,
    made: Bundle,
    route: str = "wrapper",
    engine: str = "runc",
    cgroup: str = "host",
) -> Result:
    """Run a bundle through the wrapper, or by a plain runtime that calls our prestart hook."""
    command = [engine] if route == "prestart" else [node.runtime]
    return run(made, command, engine, cgroup, env=node.on(engine))


def gpus(result: Result) -> set[str]:
    """Return the GPUs' nodes that a container has seen in its /dev."""
    return set(result.view.gpus()) - set(CONTROL)


@ENGINES
@ROUTES
@pytest.mark.parametrize("pod", [{OWN: ALL}, FORGED], ids=["plain", "forged"])
def test_a_pod_of_crio_takes_no_gpu(
    pod: dict[str, str], route: str, engine: str, cgroup: str, closed: Installation, tmp_path: Path
) -> None:
    """CRI-O copies annotations of the pod into config.json: the closed configuration refuses them,
    whatever else the pod writes.
    """
    made = container(closed, tmp_path, written.crio(pod), route, asks("void"))
    assert gpus(ran(closed, made, route, engine, cgroup)) == set()


def test_what_is_refused_is_told(closed: Installation, tmp_path: Path) -> None:
    done = closed.edit(container(closed, tmp_path, written.crio({OWN: ALL})))
    assert done.rc == 0
    assert "GH1007" in done.log
    assert f"in {OWN}: " in done.log


@ROUTES
@pytest.mark.parametrize("made_by", [written.crio, written.containerd])
def test_the_plugins_annotation_grants(
    made_by: Callable[[Mapping[str, str]], dict[str, str]],
    route: str,
    closed: Installation,
    tmp_path: Path,
) -> None:
    """Strategy cdi-annotations of the device plugin works with it on each engine."""
    given = {written.NAME: "nvidia.com/gpu=3"}
    annotations = written.crio({OWN: ALL}, given) if made_by is written.crio else made_by(given)
    made = container(closed, tmp_path, annotations, route, asks("void"))
    assert gpus(ran(closed, made, route)) == {closed.device(3)}


@pytest.mark.parametrize("name", [ALL, AGENT])
@pytest.mark.parametrize("made_by", ["crio", "containerd"])
def test_a_sandbox_is_granted_nothing(
    made_by: str, name: str, closed: Installation, tmp_path: Path
) -> None:
    """All annotations of a pod's sandbox are the pod's; other containers of the pod may see it."""
    pod = {**FORGED, OWN: name, "io.kubernetes.cri-o.Annotations": json.dumps({OWN: name})}
    is_crio = made_by == "crio"
    annotations = written.crio_sandbox(pod) if is_crio else written.containerd(pod, "sandbox")
    made = container(closed, tmp_path, annotations)
    result = ran(closed, made)
    assert gpus(result) == set()
    assert "/host" not in result.view.mounts


@ROUTES
def test_an_open_door(route: str, opened: Installation, tmp_path: Path) -> None:
    """If variables are accepted, an annotation of the pod is: for devices of the own vendor."""
    made = container(opened, tmp_path / "own", written.crio({OWN: "nvidia.com/gpu=1"}), route)
    assert gpus(ran(opened, made, route)) == {opened.device(1)}
    other = container(opened, tmp_path / "other", written.crio({OWN: AGENT}), route)
    before = other.file.read_bytes()
    assert ran(opened, other, route).rc != 0
    assert other.file.read_bytes() == before


def test_a_caller_is_trusted(closed: Installation, tmp_path: Path) -> None:
    """Docker, podman and ctr write annotations of their command line: who calls them is root."""
    made = container(closed, tmp_path, {OWN: f"nvidia.com/gpu=2,{AGENT}"})
    result = ran(closed, made)
    assert gpus(result) == {closed.device(2)}
    assert "/host" in result.view.mounts


@pytest.mark.parametrize(
    ("accept", "annotations", "expected"),
    [
        ("any", written.crio({OWN: "nvidia.com/gpu=1"}), [1]),
        ("kubelet", written.crio({OWN: "nvidia.com/gpu=1"}), []),
        ("kubelet", written.crio({}, {written.NAME: "nvidia.com/gpu=1"}), [1]),
        ("kubelet", {OWN: "nvidia.com/gpu=1"}, []),
        ("none", written.crio({}, {written.NAME: "nvidia.com/gpu=1"}), []),
        ("none", written.containerd({written.NAME: "nvidia.com/gpu=1"}), []),
        ("none", {OWN: "nvidia.com/gpu=1"}, []),
    ],
)
def test_the_setting(
    accept: str,
    annotations: dict[str, str],
    expected: list[int],
    node8: Installation,
    tmp_path: Path,
) -> None:
    """request.acceptAnnotations, by the file and by the variable of the environment."""
    closed = node8.apart(tmp_path / "node", request=CLOSED)
    of_file = node8.apart(tmp_path / "file", request={**CLOSED, "acceptAnnotations": accept})
    made = container(closed, tmp_path, annotations)
    before = made.config()
    devices = {node8.device(index) for index in expected}
    for node, env in (
        (of_file, {}),
        (closed, {"GPUHOOK_REQUEST_ACCEPT_ANNOTATIONS": accept}),
    ):
        made.write(before)
        done = node.edit(made, env=env)
        assert done.rc == 0
        nodes = {device["path"] for device in made.config()["linux"].get("devices", [])}
        assert nodes - set(CONTROL) == devices
        assert ("GH1007" in done.log) is not bool(expected)


def test_a_setting_that_is_no_word(apart: Installation, tmp_path: Path) -> None:
    apart.config.write_text("request: {acceptAnnotations: pods}", encoding="utf-8")
    done = apart.edit(container(apart, tmp_path, written.crio({OWN: ALL})))
    assert done.rc != 0
    assert "GH1530" in done.log
    assert "request.acceptAnnotations: it must be auto, kubelet, any or none" in done.log


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        (written.crio({OWN: ALL}), ["refused", "the pod wrote it", "acceptEnvWhenUnprivileged"]),
        (written.crio({}, {written.NAME: ALL}), ["won", "the kubelet wrote it"]),
        (written.containerd({written.NAME: ALL}), ["won", "container_annotations"]),
        (written.containerd({OWN: ALL}, "sandbox"), ["refused", "the pod wrote it"]),
        ({OWN: ALL}, ["won", "caller of the engine"]),
    ],
)
def test_explain_says_why(
    annotations: dict[str, str], words: list[str], closed: Installation, tmp_path: Path
) -> None:
    made = container(closed, tmp_path, annotations)
    text = closed.gpuhook("explain", str(made.path)).stdout
    assert [word for word in words if word not in " ".join(text.split())] == []
    (told,) = json.loads(closed.gpuhook("explain", str(made.path), "-o", "json").stdout)[
        "containers"
    ]
    (source,) = told["sources"]
    assert source["result"] == words[0]
    assert source["kind"] == ("annotations" if words[0] == "won" else "pod-annotations")


@pytest.mark.parametrize("route", ["wrapper", "prestart"])
def test_a_pod_cannot_take_another_ones_name(
    route: str, apart: Installation, tmp_path: Path
) -> None:
    """The ledger names a container of CRI-O by what the kubelet says of it."""
    victim = {
        "io.kubernetes.cri.sandbox-name": "victim",
        "io.kubernetes.cri.sandbox-namespace": "kube-system",
        "io.kubernetes.cri.container-name": "victim",
        "io.kubernetes.cri.container-type": "container",
    }
    made = container(apart, tmp_path, written.crio(victim), route, asks("1"))
    assert ran(apart, made, route).rc == 0
    entry = apart.entry()
    told = [entry.get(key) for key in ("pod", "namespace", "container")]
    assert told == [written.POD, written.NAMESPACE, written.CONTAINER]
