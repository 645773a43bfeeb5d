# SPDX-License-Identifier: Apache-2.0
"""The facts and the plan of `gpuhook setup` on simulated nodes."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from gpuhook.engines.configure.engine_plan import NAME
from gpuhook.errors import GpuhookError
from gpuhook.node_facts.sources import node_readings
from gpuhook.setup import gpu_container, setup_facts, setup_plan, setup_text
from gpuhook.setup.node_commands import HAS, SpecState
from gpuhook.setup.setup_plan import EngineStep, RuntimeChoice, SetupPlan
from gpuhook.vendors.inventory.gpu_summary import ProofDevice
from gpuhook.vendors.nvidia.gpu import nvidia_summary
from gpuhook.vendors.nvidia.gpu.nvidia_summary import SMI
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.doctor.case import FaultCase, is_root, make
from tests.doctor.parts import engines
from tests.simulated import amd_tree
from tests.unit import docker_host
from tests.unit.setup.simulated_commands import SPEC, SimulatedCommands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def planned(case: FaultCase, *named: str, choice: RuntimeChoice | None = None) -> SetupPlan:
    """Return the plan of a node."""
    commands = SimulatedCommands(case)
    facts = setup_facts.setup_facts(commands)
    chosen = setup_plan.chosen_engines(facts, named)
    steps = [setup_plan.engine_step(one, commands, choice, restarts=False) for one in chosen]
    return setup_plan.setup_plan(facts, steps, commands.host)


def code(case: FaultCase, *named: str) -> str:
    """Return the code of the fault that prevents a plan."""
    with pytest.raises(GpuhookError) as caught:
        planned(case, *named)
    return caught.value.code


def test_facts_of_a_cluster(case: FaultCase) -> None:
    """NVIDIA's parts are listed, and the engine is the kubelet's."""
    engines.install(case, "dockerd", "podman")
    facts = setup_facts.setup_facts(SimulatedCommands(case))
    assert facts.kubernetes == "/var/lib/kubelet"
    assert {one.name: one.is_default for one in facts.engines} == {
        "containerd": True,
        "docker": False,
        "podman": False,
    }
    text = "\n".join(setup_text.fact_lines(facts))
    assert "runtime nvidia of containerd: /usr/bin/nvidia-container-runtime" in text
    assert "toolkit: /usr/bin/nvidia-ctk" in text
    assert engines.TOOLKIT in text


def test_podman_gets_no_name_of_a_runtime(case: FaultCase) -> None:
    """It would cause a warning about an option that was not given."""
    engines.install(case, "dockerd", "podman")
    commands = SimulatedCommands(case)
    for one in setup_facts.setup_facts(commands).engines:
        if one.name != "containerd":
            setup_plan.engine_step(one, commands, None, restarts=False)
    assert commands.names == {"docker": ("nvidia",), "podman": ()}


def test_parts_of_the_operator(case: FaultCase) -> None:
    for path in ("/run/nvidia/driver/etc/x", "/usr/local/nvidia/toolkit/x"):
        case.write(path, "")
    found = "\n".join(setup_facts.setup_facts(SimulatedCommands(case)).nvidia)
    assert "/run/nvidia/driver" in found
    assert "/usr/local/nvidia/toolkit" in found


def test_runtime_of_another_program(case: FaultCase) -> None:
    """The usual name is not taken; both choices give a plan."""
    with pytest.raises(GpuhookError, match="/usr/bin/nvidia-container-runtime") as caught:
        planned(case)
    assert caught.value.code == setup_plan.IN_USE
    for choice in (RuntimeChoice((setup_plan.BESIDE,)), RuntimeChoice((NAME,), takes_over=True)):
        (step,) = planned(case, choice=choice).engines
        assert step.options.names == choice.names
        assert step.planned.writes
    case.remove(engines.DROP_IN)
    assert planned(case).engines[0].options.name == NAME


def test_plan_of_a_workstation(workstation: FaultCase) -> None:
    """Docker gets a runtime, podman needs nothing; undo is in the reverse order."""
    plan = planned(workstation)
    assert [(one.engine, one.options.route) for one in plan.engines] == [
        ("docker", "wrapper"),
        ("podman", "cdi"),
    ]
    docker, podman = plan.engines
    assert docker.planned.writes
    assert podman.needs_nothing
    assert plan.has_changes
    text = "\n".join(setup_text.plan_lines(plan))
    assert "+++ b/etc/docker/daemon.json" in text
    assert f"write {SPEC}" in text
    undo = setup_plan.undo_of_steps(plan, plan.specs, plan.engines)
    assert undo.commands[:2] == ("gpuhook configure undo docker", f"rm {SPEC}")
    assert undo.commands[-1].startswith("rmdir ")  # the directory did not exist
    assert undo.notes == ()


def test_undo_that_restarts_docker(workstation: FaultCase) -> None:
    """A reload stops nothing, but its undo restarts Docker: a note reports that containers stop.

    Docker with live-restore keeps its containers.
    """
    for text, notes in (
        ("{}", ("a restart of dockerd stops its containers",)),
        ('{"live-restore": true}', ()),
    ):
        workstation.write("/etc/docker/daemon.json", text)
        plan = planned(workstation, "docker")
        step = replace(plan.engines[0], restarts=True)
        assert not step.ends_containers
        undo = setup_plan.undo_of_steps(plan, (), (step,))
        assert undo.commands == ("gpuhook configure undo docker --restart",)
        assert undo.notes == notes
        shown = list(setup_text.undo_lines(undo))[2:]
        assert shown == [f"  # {one}" for one in notes]


def test_spec_that_a_unit_writes_again(workstation: FaultCase) -> None:
    """The undo of a new spec names the units that would write it again."""
    units = workstation.readings[node_readings.UNITS]
    names = ("gpuhook-refresh.service", "gpuhook-refresh.path", "gpuhook-refresh.timer")
    for name, state in zip(names, ("enabled", "enabled", "disabled"), strict=True):
        units[name] = {"enabled": state}
    plan = planned(workstation)
    (note,) = setup_plan.undo_of_steps(plan, plan.specs, ()).notes
    assert "systemctl disable --now gpuhook-refresh.service gpuhook-refresh.path`" in note
    assert SPEC in note
    assert setup_plan.undo_of_steps(plan, (), ()).notes == ()  # the spec was not written


def test_choice_for_a_configured_engine(workstation: FaultCase) -> None:
    """The name of the runtime changes; the other options remain, such as the default runtime."""
    docker_host.configure(workstation.root, replace(docker_host.WANTED, is_default=True))
    (step,) = planned(workstation, "docker", choice=RuntimeChoice(("other",))).engines
    assert (step.options.name, step.options.is_default) == ("other", True)


def test_undo_with_sudo(workstation: FaultCase, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(workstation)
    monkeypatch.setenv("SUDO_UID", "1000")
    is_root = replace(plan, facts=replace(plan.facts, is_root=True))
    for one in setup_plan.undo_of_steps(is_root, plan.specs, plan.engines).commands:
        assert one.startswith("sudo ")


def test_old_podman_gets_the_hook(workstation: FaultCase) -> None:
    engines.programs(workstation)["podman"]["version"] = "4.0.3"
    (step,) = planned(workstation, "podman").engines
    assert step.options.route == "hook"
    assert step.undo == "gpuhook configure undo podman"


def test_engines_that_are_not_here(workstation: FaultCase) -> None:
    assert code(workstation, "crio") == "GH2113"
    for name in ("dockerd", "docker", "podman"):
        workstation.remove(f"/usr/bin/{name}")
    assert code(workstation) == "GH2113"


def test_user_without_root(workstation: FaultCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user sets up rootless podman, if root has written the spec."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    commands = SimulatedCommands(workstation, homes={"podman": "/home/someone"})
    facts = setup_facts.setup_facts(commands)
    assert [one.name for one in setup_plan.chosen_engines(facts, ())] == ["podman"]
    with pytest.raises(GpuhookError, match="configuring docker needs root"):
        setup_plan.chosen_engines(facts, ("docker",))
    with pytest.raises(GpuhookError, match=f"writing {SPEC} needs root"):
        setup_plan.setup_plan(facts, (), commands.host)
    fresh = replace(facts, specs=(SpecState(SPEC, HAS, "it matches this host"),))
    assert not setup_plan.setup_plan(fresh, (), commands.host).has_changes


def test_driver_that_is_not_loaded(workstation: FaultCase) -> None:
    """The root cause of doctor is the error."""
    workstation.write("/proc/driver/nvidia/version", "NVRM version: x  100.1.1  y\n")
    workstation.write("/sys/module/nvidia/version", "100.1.1\n")
    with pytest.raises(GpuhookError, match=r"driver\.version") as caught:
        planned(workstation)
    assert caught.value.code == "GH2111"
    assert "100.1.1" in caught.value.message


@pytest.mark.parametrize(
    ("profile", "name"), [("t4", "0"), ("a100-mig", "0:0")], ids=["gpu", "mig"]
)
def test_device_of_the_container(tmp_path: Path, profile: str, name: str) -> None:
    """The container gets the first GPU, or the first MIG instance."""
    if not is_root():
        pytest.skip("device nodes need root")
    facts = setup_facts.setup_facts(SimulatedCommands(make(tmp_path, profile)))
    (device,) = facts.devices
    assert device.name == name
    assert device.id.startswith("MIG-" if ":" in name else "GPU-")


@pytest.mark.parametrize(
    ("engine", "route", "words"),
    [
        ("docker", "wrapper", ("--runtime", "nvidia", "--env", "NVIDIA_VISIBLE_DEVICES=0")),
        ("docker", "hook", ("--gpus", "device=0")),
        ("docker", "cdi", ("--device", "nvidia.com/gpu=0")),
        ("podman", "hook", ("--env", "NVIDIA_VISIBLE_DEVICES=0")),
        ("podman", "cdi", ("--device", "nvidia.com/gpu=0")),
    ],
)
def test_request_of_the_container(
    workstation: FaultCase, engine: str, route: str, words: tuple[str, ...]
) -> None:
    """A container requests its GPU as the engine was configured."""
    (step,) = planned(workstation, engine).engines
    options = replace(step.options, route=route)  # type: ignore[arg-type]
    device = ProofDevice("0", "GPU-0", SMI)
    assert gpu_container.request_options(replace(step, options=options), device) == words


@pytest.mark.parametrize(
    ("names", "route", "words"),
    [
        (("nvidia", "amd"), "wrapper", ("--runtime", "amd", "--env", "AMD_VISIBLE_DEVICES=0")),
        (("gpuhook",), "wrapper", ("--runtime", "gpuhook", "--env", "AMD_VISIBLE_DEVICES=0")),
        (("amd",), "cdi", ("--device", "amd.com/gpu=0")),
    ],
)
def test_request_of_an_amd_gpu(
    workstation: FaultCase,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    route: str,
    words: tuple[str, ...],
) -> None:
    """A node of two vendors: both names of the runtime, and a device of each as proof."""
    amd_tree.build(workstation.root, "mi300x8", real_nodes=True)
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", str(workstation.root))
    plan = planned(workstation, "docker", choice=RuntimeChoice(names))
    (step,) = plan.engines
    assert plan.facts.gpus[-1] == "8 x AMD Instinct MI300X OAM"
    nvidia, amd = plan.facts.devices
    assert (nvidia.way.runtime, amd.id, amd.name) == ("nvidia", "renderD128", "0")
    options = replace(step.options, route=route)  # type: ignore[arg-type]
    assert gpu_container.request_options(replace(step, options=options), amd) == words
    assert planned(workstation, "docker").engines[0].options.names == ("nvidia", "amd")
    lines = "\n".join(setup_text.plan_lines(plan))
    assert "nvidia-smi -L with GPU 0 and ls /dev/dri/ with GPU 0" in lines


def test_node_with_amd_gpus_alone(workstation: FaultCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without NVIDIA's driver and GPUs is set up for its AMD GPUs."""
    for path in ("proc/driver/nvidia", "sys/module/nvidia", "sys/bus/pci/devices"):
        shutil.rmtree(workstation.root / path, ignore_errors=True)
    workstation.readings[node_readings.INVENTORY] = {}
    amd_tree.build(workstation.root, "radeon", real_nodes=True)
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", str(workstation.root))
    plan = planned(workstation, "docker")
    assert plan.facts.driver.startswith("amdgpu ")
    assert plan.engines[0].options.names == ("amd",)
    assert [one.name for one in plan.facts.devices] == ["0"]


def test_container_that_is_not_possible(workstation: FaultCase) -> None:
    """The reasons why no container can prove the setup."""
    plan = planned(workstation, "docker")
    (step,) = plan.engines
    reason = gpu_container.not_provable
    assert reason(step, plan.facts) == ""
    node = dump_file.load("t4")
    others = tuple(one for one in node.files if "nvidia-smi" not in one.container_path)
    for word, changed in (
        ("nvidia-smi", replace(node, files=others)),
        ("UUID", replace(node, gpus=())),
    ):
        summaries = (nvidia_summary.summary(changed),)
        assert word in reason(step, replace(plan.facts, summaries=summaries))
    pending: EngineStep = replace(step, obstacle="it reads its configuration when it starts")
    assert "has not read" in reason(pending, plan.facts)
    assert pending.undo == "gpuhook configure undo docker"
    assert "restart it yourself" in "\n".join(
        setup_text.plan_lines(replace(plan, engines=(pending,)))
    )
