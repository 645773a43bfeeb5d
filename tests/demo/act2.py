# SPDX-License-Identifier: Apache-2.0
"""Act 2: one T4 as four GPUs of a Kubernetes node, two pods on it, and a failure of the GPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.contract.cri import Container, Cri, cri_of
from tests.contract.installation import Installation
from tests.contract.kubelet_side import allocation_of
from tests.demo.page import Page
from tests.kubelet import config_map
from tests.kubelet.config_map import ConfigMap
from tests.kubelet.kubelet import AdmissionError, Allocated, Kubelet
from tests.kubelet.pod_resources import PodResources, pod
from tests.kubelet.process import GPU, OPERATOR, PluginProcess, plugin
from tests.simulated import stub_events
from tests.simulated.node import make_node
from tests.waiting import eventually

PODS = ("gpu-test-1", "gpu-test-2")
NAME = "cuda-vector-add"  # of their container
READY = "ready\n"
PROGRAM = ["/bin/sh", "-c", "nvidia-smi && echo ready; exec sleep 600"]
MEMORY = 3840  # MiB of a replica: a T4 has 15360, for four
LABELS = ("gpu.product", "gpu.replicas", "gpu.replica-memory", "gpu.sharing-strategy")
Rows = list[tuple[str, bool]]


@dataclass(frozen=True)
class Node:
    """A node of a cluster: gpuhook, a kubelet, and containerd with a handler `nvidia`."""

    installation: Installation
    kubelet: Kubelet
    holders: PodResources
    engine: Cri
    configs: ConfigMap

    @property
    def uuid(self) -> str:
        """Return the UUID of its GPU."""
        return str(self.installation.gpu(0).uuid)


def play(page: Page, installation: Installation, place: Path) -> bool:
    """Play the act; returns whether all its expectations were met."""
    page.heading("Act 2: a Kubernetes node whose one T4 is four GPUs")
    if installation.node.host_root == "/":
        page.say("This act uses a simulated g4dn.xlarge, not the GPU of this machine.\n")
    page.say(
        "The device plugin runs with the GPU operator's ConfigMap and environment, unchanged. A"
        " simulated\nkubelet uses the real device plugin protocol. containerd runs the pods by CRI,"
        " with\ngpuhook-runtime as the handler nvidia.\n"
    )
    with ExitStack() as stack:
        node = set_up(stack, installation, place)
        page.say("  The ConfigMap device-plugin-config:")
        page.output(config_map.OPERATORS.read_text(encoding="utf-8").partition("kind:")[0])
        running = stack.enter_context(started(node, place))
        if not page.expectations([*allocatable(page, node), *labelled(page, node)]):
            return False  # the next scenes need the replicas
        page.heading("Act 2, second scene: two pods on it")
        pods = shared(page, stack, node)
        page.heading("Act 2, third scene: the GPU falls off the bus")
        return failed(page, node, running) and pods


def set_up(stack: ExitStack, installation: Installation, place: Path) -> Node:
    """Make the node without the plugin."""
    simulated = make_node(place / "node", "t4")
    made = installation.apart(place / "gpuhook", simulated)
    engine = stack.enter_context(cri_of(made, place))
    kubelet = stack.enter_context(Kubelet(place / "device-plugins"))
    (place / "pod-resources").mkdir()
    holders = stack.enter_context(PodResources(place / "pod-resources/kubelet.sock"))
    configs = ConfigMap(place / "available-configs")
    configs.publish(**config_map.data())
    return Node(made, kubelet, holders, engine, configs)


def started(node: Node, place: Path) -> AbstractContextManager[PluginProcess]:
    """Start the plugin as the operator does."""
    env = {
        **OPERATOR,
        "CONFIG_FILE": "",
        "CONFIG_FILE_SRCDIR": str(node.configs.directory),
        "DEFAULT_CONFIG": "default",
        "NVIDIA_DRIVER_ROOT": node.installation.node.driver_root,
        "POD_RESOURCES_SOCKET": str(node.holders.socket),
    }
    return plugin(place / "plugin", node.installation.node, node.kubelet, env=env)


def allocatable(page: Page, node: Node) -> Rows:
    """Show the allocatable devices after the plugin has registered."""
    page.command("gpuhook device-plugin --config-dir .../available-configs &")
    came = soon(lambda: node.kubelet.wait_for_devices(GPU, 4))
    page.say("  The node's allocatable resources:")
    page.output(f'"{GPU}": "{node.kubelet.allocatable(GPU)}"')
    ids = list(node.kubelet.devices(GPU))
    page.say(f"  Their ids begin with {ids[0] if ids else 'nothing'}.")
    good = came and ids == [f"{node.uuid}::{number}" for number in range(4)]
    return [("one T4 is four allocatable GPUs", good)]


def labelled(page: Page, node: Node) -> Rows:
    """Show the node labels about sharing."""
    words = ["labels", *node.installation.node.options, "--config-dir", str(node.configs.directory)]
    page.command("gpuhook labels --config-dir .../available-configs")
    said = node.installation.gpuhook(*words)
    shown = [line for line in said.stdout.splitlines() if any(f"{n}=" in line for n in LABELS)]
    page.output("\n".join([*shown, "..."]) + said.stderr)
    wanted = {"replicas=4", f"replica-memory={MEMORY}", "product=Tesla-T4-SHARED"}
    good = {f"nvidia.com/gpu.{one}" for one in wanted} <= {*shown}
    return [("the labels have 4 replicas and a -SHARED product", good)]


def shared(page: Page, stack: ExitStack, node: Node) -> bool:
    """Start both pods, and show what they see and which replicas they have."""
    page.say("  Two pods, gpu-test-1 and gpu-test-2, request one GPU each.")
    checkpoint(node)
    got: dict[str, Allocated] = {}
    seen: list[bool] = []
    for name in PODS:
        allocated = node.kubelet.allocate(GPU, 1)
        got[name] = allocated
        container = placed(stack, node, name, allocated)
        said = log_of(node.engine, container)
        page.say(f"  The log of {name}:")
        page.output(said.removesuffix(READY))
        works = f"{node.installation.device(0)} " in said and "denied" not in said
        seen.append(said.endswith(READY) and works)
    page.command("gpuhook ps --kubelet-root .../kubelet")
    root = str(node.kubelet.directory.parent)
    words = ("ps", "--kubelet-root", root)
    page.output(node.installation.gpuhook(*words).stdout)
    listed = json.loads(node.installation.gpuhook(*words, "-o", "json").stdout)
    shares = [use["share"]["bytes"] >> 20 for one in listed["containers"] for use in one["usage"]]
    holders = {one["pod"]: (one["gpus"], one["replicas"]) for one in node.installation.holders()}
    rows = [
        ("both start, and can open the GPU's device node", all(seen)),
        ("both use the same GPU", {*uuids(got)} == {node.uuid}),
        (
            "their share of the memory is a replica's, as in the label",
            shares == [MEMORY] * len(PODS),
        ),
        ("two more GPUs are free", node.kubelet.free(GPU) == 2),
        (
            "gpuhook ps lists both pods, and -o json a replica of each",
            holders == {name: ([node.uuid], list(one.ids)) for name, one in got.items()},
        ),
    ]
    return page.expectations(rows)


def checkpoint(node: Node) -> None:
    """Write the kubelet's checkpoint: the registered devices, from which ps has a pod's share."""
    registered = {GPU: list(node.kubelet.devices(GPU))}
    document = {"Data": {"PodDeviceEntries": None, "RegisteredDevices": registered}, "Checksum": 0}
    path = node.kubelet.directory / "kubelet_internal_checkpoint"
    path.write_text(json.dumps(document), encoding="utf-8")


def log_of(engine: Cri, container: Container) -> str:
    """Return the container's output when it is ready."""
    soon(lambda: eventually(lambda: engine.output(container).endswith(READY)))
    return engine.output(container)


