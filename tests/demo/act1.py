# SPDX-License-Identifier: Apache-2.0
"""Act 1: one request through several integrations, then two replicas on one GPU."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.contract import roots
from tests.contract.bundles import bundle
from tests.contract.engines import containerd
from tests.contract.installation import CONTROL, DRIVER_LIBRARIES, Installation, asks
from tests.contract.integrations import Integrations, visible_devices
from tests.contract.runtimes import Result
from tests.contract.views import View, questions
from tests.demo.page import CROSS, TICK, Page

INTEGRATIONS = {
    "containerd + runc": "ctr",
    "crun": "crun",
    "podman (CDI)": "podman-cdi",
    "prestart hook (runc)": "runc-prestart",
}
FOREIGN = "195:77"  # a GPU that the container was not assigned
ROUNDS = 9
VARIABLE = "NVIDIA_VISIBLE_DEVICES is void, once (*)"


def play(page: Page, installation: Installation, place: Path) -> bool:
    """Play the act; returns whether each integration gave the same correct view."""
    page.heading("Act 1: one request, several integrations")
    gpu = installation.gpu(0)
    page.say(
        f"A container requests GPU 0 ({gpu.name}). With containerd and crun, gpuhook-runtime adds"
        " it.\npodman adds it from the CDI spec that generate-cdi wrote. With plain runc, the"
        " prestart hook\nadds it to the created container. A probe in each container checks the"
        " result:\n"
    )
    with ExitStack() as stack:
        daemon = stack.enter_context(containerd(place / "containerd"))
        views: list[View] = []
        costs: list[str] = []
        for number, integration in enumerate(INTEGRATIONS.values()):
            integrations = Integrations(installation, place / f"way-{number}", lambda: daemon)
            integrations.place.mkdir()
            views.append(look(integrations, integration))
            costs.append(cost(integrations, integration))
    rows = answers(installation, views)
    rows.append(("added start time", costs))
    page.ticks("seen from inside", list(INTEGRATIONS), rows)
    page.say(
        "  (*) A hook cannot change the variables: there, the variable keeps the requested value."
    )
    good = all(answer.startswith(TICK) for _, cells in rows[:-1] for answer in cells)
    page.say(
        "\nAll integrations give the same result."
        if good
        else "\nThe integrations differ: see the crosses."
    )
    return replicas(page, installation, place) and good


def look(integrations: Integrations, integration: str) -> View:
    """Return what a container sees that got its GPU by `integration`."""
    root = roots.copy("debian", integrations.place / "root")
    asked = questions(
        tries=[FOREIGN],
        runs=[["/dlprobe", *DRIVER_LIBRARIES], ["/sbin/ldconfig", "-p"], ["nvidia-smi"]],
    )
    return integrations.through(integration, root, ["/probe", *asked]).view


def answers(installation: Installation, views: list[View]) -> list[tuple[str, list[str]]]:
    """Return a line for each thing a GPU container needs, with a tick or a cross per view."""
    device = installation.device(0)
    questions_: list[tuple[str, Callable[[View], bool]]] = [
        (f"{device} exists and opens", lambda v: _opens(v, device)),
        ("nvidiactl and nvidia-uvm open", lambda v: all(_opens(v, node) for node in CONTROL)),
        ("no other GPU exists", lambda v: _gpu_nodes(v) == {device}),
        ("a GPU made by mknod is refused", lambda v: v.tries[FOREIGN] == "EPERM"),
        ("dlopen finds libcuda and libnvidia-ml", _loads),
        ("ldconfig -p lists them", lambda v: all(n in v.runs[1].output for n in DRIVER_LIBRARIES)),
        ("nvidia-smi runs", lambda v: v.runs[2].rc == 0),
        ("driver files are ro,nosuid,nodev", _guarded),
    ]
    rows = [(name, [TICK if test(v) else CROSS for v in views]) for name, test in questions_]
    seen = zip(INTEGRATIONS.values(), views, strict=True)
    rows.append((VARIABLE, [TICK if _void(integration, v) else CROSS for integration, v in seen]))
    return rows


def _opens(view: View, node: str) -> bool:
    return node in view.nodes and view.nodes[node].allowed


def _gpu_nodes(view: View) -> set[str]:
    return {path for path in view.gpus() if path[len("/dev/nvidia") :].isdigit()}


def _loads(view: View) -> bool:
    return view.runs[0].rc == 0 and all("real" in f for f in view.runs[0].found().values())


def _guarded(view: View) -> bool:
    files = [
        m for m in view.mounts.values() if "libcuda.so" in m.target or "nvidia-smi" in m.target
    ]
    return bool(files) and all({"ro", "nosuid", "nodev"} <= m.options for m in files)


def _void(integration: str, view: View) -> bool:
    return view.values("NVIDIA_VISIBLE_DEVICES") == [visible_devices(integration, "0")]


def cost(integrations: Integrations, integration: str) -> str:
    """Return what the GPU added to a container's start through `integration`, in milliseconds."""
    root = roots.copy("debian", integrations.place / "timed")
    with_gpu: list[float] = []
    without: list[float] = []
    for number in range(ROUNDS):
        # A place each: podman binds its database to the directories of its first start.
        one, other = (
            replace(integrations, place=integrations.place / f"{number}-{k}") for k in "ab"
        )
        for made in (one, other):
            made.place.mkdir()
        with_gpu.append(_timed(one, lambda d: d.through(integration, root, ["/bin/true"])))
        without.append(_timed(other, lambda d: _without(d, integration, root)))
    base = statistics.median(without)
    return f"{statistics.median(with_gpu) - base:+.0f} ms on {base:.0f}"


