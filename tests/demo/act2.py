# SPDX-License-Identifier: Apache-2.0
"""Act 2: one T4 as four GPUs of a Kubernetes node, two pods on it, and a fault that takes all."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.contract.cri import Container, Cri, cri_of
from tests.contract.installation import Installation
from tests.contract.kubelet_side import read
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
    """Play the act; returns whether everything that it promises was seen."""
    page.heading("Act 2: a Kubernetes node whose one T4 is four GPUs")
    if installation.node.host_root == "/":
        page.say("This machine's own GPU has a rest: the act plays on a simulated g4dn.xlarge.\n")
    page.say(
        "The GPU operator's ConfigMap and the environment of its values.yaml, unchanged; a kubelet"
        " that\nspeaks the real protocol; containerd, to which it speaks CRI, with gpuhook-runtime"
        " as its\nhandler nvidia.\n"
    )
    with ExitStack() as stack:
        node = set_up(stack, installation, place)
        page.command("kubectl --namespace gpu-operator get configmap device-plugin-config -o yaml")
        page.output(config_map.OPERATORS.read_text(encoding="utf-8").partition("kind:")[0])
        running = stack.enter_context(started(node, place))
        if not page.promises([*allocatable(page, node), *labelled(page, node)]):
            return False  # there is nothing to go on with
        page.heading("Act 2, second scene: two pods on it")
        pods = shared(page, stack, node)
        page.heading("Act 2, third scene: the GPU falls off the bus")
        return failed(page, node, running) and pods


def set_up(stack: ExitStack, installation: Installation, place: Path) -> Node:
    """Make the node, all of it but the plugin."""
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
    """Show what the kubelet has after the plugin came."""
    page.command("gpuhook device-plugin --config-dir .../available-configs &")
    came = soon(lambda: node.kubelet.wait_for_devices(GPU, 4))
    page.command("kubectl get node -o jsonpath='{.status.allocatable}'")
    page.output(f'"{GPU}": "{node.kubelet.allocatable(GPU)}"')
    ids = list(node.kubelet.devices(GPU))
    page.say(f"  The kubelet knows them as {ids[0] if ids else 'nothing'} and so on.")
    good = came and ids == [f"{node.uuid}::{number}" for number in range(4)]
    return [("one T4 is four allocatable GPUs", good)]


def labelled(page: Page, node: Node) -> Rows:
    """Show the labels of the node that tell of it."""
    words = ["labels", *node.installation.node.options, "--config-dir", str(node.configs.directory)]
    page.command("gpuhook labels --config-dir .../available-configs")
    said = node.installation.gpuhook(*words)
    shown = [line for line in said.stdout.splitlines() if any(f"{n}=" in line for n in LABELS)]
    page.output("\n".join([*shown, "..."]) + said.stderr)
    wanted = {"nvidia.com/gpu.replicas=4", "nvidia.com/gpu.product=Tesla-T4-SHARED"}
    return [("the labels tell of four, and that they are shared", wanted <= {*shown})]


def shared(page: Page, stack: ExitStack, node: Node) -> bool:
    """Start both pods, look what they see, and who holds what."""
    page.command("kubectl apply -f gpu-test.yaml     # gpu-test-1, gpu-test-2: one GPU each")
    got: dict[str, Allocated] = {}
    seen: list[bool] = []
    for name in PODS:
        allocated = node.kubelet.allocate(GPU, 1)
        got[name] = allocated
        container = placed(stack, node, name, allocated)
        said = log_of(node.engine, container)
        page.command(f"kubectl logs {name}")
        page.output(said.removesuffix(READY))
        works = f"{node.installation.device(0)} " in said and "denied" not in said
        seen.append(said.endswith(READY) and works)
    page.command("gpuhook ps")
    page.output(node.installation.gpuhook("ps").stdout)
    holders = {one["pod"]: (one["gpus"], one["replicas"]) for one in node.installation.holders()}
    rows = [
        ("both started, and open the GPU's node", all(seen)),
        ("both are on the one GPU", {*uuids(got)} == {node.uuid}),
        ("two more GPUs are free", node.kubelet.free(GPU) == 2),
        (
            "gpuhook ps names both pods, with a replica each",
            holders == {name: ([node.uuid], list(one.ids)) for name, one in got.items()},
        ),
    ]
    return page.promises(rows)


def log_of(engine: Cri, container: Container) -> str:
    """Return what the container has said when it is ready."""
    soon(lambda: eventually(lambda: engine.output(container).endswith(READY)))
    return engine.output(container)


def placed(stack: ExitStack, node: Node, name: str, allocated: Allocated) -> Container:
    """Run a pod with what Allocate answered, as the kubelet does, and tell who holds it."""
    sandbox = stack.enter_context(node.engine.pod(name))
    told = pod("default", name, NAME, GPU, allocated.ids)
    node.holders.pods = [*node.holders.pods, told]
    return node.engine.container(sandbox, PROGRAM, read(allocated.response), name=NAME)


def uuids(got: dict[str, Allocated]) -> list[str]:
    """Return the devices in each pod's environment."""
    return [one.response.envs["NVIDIA_VISIBLE_DEVICES"] for one in got.values()]


def failed(page: Page, node: Node, running: PluginProcess) -> bool:
    """Let the GPU fail, and show what the kubelet and the pods get to know."""
    page.say("The driver reports XID 79. It is one GPU, so no replica of it is any good:\n")
    lists = node.kubelet.endpoint(GPU).stream.lists
    before = len(lists)
    soon(lambda: running.wait_for_log(event="offered"))  # from now on it waits for XIDs
    stub_events.say(node.installation.node, node.uuid, "recovery 2")
    stub_events.inject_xid(node.installation.node, node.uuid, 79)
    all_of_them = soon(lambda: node.kubelet.wait_for_devices(GPU, 0, 4))
    page.command("kubectl logs daemonset/nvidia-device-plugin")
    soon(lambda: running.wait_for_log(reason="GpuUnhealthy"))
    line = next((one for one in running.log() if one.get("reason") == "GpuUnhealthy"), {})
    page.output(str(line.get("event", "nothing")).replace("; ", ";\n  "))
    page.command("kubectl get node -o jsonpath='{.status.allocatable}'")
    page.output(f'"{GPU}": "{node.kubelet.allocatable(GPU)}"')
    page.command("kubectl apply -f one-more.yaml")
    refused = refusal(node.kubelet)
    page.output(refused or "it got a GPU")
    rows = [
        ("all four replicas go, in one message", all_of_them and len(lists) == before + 1),
        ("the log names both pods", line.get("pods") == [f"default/{name}" for name in PODS]),
        ("nobody else is given a part of it", bool(refused)),
        ("who runs there goes on", len(node.installation.holders()) == len(PODS)),
    ]
    return page.promises(rows)


def refusal(kubelet: Kubelet) -> str:
    """Return why a pod that requests one GPU gets none, "" if it gets one."""
    try:
        kubelet.allocate(GPU, 1)
    except AdmissionError as error:
        return f"UnexpectedAdmissionError: {error}"
    return ""


def soon(awaited: Callable[[], object]) -> bool:
    """Return whether what is awaited came."""
    try:
        awaited()
    except TimeoutError:
        return False
    return True
