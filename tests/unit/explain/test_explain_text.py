# SPDX-License-Identifier: Apache-2.0
"""The text output of `gpuhook explain`: the answer comes first, then the trace."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuhook.cli import main
from tests.simulated.node import make_node

POD = """\
kind: Pod
metadata: {{name: train}}
spec:
  {cls}
  containers:
  - name: main
    image: cuda
    env: [{env}]
    resources: {{limits: {{nvidia.com/gpu: {count}}}}}
"""
CUDA = (
    "NVIDIA_REQUIRE_CUDA=cuda>={cuda} brand=tesla,driver>=470,driver<471 "
    "brand=unknown,driver>=535,driver<536"
)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "none.yaml"))


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments], input=stdin)


def trace(*entries: str, node: str = "t4", wide: bool = False) -> str:
    words = [word for entry in entries for word in ("--env", entry)]
    return run(*words, "--inventory", node, "-o", "wide" if wide else "text").stdout


def answer(text: str) -> str:
    (found,) = [line for line in text.splitlines() if line.startswith("Answer: ")]
    return found.removeprefix("Answer: ")


def pod(
    path: Path, strategy: str = "", *, count: int = 1, env: str = "", cls: str = "nvidia"
) -> list[str]:
    """Return the arguments for a pod with a device plugin that uses this list strategy."""
    named = f"runtimeClassName: {cls}" if cls else "restartPolicy: Always"
    (path / "pod.yaml").write_text(POD.format(cls=named, env=env, count=count), encoding="utf-8")
    plugin = path / "plugin.yaml"
    flags = f"flags: {{plugin: {{deviceListStrategy: {strategy}}}}}\n" if strategy else ""
    plugin.write_text(f"version: v1\n{flags}", encoding="utf-8")
    return [str(path / "pod.yaml"), "--plugin-config", str(plugin), "--inventory=h100x8"]


def test_several_annotations_are_one_source() -> None:
    wishes = [f"--annotation=cdi.k8s.io/{key}=nvidia.com/gpu=0" for key in "xz"]
    text = run(*wishes, "--inventory", "t4").stdout
    assert "won     cdi.k8s.io/x, cdi.k8s.io/z request nvidia.com/gpu=0" in text


@pytest.mark.parametrize(
    ("value", "node", "said"),
    [
        ("0", "t4", "it gets GPU 0 (Tesla T4), not exclusively"),
        ("all", "h100x8", "it gets 8 GPUs: 0, 1, 2, 3, 4, 5, 6, 7 (NVIDIA H100 80GB HBM3)"),
        ("0:1", "a100-mig", "it gets GPU 0:1 (NVIDIA A100-SXM4-40GB MIG 1g.5gb)"),
        ("none", "t4", "it gets the driver's files, but no GPU"),
        ("void", "t4", "it requests nothing, and gets nothing"),
        ("9", "t4", "it does not start: GH1102"),
    ],
)
def test_answer_is_the_first_line(value: str, node: str, said: str) -> None:
    lines = trace(f"NVIDIA_VISIBLE_DEVICES={value}", node=node).splitlines()
    assert lines[2].startswith("Container: ")
    assert lines[3].startswith(f"Answer: {said}")


def test_refused_request_is_in_the_answer() -> None:
    text = run("--mount=/var/run/nvidia-container-devices/0", "--inventory=t4").stdout
    assert answer(text).startswith("it starts without a GPU: GH1007: ignored the request for 0 in")
    assert "hint: if this container needs GPUs, change the setting" in text


@pytest.mark.parametrize(("value", "what"), [("all", "GPUs"), ("none", "the driver's files")])
def test_answer_has_the_reason(
    value: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a node without a driver, the first line says so."""
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", str(tmp_path))
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    text = run("--env", f"NVIDIA_VISIBLE_DEVICES={value}").stdout
    said = (
        f"NVIDIA_VISIBLE_DEVICES requests {what}, but the NVIDIA driver is not loaded on this node"
    )
    without = "the driver's files" if value == "none" else "a GPU"
    assert answer(text).startswith(f"it starts without {without}: GH1008: {said}")


