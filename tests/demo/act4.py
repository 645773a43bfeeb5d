# SPDX-License-Identifier: Apache-2.0
"""Act 4: two pods share a GPU's memory; one exceeds its share, and only that one fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from gpuhook.vendors.inventory import inventory_file
from tests.contract import kubelet_side, roots
from tests.contract.bundles import CGROUP as CGROUPS
from tests.contract.bundles import bundle
from tests.contract.installation import Installation
from tests.contract.live import Live
from tests.contract.runtimes import lifecycle, run_command, runtime_environment
from tests.demo.act2 import Rows, soon
from tests.demo.page import Page
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.pod_resources import PodResources, pod
from tests.kubelet.process import GPU, PluginProcess, plugin
from tests.simulated import driver_memory
from tests.simulated.driver_memory import DriverMemory
from tests.simulated.node import make_node
from tests.waiting import eventually

ENGINE, CGROUP = "runc", "v2"
NAME = "main"  # of the containers
SHARE = 3776  # MiB: a T4 has 15360, less a reserve of 256, for four
KEPT = 3000  # what the pod within its share allocates
MUCH = 8000  # what the greedy pod requests at once; the GPU has more free
PROFILE = Path(inventory_file.PROFILES) / "t4.yaml"
OLD, NEW = "580.95.05", "615.71.05"  # drivers from before and after the call for limits
CONFIG = """\
version: v1
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, replicas: 4, memory: fair}
gpuhook:
  guard: {action: kill, grace: 1s, killAfter: 1s, shortestInterval: 200ms, longestInterval: 1s}
"""


@dataclass(frozen=True)
class Node:
    """A node of a cluster whose GPU has memory that programs can allocate."""

    installation: Installation
    kubelet: Kubelet
    holders: PodResources
    memory: DriverMemory
    place: Path

    @property
    def uuid(self) -> str:
        """Return the UUID of its GPU."""
        return str(self.installation.gpu(0).uuid)


def play(page: Page, installation: Installation, place: Path) -> bool:
    """Play the act; returns whether everything that it promises was seen."""
    page.heading("Act 4: memory limits")
    page.say(
        "A T4 has four replicas; two pods get one each. With `memory: fair` in the ConfigMap, the"
        f"\nlimit of each replica is {SHARE} MiB. `guard` is for the second scene."
        f"\n\nThis act uses other nodes. The first has driver {NEW} (CUDA 13.4): drivers before 615"
        "\ncannot enforce limits. The containers are real. The GPU's memory is simulated, and"
        "\naccounted for each cgroup, as NVIDIA's driver does.\n"
    )
    page.output(CONFIG)
    with set_up(installation, place / "new", is_new=True) as node:
        held = bounded(page, node)
    page.heading("Act 4, second scene: an older driver")
    page.say(
        f"The driver of this node is {OLD} (CUDA 13.0), which cannot enforce limits. The plugin"
        " monitors the\nmemory, as the line `guard` of the ConfigMap requires. A container that"
        " exceeds its limit for\na second gets SIGTERM, and SIGKILL a second later.\n"
    )
    with set_up(installation, place / "old", is_new=False) as node:
        return watched(page, node) and held


@contextmanager
def set_up(installation: Installation, place: Path, *, is_new: bool) -> Iterator[Node]:
    """Give a node whose driver can enforce limits, or one with an older driver."""
    place.mkdir(parents=True)
    simulated = make_node(place / "node", profile(place, is_new=is_new), memory_limits=is_new)
    made = installation.apart(place / "gpuhook", simulated, limits={"onFailure": "start"})
    (place / "pod-resources").mkdir()
    with (
        Kubelet(place / "device-plugins") as kubelet,
        PodResources(place / "pod-resources/kubelet.sock") as holders,
        driver_memory.serving(place, simulated) as memory,
    ):
        yield Node(made, kubelet, holders, memory, place)


def profile(place: Path, *, is_new: bool) -> str:
    """Return the inventory of a node with a T4 and a driver of that age."""
    if not is_new:
        return str(PROFILE)
    text = PROFILE.read_text(encoding="utf-8")
    assert OLD in text
    written = place / "t4.yaml"
    written.write_text(text.replace(OLD, NEW).replace("cuda: '13.0'", "cuda: '13.4'"), "utf-8")
    return str(written)


@contextmanager
def offering(node: Node) -> Iterator[PluginProcess]:
    """Run the plugin on a node with cgroup v2."""
    env = {
        "NVIDIA_DRIVER_ROOT": node.installation.node.driver_root,
        "POD_RESOURCES_SOCKET": str(node.holders.socket),
        "GPUHOOK_STATE_DIR": str(node.installation.state),
    }
    prefix = runtime_environment(ENGINE, CGROUP).prefix
    place, simulated = node.place / "plugin", node.installation.node
    with plugin(place, simulated, node.kubelet, CONFIG, env=env, prefix=prefix) as running:
        node.kubelet.wait_for_devices(GPU, 4)
        yield running


@contextmanager
def placed(node: Node, name: str, *words: str) -> Iterator[Live]:
    """Run a pod with a replica, whose program runs `words` (alloc, pause, hold)."""
    root = roots.copy("debian", node.place / name / "root")
    given = node.kubelet.allocate(GPU, 1)
    told = {
        "io.kubernetes.cri.sandbox-name": name,
        "io.kubernetes.cri.sandbox-namespace": "demo",
        "io.kubernetes.cri.container-name": NAME,
    }
    identity = sha256(name.encode()).hexdigest()  # and its cgroup's name, as with every engine
    made = bundle(
        node.place / name / "bundle",
        root,
        ["/gpu-probe", "/gpu.sock", node.uuid, *words],
        annotations=told,
        linux={"cgroupsPath": f"/{CGROUPS}/{identity}"},
    )
    made.mount(node.memory.probe, "/gpu-probe")
    made.mount(node.memory.socket, "/gpu.sock")
    kubelet_side.apply_allocation(kubelet_side.allocation_of(given.response), made)
    node.holders.pods = [*node.holders.pods, pod("demo", name, NAME, GPU, given.ids)]
    runtime, env = [node.installation.runtime], node.installation.on(ENGINE)
    with lifecycle(made, runtime, ENGINE, CGROUP, env, container_id=identity) as container:
        container.start()
        yield Live(container, made, node.installation)


def says(live: Live, text: str) -> bool:
    """Return whether a container prints `text`."""
    return soon(lambda: eventually(lambda: text in live.container.output.splitlines()))


def command(page: Page, live: Live, *words: str) -> str:
    """Run a command of gpuhook on the node; show it and its output, and return the output."""
    whole = [*live.container.around.prefix, str(live.installation.bindir / "gpuhook"), *words]
    done = run_command(whole, live.env)
    page.command(f"gpuhook {' '.join(words)}")
    page.output(done.stdout + done.stderr)
    return done.stdout


def isolation(page: Page, running: PluginProcess) -> str:
    """Show the plugin's log about the resource; returns what it says about memory."""
    soon(lambda: running.wait_for_log(event="sharing"))
    line = next((one for one in running.log() if one.get("event") == "sharing"), {})
    page.say("  The plugin's log:")
    answers = ("memory", "compute", "stability", "crash")
    page.output("\n".join(f"{name}: {line.get(name, 'nothing')}" for name in answers))
    return str(line.get("memory", ""))


