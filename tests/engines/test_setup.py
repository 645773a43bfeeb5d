# SPDX-License-Identifier: Apache-2.0
"""`gpuhook setup` on nodes with Docker, podman and containerd: plan, run, proof, undo."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.runtimes import Result
from tests.engines.docker_engine import DAEMON_JSON, daemon_json, dockerd
from tests.engines.engine_node import EngineNode
from tests.engines.podman_user import PodmanUser
from tests.engines.terminal import CTRL_C, CTRL_D, on_terminal
from tests.simulated import build

SPEC, FILE = "/var/run/cdi/nvidia.yaml", "/run/cdi/nvidia.yaml"  # /var/run is a link to /run
SMI = "/usr/bin/nvidia-smi"
# The files of a node without those of its engines and without gpuhook's state in /run.
LISTING = r"""
cd /
find etc opt root home usr/local var run/cdi -xdev \
    ! -path 'var/log/*' ! -path 'var/lib/containerd*' ! -path 'var/lib/docker*' \
    ! -path 'var/cache/*' ! -path 'root/.cache*' ! -path 'home/*/.local/share/containers*' \
    \( -printf '%p %M %u:%g %l\n' -type f -exec sha256sum {} + -o -true \) | sort
"""
FOREIGN = '{"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}}}\n'


@pytest.fixture(scope="module")
def smi(node: EngineNode) -> Iterator[EngineNode]:
    """Yield the node with a program for nvidia-smi that lists the GPUs it can open."""
    place = node.path(SMI)
    before = place.read_bytes()
    place.unlink()
    shutil.copy(build.smi_list(node.gpus.node.gpus), place)
    try:
        yield node
    finally:
        place.unlink()
        place.write_bytes(before)
        place.chmod(0o755)


@pytest.fixture
def bare(smi: EngineNode) -> Iterator[EngineNode]:
    """Yield the node without a CDI spec and configuration; its tree must be the same in the end."""
    before = smi.path(FILE).read_bytes()
    smi.check("rm", SPEC)
    tree = listing(smi)
    try:
        yield smi
        assert listing(smi) == tree
    finally:
        for engine in ("containerd", "docker", "podman"):
            smi.run("gpuhook", "configure", "undo", engine)
        smi.path(FILE).write_bytes(before)


def listing(node: EngineNode) -> list[str]:
    """Return each file with mode, owner and content; no time."""
    return node.check("sh", "-c", LISTING).splitlines()


def setup(node: EngineNode, *words: str, rc: int = 0) -> Result:
    """Run `gpuhook setup`, which must end with this status."""
    done = node.run("gpuhook", "setup", *words)
    assert done.rc == rc, done
    return done


def document(node: EngineNode, *words: str, rc: int = 0) -> dict[str, Any]:
    """Return the document of `gpuhook setup`."""
    return dict(json.loads(setup(node, *words, "-o", "json", rc=rc).stdout))


def states(found: dict[str, Any]) -> dict[str, str]:
    """Return the state of each step; that of an engine by its name."""
    steps = {"engine": "{}", "container": "container of {}"}
    return {
        steps.get(one["step"], one["step"]).format(one["engine"]): one["state"]
        for one in found["results"]
    }


def seen(found: dict[str, Any], engine: str) -> list[str]:
    """Return the UUIDs of the GPUs that the container of an engine has listed."""
    (lines,) = [
        one["lines"]
        for one in found["results"]
        if (one["step"], one["engine"]) == ("container", engine)
    ]
    return [line.rpartition("UUID: ")[2].rstrip(")") for line in lines if "UUID: " in line]


def undo(node: EngineNode, commands: Sequence[str]) -> None:
    """Run the commands that setup has printed."""
    for command in commands:
        node.check("sh", "-c", command)


def first_gpu(node: EngineNode) -> str:
    """Return the UUID of the first GPU."""
    return str(node.gpus.node.gpus[0].uuid)


def test_docker(bare: EngineNode, docker_image: str) -> None:
    """The plan is shown; --yes carries it out; Docker's container has its GPU; undo is complete."""
    del docker_image
    with daemon_json(bare, "{}\n"):
        tree = listing(bare)
        plan = setup(bare, "--dry-run", "--engine", "docker").stdout
        shown = bare.check("gpuhook", "configure", "docker", "--dry-run")
        assert shown.startswith(f"--- a{DAEMON_JSON}")
        assert shown in plan
        assert f"write {SPEC}" in plan
        refused = setup(bare, "--engine", "docker", rc=2)
        assert shown in refused.stdout
        assert "GH2114" in refused.stderr
        assert listing(bare) == tree
        found = document(bare, "--yes", "--engine", "docker")
        assert states(found) == {
            "specs": "done",
            "docker": "done",
            "doctor": "done",
            "container of docker": "skipped",  # dockerd does not run
        }
        written = listing(bare)
        with dockerd(bare):
            images = bare.check("docker", "images", "--all", "--quiet")
            again = document(bare, "--yes", "--engine", "docker")
            assert states(again) == {
                "specs": "unchanged",
                "docker": "unchanged",
                "doctor": "done",
                "container of docker": "done",
            }
            assert seen(again, "docker") == [first_gpu(bare)]
            assert bare.check("docker", "images", "--all", "--quiet") == images
            assert not bare.check("docker", "ps", "--all", "--quiet")
        assert listing(bare) == written
        assert found["undo"] == ["gpuhook configure undo docker", f"rm {SPEC}"]
        undo(bare, found["undo"])
        assert listing(bare) == tree