def _without(integrations: Integrations, integration: str, root: Path) -> Result:
    if integration == "podman-cdi":
        return integrations.by_podman(root, ["/bin/true"], [], runtime="runc")
    return integrations.through(integration, root, ["/bin/true"], value="void")


def _timed(integrations: Integrations, call: Callable[[Integrations], Result]) -> float:
    start = time.perf_counter()
    result = call(integrations)
    took = (time.perf_counter() - start) * 1000
    if result.rc != 0:
        raise RuntimeError(result)
    return took


def replicas(page: Page, installation: Installation, place: Path) -> bool:
    """Start two containers on two time slices of one GPU, and show their replicas."""
    page.heading("Act 1, second scene: two pods, one GPU")
    uuid = installation.gpu(0).uuid
    page.say(
        "A device plugin that shares a GPU allocates replica ids. Two pods run at the same time,"
        f" with one each:\n  trainer    NVIDIA_VISIBLE_DEVICES={uuid}::0"
        f"\n  inference  NVIDIA_VISIBLE_DEVICES={uuid}::1\n"
    )
    with ExitStack() as stack:
        for number, pod in enumerate(("trainer", "inference")):
            directory = place / pod
            made = bundle(
                directory / "bundle",
                roots.copy("debian", directory / "root"),
                ["sleep", "60"],
                asks(f"{uuid}::{number}"),
                annotations={
                    "io.kubernetes.cri.sandbox-name": pod,
                    "io.kubernetes.cri.sandbox-namespace": "demo",
                    "io.kubernetes.cri.container-name": "main",
                },
            )
            container = stack.enter_context(installation.lifecycle(made, container_id=pod))
            container.start()
        page.command("gpuhook ps")
        page.output(installation.gpuhook("ps").stdout)
        held = [(one["gpus"], one["replicas"]) for one in installation.holders()]
    good = held == [([uuid], [f"{uuid}::0"]), ([uuid], [f"{uuid}::1"])]
    page.say("\nBoth use one GPU, with a replica each (see -o wide). After they have stopped:")
    page.command("gpuhook ps")
    gone = installation.gpuhook("ps")
    page.output(gone.stdout + gone.stderr)
    is_free = not installation.holders()  # while the runtime's state shows which have exited
    shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(installation.state / "containers")  # it names directories that are gone
    return good and is_free