def bounded(page: Page, node: Node) -> bool:
    """One pod requests everything and fails; the other one has its share."""
    with ExitStack() as stack:
        running = stack.enter_context(offering(node))
        by_driver = "enforced by the driver" in isolation(page, running)
        page.say("  Two pods, keeper and greedy, start with one replica each.")
        keeper = stack.enter_context(
            placed(node, "keeper", "alloc", "1000", "pause", "alloc", str(KEPT - 1000), "hold")
        )
        greedy = stack.enter_context(placed(node, "greedy", "alloc", str(MUCH), "all", "hold"))
        says(greedy, "holding")
        said = greedy.container.output.splitlines()
        failed = said == ["out of memory", f"got {SHARE} MiB", "holding"]
        page.say(
            f"  greedy requests {MUCH} MiB. The GPU has them free, but the driver refuses."
            "\n  Then it allocates MiB by MiB until the driver refuses: its share."
        )
        page.say("  The log of greedy:")
        page.output(greedy.container.output)
        keeper.container.call("kill", "USR1")
        kept = says(keeper, "holding") and keeper.container.output.split() == [
            "ok", "ok", "holding",
        ]  # fmt: skip
        page.say(f"  keeper has 1000 MiB, and requests {KEPT - 1000} more. Its log:")
        page.output(keeper.container.output)
        command(page, keeper, "ps")
        shown = command(page, keeper, "limits", "show")
        rows: Rows = [
            ("the plugin logs that the driver enforces the limit", by_driver),
            ("an allocation above the share fails: out of memory", failed),
            ("the other pod gets its share", kept),
            ("gpuhook limits show has the driver's limit", f"{SHARE}Mi" in shown),
        ]
    return page.expectations(rows)


def watched(page: Page, node: Node) -> bool:
    """Without limits of the driver, the guard ends only the process above its limit."""
    with ExitStack() as stack:
        running = stack.enter_context(offering(node))
        by_guard = "monitored by the device plugin" in isolation(page, running)
        keeper = stack.enter_context(placed(node, "keeper", "alloc", str(KEPT), "hold"))
        says(keeper, "holding")
        greedy = stack.enter_context(placed(node, "greedy", "alloc", "9000", "hold"))
        above = says(greedy, "holding")
        page.say("  greedy requests 9000 MiB, and gets them. Its log:")
        page.output(greedy.container.output)
        command(page, keeper, "ps")
        page.say("  A second later, the plugin sends SIGTERM to greedy's process only:")
        ended = soon(lambda: node.memory.until(lambda held: list(held.values()) == [KEPT << 20]))
        soon(lambda: eventually(lambda: state(greedy) == "stopped"))
        status = {name: state(live) for name, live in (("keeper", keeper), ("greedy", greedy))}
        page.say("  The plugin's log:")
        soon(lambda: eventually(lambda: len(of_the_guard(running)) >= 2))
        page.output("\n".join(of_the_guard(running)))
        for name, found in status.items():
            page.say(f"  The runtime's status of {name}: {found}")
        counted = soon(
            lambda: eventually(lambda: "gpuhook_guard_actions_total{" in running.metrics())
        )
        rows: Rows = [
            ("the plugin logs that it monitors the memory", by_guard),
            ("the driver does not refuse memory above the share", above),
            (
                "SIGTERM ends the pod above its share",
                ended and status["greedy"] == "stopped",
            ),
            ("the other pod continues", status["keeper"] == "running"),
            ("gpuhook_guard_actions_total counts it", counted),
        ]
    return page.expectations(rows)


def state(live: Live) -> str:
    """Return the runtime's status of a container: running, stopped."""
    return str(live.container.state["status"])


def of_the_guard(running: PluginProcess) -> list[str]:
    """Return the lines of the plugin's log about pods above their share."""
    return [str(line["event"]) for line in running.log() if "greedy" in str(line.get("event"))]