def test_trace_fits_a_screen_and_wide_lists_every_file() -> None:
    entries = ("NVIDIA_VISIBLE_DEVICES=0", CUDA.format(cuda="12.0"))
    short, wide = trace(*entries), trace(*entries, wide=True)
    assert len(short.splitlines()) < 50
    assert max(map(len, short.splitlines())) < 250
    assert "mount /usr/bin/nvidia-smi" not in short
    for line in (
        "  mount /usr/bin/nvidia-smi",
        "brand=unknown",
        "libnvcuvid.so",
        "libcuda.so.1 ->",
    ):
        assert line in wide


def test_refused_container_has_the_reason_and_no_changes() -> None:
    text = trace("NVIDIA_VISIBLE_DEVICES=0,9")
    assert text.count("no such device") == 1
    assert "more: gpuhook explain GH1102" in text
    for title in ("Isolation", "config.json", "Root file system", "Capabilities"):
        assert title not in text.splitlines()


def test_short_form_is_shown_with_its_meaning() -> None:
    text = trace("NVIDIA_VISIBLE_DEVICES=0-2", node="h100x8")
    assert "0-2 means 0, 1, 2" in text
    assert text.count("0-2 -> nvidia.com/gpu=") == 3
    part = trace("NVIDIA_VISIBLE_DEVICES=0-1,9", node="h100x8")
    assert "NVIDIA_VISIBLE_DEVICES: nvidia.com/gpu=9: no such device" in part
    assert "0-1 means 0, 1" in part