def placed(stack: ExitStack, node: Node, name: str, allocated: Allocated) -> Container:
    """Run a pod with the answer of Allocate, as the kubelet does, and list it as the holder."""
    sandbox = stack.enter_context(node.engine.pod(name))
    told = pod("default", name, NAME, GPU, allocated.ids)
    node.holders.pods = [*node.holders.pods, told]
    return node.engine.container(sandbox, PROGRAM, allocation_of(allocated.response), name=NAME)


def uuids(got: dict[str, Allocated]) -> list[str]:
    """Return the devices in each pod's environment."""
    return [one.response.envs["NVIDIA_VISIBLE_DEVICES"] for one in got.values()]


def failed(page: Page, node: Node, running: PluginProcess) -> bool:
    """Let the GPU fail, and show what the kubelet and the log report."""
    page.say("The driver reports XID 79. All replicas of the GPU become unhealthy:\n")
    lists = node.kubelet.endpoint(GPU).stream.lists
    before = len(lists)
    soon(lambda: running.wait_for_log(event="offered"))  # from now on it waits for XIDs
    stub_events.say(node.installation.node, node.uuid, "recovery 2")
    stub_events.inject_xid(node.installation.node, node.uuid, 79)
    all_of_them = soon(lambda: node.kubelet.wait_for_devices(GPU, 0, 4))
    page.say("  The plugin's log:")
    soon(lambda: running.wait_for_log(reason="GpuUnhealthy"))
    line = next((one for one in running.log() if one.get("reason") == "GpuUnhealthy"), {})
    page.output(str(line.get("event", "nothing")).replace("; ", ";\n  "))
    page.say("  The node's allocatable resources:")
    page.output(f'"{GPU}": "{node.kubelet.allocatable(GPU)}"')
    page.say("  One more pod requests a GPU. The kubelet's answer:")
    refused = refusal(node.kubelet)
    page.output(refused or "it got a GPU")
    rows = [
        (
            "all four replicas become unhealthy, in one message",
            all_of_them and len(lists) == before + 1,
        ),
        ("the log names both pods", line.get("pods") == [f"default/{name}" for name in PODS]),
        ("a new pod gets no replica", bool(refused)),
        ("running pods continue", len(node.installation.holders()) == len(PODS)),
    ]
    return page.expectations(rows)


def refusal(kubelet: Kubelet) -> str:
    """Return why a pod that requests one GPU gets none, "" if it gets one."""
    try:
        kubelet.allocate(GPU, 1)
    except AdmissionError as error:
        return f"UnexpectedAdmissionError: {error}"
    return ""


def soon(awaited: Callable[[], object]) -> bool:
    """Return whether `awaited` ends before its timeout."""
    try:
        awaited()
    except TimeoutError:
        return False
    return True