def test_running_docker(bare: EngineNode, docker_image: str) -> None:
    """A dockerd that reads the files at SIGHUP is reloaded; another one is not restarted."""
    del docker_image
    with daemon_json(bare, "{}\n"), dockerd(bare):
        pid = bare.check("pidof", "dockerd")
        found = document(bare, "--yes", "--engine", "docker")
        is_reloaded = bare.release.suite != "trixie"
        assert found["engines"][0]["restarts"] == is_reloaded
        assert states(found)["container of docker"] == ("done" if is_reloaded else "skipped")
        assert bare.check("pidof", "dockerd") == pid
        if is_reloaded:
            assert seen(found, "docker") == [first_gpu(bare)]
        else:
            tree = listing(bare)
            assert "GH2007" in setup(bare, "--yes", "--engine", "docker", "--restart", rc=1).stderr
            assert listing(bare) == tree
        undo(bare, found["undo"])


def test_runtime_of_nvidia(bare: EngineNode, docker_image: str) -> None:
    """NVIDIA's runtime is kept beside a second one, unless --take-over replaces it."""
    del docker_image
    with daemon_json(bare, FOREIGN):
        node = document(bare, "--dry-run", "--engine", "docker")["node"]
        assert any("/usr/bin/nvidia-container-runtime" in one for one in node["nvidia"])
        for words, name in ((), "gpuhook"), (("--take-over",), "nvidia"):
            found = document(bare, "--yes", "--engine", "docker", *words)
            assert found["engines"][0]["runtimeName"] == name
            is_kept = any("it is kept" in one for one in found["engines"][0]["notes"])
            assert is_kept != bool(words)
            runtimes = json.loads(bare.path(DAEMON_JSON).read_text())["runtimes"]
            program = "/usr/bin/gpuhook-runtime"
            assert runtimes[name] == {"path": program}
            assert (runtimes["nvidia"]["path"] == program) == bool(words)
            with dockerd(bare):
                again = document(bare, "--yes", "--engine", "docker")
                assert seen(again, "docker") == [first_gpu(bare)]
            undo(bare, found["undo"])


def test_podman(bare: EngineNode, podman_image: str) -> None:
    """podman needs the CDI spec only; its container has its GPU, also that of a user."""
    del podman_image
    user = PodmanUser(bare, is_rootless=True, runtime="runc")
    refused = user.run("gpuhook", "setup", "--yes")
    assert (refused.rc, "GH2112" in refused.stderr) == (1, True), refused
    assert not bare.path(FILE).exists()
    found = document(bare, "--yes", "--engine", "podman")
    assert states(found) == {
        "specs": "done",
        "podman": "unchanged",
        "doctor": "done",
        "container of podman": "done",
    }
    assert seen(found, "podman") == [first_gpu(bare)]
    assert found["undo"] == [f"rm {SPEC}"]
    done = user.run("gpuhook", "setup", "--yes", "-o", "json")
    assert done.rc == 0, done
    of_user = json.loads(done.stdout)
    assert [one["engine"] for one in of_user["engines"]] == ["podman"]
    assert seen(of_user, "podman") == [first_gpu(bare)]
    refused = user.run("gpuhook", "setup", "--yes", "--engine", "docker")
    assert (refused.rc, "GH2112" in refused.stderr) == (1, True), refused
    user.podman("system", "migrate")  # its first process keeps the mount namespace
    undo(bare, found["undo"])


def test_containerd_of_a_cluster(bare: EngineNode) -> None:
    """A node of Kubernetes gets the handler of the kubelet's engine; the plan names the chart."""
    bare.check("mkdir", "-p", "/var/lib/kubelet/device-plugins")
    try:
        plan = setup(bare, "--dry-run").stdout
        assert bare.check("gpuhook", "configure", "containerd", "--dry-run") in plan
        assert "docs/start/kubernetes.md" in plan
        found = document(bare, "--yes")
        assert [one["engine"] for one in found["engines"]] == ["containerd"]
        assert seen(found, "containerd") == [first_gpu(bare)]
        undo(bare, found["undo"])
    finally:
        bare.check("rm", "-r", "/var/lib/kubelet")


def test_engine_that_is_not_here(bare: EngineNode) -> None:
    assert "GH2113" in setup(bare, "--yes", "--engine", "crio", rc=1).stderr
    assert setup(bare, "--engine", "lxc", rc=2).stdout == ""