@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
def test_settings_that_leave_no_capability_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trace explains a GPU without any file of the driver."""
    node = make_node(tmp_path / "host", "t4")
    file = tmp_path / "config.yaml"
    request = {"driverCapabilities": ["compute"], "defaultDriverCapabilities": ["graphics"]}
    file.write_text(json.dumps({"request": request, "cdi": {"specDirs": [str(tmp_path)]}}))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(file))
    shown = run("--env=NVIDIA_VISIBLE_DEVICES=0", *node.options).stdout
    assert "request.defaultDriverCapabilities applies (graphics)" in shown
    assert "limited by request.driverCapabilities (compute) -> none" in shown


def test_gpu_in_mig_mode_is_marked() -> None:
    text = trace("NVIDIA_VISIBLE_DEVICES=0", node="a100-mig")
    assert "GPU 0 is in MIG mode: only its instances can be requested, 0:0, 0:1" in text


def test_relevant_requirements_are_shown() -> None:
    met = trace("NVIDIA_VISIBLE_DEVICES=0", CUDA.format(cuda="12.0"))
    assert "and 2 alternatives more, not needed" in met
    unmet = trace("NVIDIA_VISIBLE_DEVICES=0", CUDA.format(cuda="99.0"))
    assert "cuda>=99.0 (it is 13.0)" in unmet
    assert "and 2 alternatives more, for GPUs of other brands" in unmet


def test_requirement_without_known_facts_is_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUHOOK_DRIVER_ROOT", str(tmp_path))
    monkeypatch.setenv("GPUHOOK_CDI_SPEC_DIRS", str(tmp_path))
    text = run("--env", "NVIDIA_VISIBLE_DEVICES=0", "--env", "NVIDIA_REQUIRE_CUDA=cuda>=12").stdout
    assert "cuda>=12 (not known)" in text
    assert "it starts" not in text


@pytest.mark.parametrize("strategy", ["cdi-cri", "host-files"])
def test_pod_without_a_runtime_class_gets_its_gpu_by_cdi_or_host_files(
    tmp_path: Path, strategy: str
) -> None:
    arguments = pod(tmp_path, strategy, cls="")
    text = run(*arguments).stdout
    assert answer(text) == "it gets GPU 0 (NVIDIA H100 80GB HBM3), exclusively"
    assert len(text.splitlines()) < 30
    (container,) = json.loads(run(*arguments, "-o", "json").stdout)["containers"]
    route = {"cdi-cri": "cdi", "host-files": "device-plugin"}[strategy]
    assert (container["result"], container["route"]["name"]) == ("gets", route)


def test_requirements_are_enforced_by_the_hook_of_a_cdi_spec(tmp_path: Path) -> None:
    env = "{name: NVIDIA_REQUIRE_X, value: 'arch>=10.0'}"
    arguments = pod(tmp_path, "cdi-cri", cls="", env=env)
    assert answer(run(*arguments).stdout).startswith("it does not start: GH1044")
    (container,) = json.loads(run(*arguments, "-o", "json").stdout)["containers"]
    assert container["requirements"]["verdict"] == "unmet"
    assert "arch>=10.0 (it is 9.0)" in container["fault"]["message"]
    assert container["route"]["note"].startswith("gpuhook-hook")
    met = pod(tmp_path, "cdi-cri", cls="", env=env.replace("10.0", "9.0"))
    assert answer(run(*met).stdout) == "it gets GPU 0 (NVIDIA H100 80GB HBM3), exclusively"


def test_answer_without_a_runtime_class_depends_on_the_default_runtime(tmp_path: Path) -> None:
    assert answer(run(*pod(tmp_path)).stdout).endswith("exclusively")
    assert "if the node's default runtime" in answer(run(*pod(tmp_path, cls="")).stdout)


def test_gpu_requested_by_a_variable_is_not_reserved(tmp_path: Path) -> None:
    env = "{name: NVIDIA_VISIBLE_DEVICES, value: all}"
    (container,) = json.loads(run(*pod(tmp_path, env=env), "-o", "json").stdout)["containers"]
    sharing = {one["gpu"]: one["sharing"] for one in container["isolation"]}
    booked = container["pod"]["allocation"]["resources"][0]["devices"][0]["uuid"]
    assert len(sharing) == 8
    assert {gpu for gpu, how in sharing.items() if how == "none"} == {booked}
    text = run(*pod(tmp_path, env=env)).stdout
    assert "not reserved: this applies if other containers also get the device" in text


def test_refused_mounts_of_a_device_plugin_are_explained(tmp_path: Path) -> None:
    text = run(*pod(tmp_path, "volume-mounts")).stdout
    assert answer(text) == "it does not start: GH1101"
    assert "a device plugin with the list strategy volume-mounts sets it" in text


def test_pod_with_void_starts_without_its_allocated_gpus(tmp_path: Path) -> None:
    env = "{name: NVIDIA_VISIBLE_DEVICES, value: void}"
    text = run(*pod(tmp_path, count=2, env=env)).stdout
    assert answer(text) == "it starts without the GPUs that are allocated to it"
    assert "the device plugin allocates 2 of nvidia.com/gpu" in text


def test_misspelt_runtime_class_has_a_suggestion(tmp_path: Path) -> None:
    assert "did you mean nvidia?" in run(*pod(tmp_path, cls="nvdia")).stdout
    assert "meant?" not in run(*pod(tmp_path, cls="sandbox")).stdout


def test_premises_are_printed_before_the_trace() -> None:
    text = run("--inventory=t4", "--env=NVIDIA_VISIBLE_DEVICES=0", "--privileged").stdout
    assert text.index("also those of all GPUs") < text.index("Request")
    request = {"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=0"]}
    host = {"Runtime": "runc", "DeviceRequests": [request]}
    docker = run("-", "--inventory=t4", stdin=json.dumps([{"Config": {}, "HostConfig": host}]))
    assert "its runtime is runc; this explains gpuhook-runtime as its runtime" in docker.stdout
    assert "Docker itself applies the CDI devices nvidia.com/gpu=0" in docker.stdout
    assert "--gpus" not in docker.stdout


def test_objections_are_ordered_by_severity(tmp_path: Path) -> None:
    text = run(*pod(tmp_path, count=9, env="{name: NVIDIA_VISIBLE_DEVICES, value: all}")).stdout
    assert answer(text).startswith(
        "Kubernetes does not schedule it to this node: 0/1 nodes are available"
    )
    assert text.index("pending by the scheduler") < text.index("warning by the kubelet")


def test_unknown_gpus_are_not_answered(tmp_path: Path) -> None:
    arguments = pod(tmp_path)[:3]
    empty = tmp_path / "root"
    empty.mkdir()
    settings = tmp_path / "none.yaml"
    settings.write_text(f"cdi: {{specDirs: [{empty}]}}\n", encoding="utf-8")
    done = CliRunner().invoke(
        main, ["explain", *arguments], env={"GPUHOOK_DRIVER_ROOT": str(empty)}
    )
    assert "its GPUs are unknown here" in answer(done.stdout)


def test_common_notes_are_printed_once(tmp_path: Path) -> None:
    path = pod(tmp_path)[0]
    text = Path(path).read_text(encoding="utf-8")
    note = "a manifest does not have the image's variables"
    two = run("-", "--inventory=h100x8", stdin=f"{text}---\n{text}").stdout
    assert two.count(note) == 1
    assert run("-", "--inventory=h100x8", stdin=text).stdout.count(note) == 1


def test_containers_that_do_not_start_are_first(tmp_path: Path) -> None:
    good = Path(pod(tmp_path)[0]).read_text(encoding="utf-8")
    bad = good.replace("train", "wide").replace("gpu: 1", "gpu: 9")
    lines = run("-", "--inventory=h100x8", stdin=f"{good}---\n{bad}").stdout.splitlines()
    start = lines.index("Answers: 1 of 2 containers would start")
    assert lines[start + 1].startswith("  Pod/wide in default, container main")
    assert "Kubernetes does not schedule it to this node: 0/1 nodes" in lines[start + 1]
    assert "it gets GPU 0" in lines[start + 2]


def test_pods_of_one_call_compete_for_the_node(tmp_path: Path) -> None:
    path, _, plugin, _ = pod(tmp_path)
    one = Path(path).read_text(encoding="utf-8")
    text = f"{one}---\n{one.replace('train', 'second')}"
    done = run("-", "--inventory=t4", stdin=text)
    assert "Answers: 1 of 2 containers would start" in done.stdout
    together = "Together they request 2 nvidia.com/gpu; this node offers 1; 1 container stays"
    assert f"{together} Pending" in done.stdout
    assert done.exit_code == 1
    (found,) = json.loads(run("-", "--inventory=t4", "-ojson", stdin=text).stdout)["contention"]
    assert (found["requested"], found["offered"]) == (2, 1)
    assert [name.partition(" ")[0] for name in found["pending"]] == ["Pod/second"]
    Path(plugin).write_text(
        "{version: v1, sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}}",
        encoding="utf-8",
    )
    shared = run("-", "--inventory=t4", "--plugin-config", plugin, stdin=text)
    assert "Answers: 2 of 2 containers would start" in shared.stdout
    assert "Together" not in shared.stdout
    assert shared.exit_code == 0


def test_pods_that_fit_are_not_pending_after_one_that_does_not(tmp_path: Path) -> None:
    one = Path(pod(tmp_path, count=5)[0]).read_text(encoding="utf-8")
    wide, small = one.replace("train", "wide"), one.replace("train", "small").replace(": 5", ": 3")
    text = "---\n".join((one, wide, small))
    (found,) = json.loads(run("-", "--inventory=h100x8", "-ojson", stdin=text).stdout)["contention"]
    assert (found["requested"], found["offered"]) == (13, 8)
    assert [name.partition(" ")[0] for name in found["pending"]] == ["Pod/wide"]


def test_malformed_request_is_not_called_absent() -> None:
    text = trace("NVIDIA_VISIBLE_DEVICES=\x1b[31m")
    assert answer(text) == "it does not start: GH1004"
    assert "no variable" not in text
    assert "\x1b" not in text


def graph(*arguments: str) -> Any:
    return run(*arguments, "--dot").stdout


def test_graph_shows_the_result_and_containers_without_a_request(tmp_path: Path) -> None:
    bad = graph(*pod(tmp_path, count=9))
    assert "Kubernetes does not schedule it to this node" in bad
    assert "no variable, annotation" in bad
    good = graph(*pod(tmp_path, "cdi-cri"))
    assert "it gets these" in good
    assert '"GPU 0"' in good


def test_control_characters_of_a_manifest_are_escaped() -> None:
    pod = '{"kind": "Pod", "spec": {"containers": [{"name": "\\u001b[2J\\nx"}]}}'
    text = run("-", "--inventory", "t4", stdin=pod).stdout
    assert "x (standard input:1)" in text
    assert all(line.isprintable() for line in text.splitlines())


def on_node(tmp_path: Path, text: str) -> Result:
    """Explain a manifest on a simulated node whose containerd has no handler but runc."""
    node = make_node(tmp_path / "node", "t4")
    root = Path(node.host_root)
    (root / "etc/containerd").mkdir(parents=True, exist_ok=True)
    (root / "etc/containerd/config.toml").write_text("version = 2\n", encoding="utf-8")
    return run("-", *node.options, stdin=text)


def manifest(cls: str = "", **spec: object) -> str:
    containers = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]
    named = {"runtimeClassName": cls} if cls else {}
    whole = {"containers": containers, **named, **spec}
    return json.dumps({"kind": "Pod", "metadata": {"name": "p"}, "spec": whole})


def test_pod_of_another_model_is_not_scheduled() -> None:
    text = manifest("nvidia", nodeSelector={"nvidia.com/gpu.product": "other"})
    done = run("-", "--inventory=t4", stdin=text)
    assert done.exit_code == 1
    assert answer(done.stdout) == (
        "Kubernetes does not schedule it to this node: 0/1 nodes are available: 1 node(s) didn't "
        "match Pod's node affinity/selector: nodeSelector nvidia.com/gpu.product=other"
    )
    assert "write instead: nvidia.com/gpu.product: Tesla-T4, which this node has" in done.stdout
    assert "nodeSelector nvidia.com/gpu.product=other: does not match, the node" in done.stdout


def test_answer_has_the_condition_of_unknown_labels() -> None:
    text = manifest("nvidia", nodeSelector={"disktype": "ssd"})
    done = run("-", "--inventory=t4", stdin=text)
    assert done.exit_code == 0
    condition = ", if the node meets the pod's requirements that were not evaluated"
    assert answer(done.stdout).endswith(f"exclusively{condition}")
    assert "nodeSelector disktype=ssd: not judged, gpuhook does not know this label" in done.stdout


def test_engine_without_the_handler_of_a_runtime_class(tmp_path: Path) -> None:
    done = on_node(tmp_path, manifest("nvidia"))
    assert done.exit_code == 0
    assert answer(done.stdout).endswith(
        ", if RuntimeClass nvidia refers to a handler of the engine"
    )
    assert "warning by the engine: Failed to create pod sandbox" in done.stdout
    assert "by the engine" not in run("-", "--inventory=t4", stdin=manifest("nvidia")).stdout


def test_runtime_class_of_the_manifest_without_a_handler(tmp_path: Path) -> None:
    named = {"kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "fast"}
    items = [named, json.loads(manifest("nvidia"))]
    done = on_node(tmp_path, json.dumps({"kind": "List", "items": items}))
    assert done.exit_code == 1
    assert answer(done.stdout).startswith("Kubernetes does not create it: Failed to create pod")
    assert 'no runtime for "fast" is configured' in done.stdout
    assert "runtimeClassName nvidia: its handler is fast" in done.stdout
