# SPDX-License-Identifier: Apache-2.0
"""Containers as CRI-O 1.3x makes them: its configuration, its config.json, and conmon.

Debian has no CRI-O. Its package's configuration, the paths and annotations of its containers, and
the arguments of conmon follow its source; conmon, runc and crun are those of the release.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
import tomllib

from tests import cri_annotations as written
from tests.contract import bundles, roots
from tests.contract.cri import logged
from tests.contract.views import View, view
from tests.engines.containerd import SLEEP, gpus
from tests.engines.engine_node import EngineNode, low_level_runtime
from tests.waiting import eventually

LIBEXEC = "/usr/libexec/crio"
STORAGE = "/var/lib/containers/storage/overlay-containers"
DROP_IN = "/etc/crio/crio.conf.d/99-gpuhook.conf"
# As /etc/crio/crio.conf.d/10-crio.conf of CRI-O's package.
PACKAGED = """\
[crio.image]
signature_policy = "/etc/crio/policy.json"

[crio.runtime]
default_runtime = "{default}"

[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
runtime_root = "/run/crun"
monitor_path = "/usr/libexec/crio/conmon"
allowed_annotations = [
    "io.containers.trace-syscall",
]

[crio.runtime.runtimes.runc]
runtime_path = "/usr/libexec/crio/runc"
runtime_root = "/run/runc"
monitor_path = "/usr/libexec/crio/conmon"
"""
NAME = f"{written.NAMESPACE}/{written.POD}/{written.CONTAINER}"


@dataclass(frozen=True)
class Handler:
    """The `nvidia` handler of CRI-O's configuration on a node."""

    node: EngineNode
    runtime: str
    root: str
    monitor: str

    @contextmanager
    def container(
        self,
        command: list[str],
        env: list[str] | None = None,
        pod: Mapping[str, str] | None = None,
        kubelet: Mapping[str, str] | None = None,
    ) -> Iterator[Started]:
        """Create and start a container, and delete it in the end.

        `pod` are annotations of the pod, `kubelet` those of the container as the kubelet sends
        them. Raises RuntimeError with the message that CRI-O reports if it cannot be created.
        """
        id_ = uuid4().hex * 2
        bundle = f"/run/containers/storage/overlay-containers/{id_}/userdata"
        root = f"/var/lib/containers/storage/overlay/{id_}/merged"
        roots.copy("debian", self.node.path(root))
        annotations = written.crio_container(id_, root, pod or {}, kubelet)
        log = annotations["io.kubernetes.cri-o.LogPath"]
        self.node.path(log).parent.mkdir(parents=True, exist_ok=True)
        bundles.bundle(
            self.node.path(bundle),
            Path(root),
            command,
            env or [],
            annotations,
            linux={"cgroupsPath": f"/{bundles.CGROUP}/crio-{id_}"},
        )
        made = Started(self, id_, log)
        self._keep(id_, annotations)
        sandbox = annotations["io.kubernetes.cri-o.SandboxID"]
        handler = {"io.kubernetes.cri-o.RuntimeHandler": "nvidia"}
        self._keep(sandbox, {**written.crio_sandbox(pod or {}), **handler})
        try:
            self._create(made, bundle)
            made.call("start", id_)
            yield made
        finally:
            self.node.run(self.runtime, f"--root={self.root}", "delete", "--force", id_)
            for path in (bundle, root, log, STORAGE):
                self.node.check("rm", "-rf", path)

    def _keep(self, id_: str, annotations: Mapping[str, str]) -> None:
        """Write the copy of config.json that CRI-O keeps in its storage."""
        place = self.node.path(f"{STORAGE}/{id_}/userdata")
        place.mkdir(parents=True)
        (place / "config.json").write_text(json.dumps({"annotations": annotations}))

    def _create(self, made: Started, bundle: str) -> None:
        """Run conmon as CRI-O does; it reports the container's process, or an error."""
        state = "/run/crio"
        self.node.check("mkdir", "-p", f"{state}/exits")
        words = ["-b", bundle, "-c", made.id, "-u", made.id, "-n", "k8s_main"]
        words += ["-l", made.log, "--log-level", "info", "--syslog", "--exit-dir", f"{state}/exits"]
        words += ["-P", f"{bundle}/conmon-pidfile", "-p", f"{bundle}/pidfile"]
        words += ["--persist-dir", bundle, "--socket-dir-path", state]
        words += ["-r", self.runtime, "--runtime-arg", f"--root={self.root}"]
        report = f"{bundle}/report"
        run = f'_OCI_SYNCPIPE=3 exec "$@" 3>{report}'
        self.node.check("sh", "-c", run, "sh", self.monitor, *words)
        file = self.node.path(report)
        eventually(lambda: file.read_text().endswith("\n"), "conmon's report")
        said = json.loads(file.read_text().splitlines()[-1])
        if said.get("pid", -1) < 0:
            raise RuntimeError(said["message"])


@dataclass(frozen=True)
class Started:
    """A started container."""

    handler: Handler
    id: str
    log: str

    def call(self, *words: str) -> str:
        """Call the handler's runtime, and return its output."""
        return self.handler.node.check(self.handler.runtime, f"--root={self.handler.root}", *words)

    def exec(self) -> View:
        """Return the probe's view in the running container."""
        return view(self.call("exec", self.id, "/probe"))

    def ended(self) -> View:
        """Wait for the end of the container, whose command is the probe; return its view."""
        exits = self.handler.node.path(f"/run/crio/exits/{self.id}")
        eventually(lambda: exits.exists() and exits.read_text(), f"the end of {self.id}")
        return logged(int(exits.read_text()), self.handler.node.path(self.log)).view


@pytest.fixture(scope="module", params=["runc", "crun"])
def handler(request: pytest.FixtureRequest, node: EngineNode) -> Iterator[Handler]:
    """Yield the handler that `gpuhook configure crio` wrote; undo removes it in the end."""
    low_level = request.param
    node.check("mkdir", "-p", LIBEXEC, "/etc/crio/crio.conf.d")
    for name in ("conmon", "runc", "crun"):
        program = node.check("sh", "-c", f"command -v {name}").strip()
        node.check("ln", "-sf", program, f"{LIBEXEC}/{name}")
    packaged = node.path("/etc/crio/crio.conf.d/10-crio.conf")
    packaged.write_text(PACKAGED.format(default=low_level), encoding="utf-8")
    before = roots.listing(node.path("/etc/crio"))
    node.check("gpuhook", "configure", "crio")
    document = tomllib.loads(node.path(DROP_IN).read_text(encoding="utf-8"))
    found = document["crio"]["runtime"]["runtimes"]["nvidia"]
    with low_level_runtime(node, f"{LIBEXEC}/{low_level}"):
        yield Handler(
            node,
            found["runtime_path"],
            found["runtime_root"],
            found["monitor_path"],
        )
    node.check("gpuhook", "configure", "undo", "crio")
    assert roots.listing(node.path("/etc/crio")) == before
    node.check("rm", "-r", "/etc/crio")


def test_variable_assigns_the_gpu(handler: Handler) -> None:
    with handler.container(["/probe"], ["NVIDIA_VISIBLE_DEVICES=2"]) as made:
        assert gpus(made.ended()) == {handler.node.device(2)}


def test_container_without_a_request_has_no_gpu(handler: Handler) -> None:
    with handler.container(["/probe"]) as made:
        assert made.ended().gpus() == {}


@pytest.mark.parametrize("writer", ["kubelet", "pod"])
def test_annotation_of_the_kubelet_only_is_a_grant(handler: Handler, writer: str) -> None:
    """On a node that assigns no GPU to a variable, a pod's annotation assigns none either."""
    noted = {written.NAME: "nvidia.com/gpu=2"}
    closed = "request: {acceptEnvWhenUnprivileged: false}\n"
    file = handler.node.path("/etc/gpuhook/config.yaml")
    text = file.read_text(encoding="utf-8")
    file.write_text(text + closed, encoding="utf-8")
    try:
        is_grant = writer == "kubelet"
        pod, kubelet = ({}, noted) if is_grant else (noted, {})
        with handler.container(["/probe"], pod=pod, kubelet=kubelet) as made:
            assert gpus(made.ended()) == ({handler.node.device(2)} if is_grant else set())
    finally:
        file.write_text(text, encoding="utf-8")


def test_refused_request_reaches_cri_o(handler: Handler) -> None:
    """conmon reports the error with its code, which CRI-O passes to the kubelet."""
    with (
        pytest.raises(RuntimeError, match=r"GH\d{4}: .*nvidia\.com/gpu=9"),
        handler.container(SLEEP, ["NVIDIA_VISIBLE_DEVICES=9"]),
    ):
        pass


def test_live_commands_by_the_pods_name(handler: Handler) -> None:
    node = handler.node
    with handler.container(SLEEP, ["NVIDIA_VISIBLE_DEVICES=2"]) as made:
        (holder,) = json.loads(node.check("gpuhook", "ps", "-o", "json"))["containers"]
        names = (holder["namespace"], holder["pod"], holder["container"])
        assert (holder["id"], "/".join(names)) == (made.id, NAME)
        node.check("gpuhook", "attach", NAME, "--device", "4")
        assert gpus(made.exec()) == {node.device(2), node.device(4)}
        node.check("gpuhook", "detach", NAME.rpartition("/")[0], "--device", "4")
        assert gpus(made.exec()) == {node.device(2)}
        node.check("gpuhook", "inspect", NAME, "--exit-code")
        assert "nothing to do" in node.check("gpuhook", "repair", NAME)
        assert "0 differences" in node.check("gpuhook", "compare", NAME)
        assert "cri-o" in node.check("gpuhook", "explain", NAME)
        assert made.id[:12] in node.check("gpuhook", "configure", "users", "crio")
