# SPDX-License-Identifier: Apache-2.0
"""The run of `gpuhook setup`: order, failures, signals, a second run."""

from __future__ import annotations

import os
import signal

import jsonschema
import pytest

from gpuhook.engines.configure import configure_engine
from gpuhook.engines.configure.configure_engine import Where
from gpuhook.errors import fault
from gpuhook.setup import setup_document, setup_facts, setup_plan, setup_run
from gpuhook.setup.setup_plan import EngineStep, SetupPlan, Undo
from gpuhook.setup.setup_run import SetupResult
from tests.doctor.case import FaultCase
from tests.doctor.parts import engines
from tests.unit import docker_host
from tests.unit.cli.test_schemas import SCHEMAS
from tests.unit.setup.simulated_commands import SPEC, SimulatedCommands

ORDER = ["specs", "docker", "podman", "doctor", "container of docker", "container of podman"]


def planned(commands: SimulatedCommands) -> SetupPlan:
    """Return the plan of a node's engines."""
    facts = setup_facts.setup_facts(commands)
    steps = [
        setup_plan.engine_step(one, commands, None, restarts=False)
        for one in setup_plan.chosen_engines(facts, ())
    ]
    return setup_plan.setup_plan(facts, steps, commands.host)


def states(plan: SetupPlan, result: SetupResult) -> dict[str, str]:
    """Return the state of each step; the document must fit its schema."""
    jsonschema.validate(setup_document.setup_document(plan, result, Undo()), SCHEMAS["setup"])
    jsonschema.validate(setup_document.setup_document(plan, None, Undo()), SCHEMAS["setup"])
    names = {"CDI spec": "specs"}
    return {names.get(one.title, one.title): one.state for one in result.steps}


def test_second_run_changes_nothing(workstation: FaultCase) -> None:
    """Each step is done once; undo restores the tree."""
    commands = SimulatedCommands(workstation)
    before = docker_host.etc(workstation.root)
    announced: list[str] = []
    plan = planned(commands)
    result = setup_run.carry_out(plan, commands, announced.append)
    assert [one.replace("CDI spec", "specs") for one in announced] == ORDER
    found = states(plan, result)
    assert list(found) == ORDER
    assert (found["specs"], found["docker"], found["podman"]) == ("done", "done", "unchanged")
    lines = "\n".join(result.steps[1].lines)  # as in the plan
    assert "docker is not running: it will read the configuration at its next start" in lines
    assert "--restart" not in lines
    assert found["container of docker"] == "skipped"  # its programs do not run here
    written = docker_host.etc(workstation.root)
    assert written != before
    again = planned(commands)
    assert not again.has_changes
    found = states(again, setup_run.carry_out(again, commands, announced.append))
    assert (found["specs"], found["docker"]) == ("unchanged", "unchanged")
    assert docker_host.etc(workstation.root) == written
    configure_engine.undo(commands.host, Where("docker"))
    assert docker_host.etc(workstation.root) == before


def test_host_without_ldd(case: FaultCase) -> None:
    """No container can prove the setup, which is not a fault."""
    commands = SimulatedCommands(case)
    case.remove(engines.DROP_IN)
    plan = planned(commands)
    *_, last = setup_run.carry_out(plan, commands, lambda _: None).steps
    assert (last.title, last.state) == ("container of containerd", "skipped")
    assert "no ldd" in last.lines[0]


def test_step_that_fails(workstation: FaultCase) -> None:
    """The files of the engine are restored, and no later step runs."""
    docker_host.program(workstation.root, "dockerd", "echo no >&2; exit 3")
    commands = SimulatedCommands(workstation)
    before = docker_host.etc(workstation.root)
    plan = planned(commands)
    result = setup_run.carry_out(plan, commands, lambda _: None)
    assert states(plan, result) == {"specs": "done", "docker": "failed"}
    assert result.error is not None
    assert result.error.code == "GH2005"
    assert docker_host.etc(workstation.root) == before
    assert f"rm {SPEC}" in setup_plan.undo_of_steps(plan, plan.specs, ()).commands


def test_signal_between_steps(workstation: FaultCase) -> None:
    """Ctrl-C during a step ends setup after it: nothing is half done."""
    commands = SimulatedCommands(workstation)

    def announce(title: str) -> None:
        if title == "docker":
            os.kill(os.getpid(), signal.SIGINT)

    plan = planned(commands)
    result = setup_run.carry_out(plan, commands, announce)
    assert result.is_interrupted
    assert states(plan, result) == {"specs": "done", "docker": "done", "podman": "not run"}
    assert docker_host.runtimes(workstation.root) == ["nvidia"]


def test_signal_during_a_container(workstation: FaultCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that Ctrl-C ends is an interruption, and no failure of the engine."""
    commands = SimulatedCommands(workstation)

    def end(step: EngineStep, *_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        raise fault("GH2115", engine=step.engine, reason="status -2", command="run")

    monkeypatch.setattr(setup_run, "_prove", end)
    plan = planned(commands)
    result = setup_run.carry_out(plan, commands, lambda _: None)
    assert result.is_interrupted
    assert result.error is None
    found = states(plan, result)
    assert list(found) == ORDER[:5]
    assert (found["docker"], found["container of docker"]) == ("done", "not run")


def test_fault_that_doctor_finds_afterwards(workstation: FaultCase) -> None:
    """A fault of the driver that appears meanwhile is an error; no container runs."""
    commands = SimulatedCommands(workstation)

    def announce(title: str) -> None:
        if title == "doctor":
            workstation.write("/proc/driver/nvidia/version", "NVRM version: x  100.1.1  y\n")
            workstation.write("/sys/module/nvidia/version", "100.1.1\n")

    plan = planned(commands)
    result = setup_run.carry_out(plan, commands, announce)
    assert states(plan, result)["doctor"] == "failed"
    assert "container of docker" not in states(plan, result)
    assert result.error is not None
    assert result.error.code == "GH2116"
