# SPDX-License-Identifier: Apache-2.0
"""CDI annotations of the kubelet and of the engine's caller are grants, those of a pod are not."""

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
OWN = "cdi.k8s.io/x"  # a key that a pod can write
ALL, AGENT = "nvidia.com/gpu=all", "acme.com/agent=host"
ENGINES = pytest.mark.parametrize(("engine", "cgroup"), [("runc", "host"), ("crun", "host")])
ROUTES = pytest.mark.parametrize("route", ["wrapper", "prestart"])
# Annotations by which a pod pretends that another program made its container.
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
def closed_node(node8: Installation, tmp_path: Path) -> Installation:
    """Return a node that accepts granted GPUs only, with a spec of another vendor."""
    return with_agent(node8.apart(tmp_path / "closed", request=CLOSED), tmp_path)


@pytest.fixture
def open_node(node8: Installation, tmp_path: Path) -> Installation:
    """Return a node with the default settings, with a spec of another vendor."""
    return with_agent(node8.apart(tmp_path / "opened"), tmp_path)


def with_agent(node: Installation, place: Path) -> Installation:
    """Add a CDI device of another vendor to the node: a writable directory on the host."""
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


def annotated_bundle(
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


def run_container(
    node: Installation,
    made: Bundle,
    route: str = "wrapper",
    engine: str = "runc",
    cgroup: str = "host",
) -> Result:
    """Run a bundle by gpuhook-runtime, or by a plain runtime that calls the prestart hook."""
    command = [engine] if route == "prestart" else [node.runtime]
    return run(made, command, engine, cgroup, env=node.on(engine))


def gpus(result: Result) -> set[str]:
    """Return the GPU nodes in the container's /dev."""
    return set(result.view.gpus()) - set(CONTROL)


@ENGINES
@ROUTES
@pytest.mark.parametrize("pod", [{OWN: ALL}, FORGED], ids=["plain", "forged"])
def test_pod_annotations_of_crio_assign_no_gpu(
    pod: dict[str, str],
    route: str,
    engine: str,
    cgroup: str,
    closed_node: Installation,
    tmp_path: Path,
) -> None:
    """Under CRI-O, config.json has the pod's annotations: a closed node refuses them."""
    made = annotated_bundle(closed_node, tmp_path, written.crio(pod), route, asks("void"))
    assert gpus(run_container(closed_node, made, route, engine, cgroup)) == set()


def test_refused_pod_annotation_is_logged(closed_node: Installation, tmp_path: Path) -> None:
    result = closed_node.edit(annotated_bundle(closed_node, tmp_path, written.crio({OWN: ALL})))
    assert result.rc == 0
    assert "GH1007" in result.log
    assert f"in {OWN}: " in result.log


@ROUTES
@pytest.mark.parametrize("made_by", [written.crio, written.containerd])
def test_kubelet_annotation_assigns_the_gpu(
    made_by: Callable[[Mapping[str, str]], dict[str, str]],
    route: str,
    closed_node: Installation,
    tmp_path: Path,
) -> None:
    """An annotation of the device plugin is a grant under CRI-O and containerd."""
    granted = {written.NAME: "nvidia.com/gpu=3"}
    annotations = written.crio({OWN: ALL}, granted) if made_by is written.crio else made_by(granted)
    made = annotated_bundle(closed_node, tmp_path, annotations, route, asks("void"))
    assert gpus(run_container(closed_node, made, route)) == {closed_node.device(3)}


@pytest.mark.parametrize("name", [ALL, AGENT])
@pytest.mark.parametrize("made_by", ["crio", "containerd"])
def test_sandbox_annotations_assign_nothing(
    made_by: str, name: str, closed_node: Installation, tmp_path: Path
) -> None:
    """A pod's sandbox is assigned no device: all of its annotations are the pod's own."""
    pod = {**FORGED, OWN: name, "io.kubernetes.cri-o.Annotations": json.dumps({OWN: name})}
    is_crio = made_by == "crio"
    annotations = written.crio_sandbox(pod) if is_crio else written.containerd(pod, "sandbox")
    made = annotated_bundle(closed_node, tmp_path, annotations)
    result = run_container(closed_node, made)
    assert gpus(result) == set()
    assert "/host" not in result.view.mounts


@ROUTES
def test_pod_annotation_is_judged_like_a_variable(
    route: str, open_node: Installation, tmp_path: Path
) -> None:
    """If variables are accepted, a pod's annotation may name devices of NVIDIA only."""
    made = annotated_bundle(
        open_node, tmp_path / "own", written.crio({OWN: "nvidia.com/gpu=1"}), route
    )
    assert gpus(run_container(open_node, made, route)) == {open_node.device(1)}
    other = annotated_bundle(open_node, tmp_path / "other", written.crio({OWN: AGENT}), route)
    before = other.file.read_bytes()
    assert run_container(open_node, other, route).rc != 0
    assert other.file.read_bytes() == before


def test_annotations_of_the_engines_caller_are_grants(
    closed_node: Installation, tmp_path: Path
) -> None:
    """Annotations from the command line of Docker, podman or ctr are grants."""
    made = annotated_bundle(closed_node, tmp_path, {OWN: f"nvidia.com/gpu=2,{AGENT}"})
    result = run_container(closed_node, made)
    assert gpus(result) == {closed_node.device(2)}
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
def test_accept_annotations_setting(
    accept: str,
    annotations: dict[str, str],
    expected: list[int],
    node8: Installation,
    tmp_path: Path,
) -> None:
    """request.acceptAnnotations applies, from the settings file and from the variable."""
    closed_node = node8.apart(tmp_path / "node", request=CLOSED)
    of_file = node8.apart(tmp_path / "file", request={**CLOSED, "acceptAnnotations": accept})
    made = annotated_bundle(closed_node, tmp_path, annotations)
    before = made.config()
    devices = {node8.device(index) for index in expected}
    for node, env in (
        (of_file, {}),
        (closed_node, {"GPUHOOK_REQUEST_ACCEPT_ANNOTATIONS": accept}),
    ):
        made.write(before)
        done = node.edit(made, env=env)
        assert done.rc == 0
        nodes = {device["path"] for device in made.config()["linux"].get("devices", [])}
        assert nodes - set(CONTROL) == devices
        assert ("GH1007" in done.log) is not bool(expected)


def test_unknown_value_of_accept_annotations_is_refused(
    apart: Installation, tmp_path: Path
) -> None:
    apart.config.write_text("request: {acceptAnnotations: pods}", encoding="utf-8")
    done = apart.edit(annotated_bundle(apart, tmp_path, written.crio({OWN: ALL})))
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
def test_explain_prints_the_reason(
    annotations: dict[str, str], words: list[str], closed_node: Installation, tmp_path: Path
) -> None:
    made = annotated_bundle(closed_node, tmp_path, annotations)
    text = closed_node.gpuhook("explain", str(made.path)).stdout
    assert [word for word in words if word not in " ".join(text.split())] == []
    (container,) = json.loads(closed_node.gpuhook("explain", str(made.path), "-o", "json").stdout)[
        "containers"
    ]
    (source,) = container["sources"]
    assert source["result"] == words[0]
    assert source["kind"] == ("annotations" if words[0] == "won" else "pod-annotations")


@pytest.mark.parametrize("route", ["wrapper", "prestart"])
def test_ledger_ignores_a_forged_pod_name(route: str, apart: Installation, tmp_path: Path) -> None:
    """Under CRI-O, the pod's name in the ledger comes from the kubelet, not from the pod."""
    victim = {
        "io.kubernetes.cri.sandbox-name": "victim",
        "io.kubernetes.cri.sandbox-namespace": "kube-system",
        "io.kubernetes.cri.container-name": "victim",
        "io.kubernetes.cri.container-type": "container",
    }
    made = annotated_bundle(apart, tmp_path, written.crio(victim), route, asks("1"))
    assert run_container(apart, made, route).rc == 0
    entry = apart.entry()
    names = [entry.get(key) for key in ("pod", "namespace", "container")]
    assert names == [written.POD, written.NAMESPACE, written.CONTAINER]
