# SPDX-License-Identifier: Apache-2.0
"""A `gpuhook configure` command that doctor prints fixes the broken node."""

from __future__ import annotations

import json
import shlex

import pytest
from click.testing import CliRunner

import tests.doctor.parts  # noqa: F401 # registers what healthy nodes have
from gpuhook.cli.engines.configure import configure
from gpuhook.node_facts.check import FAILED, WARNING
from gpuhook.support_bundle import bundle_contents
from gpuhook.support_bundle.bundle_reader import CONTENTS
from tests.doctor.broken import configured, engines, other_engines
from tests.doctor.case import Broken, FaultCase, is_root
from tests.doctor.parts.engines import CONFIG, CRI, DROP_IN, IMPORTS, RUNC, TOOLKIT, install
from tests.doctor.parts.gpuhook import LIBRARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(not is_root(), reason="device nodes need root")
OURS = f"""
[{CRI}.containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
  [{CRI}.containerd.runtimes.nvidia.options]
    BinaryName = "/usr/bin/gpuhook-runtime"
    SystemdCgroup = true
"""
NEW_CRI = engines.NEW_CRI
ENGINES = ("containerd", "crio", "dockerd")
NVIDIAS = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook")


def no_toolkit(case: FaultCase) -> None:
    """Remove NVIDIA's toolkit and its drop-in from the node."""
    for name in NVIDIAS:
        case.remove(f"/usr/bin/{name}")
    case.remove(TOOLKIT)
    case.write(DROP_IN, f"version = 2\n{RUNC}")


def _replaced(case: FaultCase) -> None:
    case.write(DROP_IN, f"version = 2\n{RUNC}{OURS}")
    case.write("/etc/containerd/conf.d/99-z-mirrors.toml", f"version = 2\n{RUNC}")


def _not_imported(case: FaultCase) -> None:
    case.write(CONFIG, f"version = 2\n{RUNC}")
    case.write(DROP_IN, f"version = 2\n{RUNC}{OURS}")


def _wrong_key(case: FaultCase) -> None:
    case.write(DROP_IN, f"version = 2\n{OURS.replace(CRI, NEW_CRI)}")


def _no_type(case: FaultCase) -> None:
    case.write(DROP_IN, f"version = 2\n{RUNC}{OURS.replace('runtime_type', '#runtime_type')}")


def _default(case: FaultCase) -> None:
    table = f'[{CRI}]\nenable_cdi = true\n[{CRI}.containerd]\ndefault_runtime_name = "nvidia"\n'
    case.write(CONFIG, f"version = 2\n{IMPORTS}{table}{RUNC}")
    case.remove(DROP_IN)


def _no_cri(case: FaultCase) -> None:
    engines._no_cri(case)
    case.remove(DROP_IN)


def _docker_default(case: FaultCase) -> None:
    other_engines.docker(case, runtimes={}, **{"default-runtime": "nvidia"})


def _docker_cdi(case: FaultCase) -> None:
    no_toolkit(case)
    other_engines.docker(case, runtimes={}, features={"cdi": False})


def _crio_default(case: FaultCase) -> None:
    runc = '[crio.runtime.runtimes.runc]\n  runtime_path = "/usr/bin/runc"\n'
    other_engines.crio(case, f'[crio.runtime]\n  default_runtime = "nvidia"\n{runc}')


CASES = [
    Broken("containerd-not-registered", "containerd.runtime", engines._not_registered),
    Broken("containerd-replaced", "containerd.replaced", _replaced),
    Broken("containerd-not-imported", "containerd.drop-in", _not_imported),
    Broken("containerd-wrong-key", "containerd.plugin-key", _wrong_key),
    Broken("containerd-no-type", "containerd.runtime-type", _no_type),
    Broken("containerd-default", "containerd.default", _default),
    Broken("containerd-no-cri", "containerd.cri", _no_cri),
    Broken("docker-default", "docker.default", _docker_default),
    Broken("docker-cdi", "docker.cdi", _docker_cdi, is_warning=True),
    Broken("crio-default", "crio.default", _crio_default),
]


def state(case: FaultCase, check: str) -> dict[str, str]:
    """Return the command of each message of the failures and warnings of a check."""
    results = case.examine([check]).results
    wrong = [one for one in results if one.check.id == check]
    return {
        one.finding.message: one.finding.command
        for one in wrong
        if one.finding.status in {FAILED, WARNING}
    }


@pytest.mark.parametrize("broken", CASES, ids=lambda broken: broken.name)
def test_configure_command_fixes_the_node(
    broken: Broken, fresh: Callable[[str], FaultCase]
) -> None:
    """`configure undo` restores the broken node."""
    case = fresh(broken.profile)
    broken.do(case)
    before = state(case, broken.check)
    [command] = before.values()
    words = shlex.split(command)
    assert words[:2] == ["gpuhook", "configure"], command
    assert words[-1] == "--restart"
    run(case, words[2:-1])
    after = state(case, broken.check)
    assert not any("gpuhook configure" in one for one in after.values())
    run(case, ["undo", words[2]])
    assert state(case, broken.check) == before


def test_edit_of_another_key_is_not_reported(fresh: Callable[[str], FaultCase]) -> None:
    case = fresh("t4")
    configured.edited(case)
    assert state(case, "installation.configured") == {}


def test_command_restores_a_removed_runtime(fresh: Callable[[str], FaultCase]) -> None:
    """The command has the options that the engine was configured with."""
    case = fresh("t4")
    configured.configured(case, "--runtime-name", "gpus", "--set-as-default")
    case.write(other_engines.DAEMON, "{}")
    [command] = state(case, "installation.configured").values()
    words = shlex.split(command.partition(" #")[0])[2:-1]
    assert words == ["docker", "--runtime-name", "gpus", "--set-as-default"]
    run(case, words)
    assert state(case, "installation.configured") == {}


def test_bundle_contains_the_record_and_versions(fresh: Callable[[str], FaultCase]) -> None:
    """The original files remain on the node: no command requests to restore them."""
    case = fresh("t4")
    configured.configured(case)
    made = bundle_contents.collect(bundle_contents.recording_node(case.examined()), {}, {})
    directory = "/var/lib/gpuhook/configured/docker"
    record = made.members[f"{CONTENTS}{directory}/record.json"]
    assert json.loads(record)["wanted"]["name"] == "nvidia"
    assert [path for path in made.members if directory in path] == [
        f"{CONTENTS}{directory}/record.json"
    ]
    assert b"__version__" in made.members[f"{CONTENTS}{LIBRARY}/gpuhook/__init__.py"]


def run(case: FaultCase, words: list[str]) -> None:
    """Run `gpuhook configure` for the node, whose engine programs are not real."""
    programs = [one for one in ENGINES if case.path(f"/usr/bin/{one}").exists()]
    for name in programs:
        case.remove(f"/usr/bin/{name}")
    done = CliRunner().invoke(configure, [*words, "--host-root", str(case.root)])
    assert done.exit_code == 0, done.output or done.exception
    install(case, *programs)