def test_spec_of_another_program(bare: EngineNode, podman_image: str) -> None:
    """A spec that gpuhook did not write is kept, and podman's container has its GPU by it."""
    del podman_image
    spec = json.loads(bare.check("gpuhook", "generate-cdi", "--hooks", "none", "-o", "json"))
    spec["containerEdits"]["env"] = ["LD_LIBRARY_PATH=/usr/local/nvidia/lib64"]
    bare.check("mkdir", "-p", "/etc/cdi")
    bare.path("/etc/cdi/nvidia.json").write_text(json.dumps(spec), encoding="utf-8")
    try:
        found = document(bare, "--yes", "--engine", "podman")
        assert (states(found)["specs"], found["undo"]) == ("unchanged", [])
        assert found["node"]["nvidia"] == ["CDI spec: /etc/cdi/nvidia.json"]
        assert not bare.path(FILE).exists()
        assert seen(found, "podman") == [first_gpu(bare)]
    finally:
        bare.check("rm", "-r", "/etc/cdi")


@contextmanager
def hidden(node: EngineNode, path: str, text: str | None = None) -> Iterator[None]:
    """Let a file have another text meanwhile, or a directory be empty."""
    node.check("mkdir", "-p", "/run/hidden")
    node.path("/run/hidden.text").write_text(text or "", encoding="utf-8")
    node.check("mount", "--bind", "/run/hidden.text" if text else "/run/hidden", path)
    try:
        yield
    finally:
        node.check("umount", path)


def test_driver_that_does_not_work(bare: EngineNode) -> None:
    """The root cause of doctor ends setup before any change."""
    version = "/proc/driver/nvidia/version"
    other = bare.path(version).read_text().replace("580.95.05", "570.1.1")
    with hidden(bare, version, other):
        refused = setup(bare, "--yes", rc=1)
        assert "GH2111" in refused.stderr
        assert "driver.version" in refused.stderr
        assert "570.1.1" in refused.stderr
    with hidden(bare, "/proc/driver/nvidia"):
        assert "no NVIDIA GPU" in setup(bare, "--yes", rc=1).stderr


def test_engine_that_cannot_be_configured(bare: EngineNode) -> None:
    """A daemon.json that Docker does not read ends setup before any change."""
    with daemon_json(bare, "{"):
        refused = setup(bare, "--yes", "--engine", "docker", rc=1)
        assert "GH2003" in refused.stderr
        assert not bare.path(FILE).exists()


def test_container_that_sees_another_gpu(bare: EngineNode, podman_image: str) -> None:
    """A proof that fails is an error; what was done is printed with its undo."""
    del podman_image
    gpus = bare.gpus.node.gpus
    other = [replace(gpu, uuid=gpus[gpu.index - 1].uuid) for gpu in gpus]
    shutil.copy(build.smi_list(other), bare.path("/run/other-smi"))
    bare.check("mount", "--bind", "/run/other-smi", SMI)
    try:
        found = document(bare, "--yes", "--engine", "podman", rc=1)
    finally:
        bare.check("umount", SMI)
    assert states(found)["container of podman"] == "failed"
    assert found["results"][-1]["error"]["code"] == "GH2115"
    assert not bare.check("podman", "ps", "--all", "--quiet")
    undo(bare, found["undo"])


ENGINE, CONSENT = "Engine to set up", "Carry out this plan"


@pytest.mark.parametrize(
    ("answers", "is_done"),
    [
        ([(ENGINE, "podman\n"), (CONSENT, "\n")], True),
        ([(ENGINE, "\n"), (CONSENT, "n\n")], False),
        ([(ENGINE, "nothing\n"), (ENGINE, "podman\n"), (CONSENT, CTRL_C)], False),
        ([(ENGINE, CTRL_D)], False),
    ],
    ids=["yes", "no", "ctrl-c", "end"],
)
def test_questions(
    bare: EngineNode, podman_image: str, answers: list[tuple[str, str]], is_done: bool
) -> None:
    """On a terminal, setup asks before it changes anything."""
    del podman_image
    done = on_terminal(bare, answers, "gpuhook", "setup")
    assert (done.rc == 0) == is_done, done
    assert bare.path(FILE).exists() == is_done
    assert ("nothing was changed" in done.stdout) != is_done or CTRL_C in dict(answers).values()
    if is_done:
        assert f"(UUID: {first_gpu(bare)})" in done.stdout
        bare.check("rm", SPEC)


def test_question_of_the_runtime(bare: EngineNode) -> None:
    """The user chooses what happens to another program's runtime."""
    with daemon_json(bare, FOREIGN):
        for answer, name in (("\n", "gpuhook"), ("take-over\n", "nvidia"), ("skip\n", "")):
            question = [("Runtime (second, take-over, skip)", answer), (CONSENT, "n\n")]
            done = on_terminal(bare, question, "gpuhook", "setup", "--engine", "docker")
            assert (f"add the runtime {name}," in done.stdout) == bool(name), done
