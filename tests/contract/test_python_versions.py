# SPDX-License-Identifier: Apache-2.0
"""The wrapper and the hook, installed for each supported Python, start and inject."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract import pythons, roots
from tests.contract.bundles import Bundles
from tests.contract.installation import (
    ALL_CONTROL,
    CONTROL,
    DRIVER_LIBRARIES,
    LIBRARIES,
    Installation,
    asks,
    install,
    installation,
)
from tests.contract.integrations import Integrations
from tests.contract.limiting import enforced_limits, entry, grant, uuid
from tests.contract.live import WAIT, wrapped
from tests.contract.roots import Roots
from tests.contract.views import questions

VERSIONS = pytest.mark.parametrize("version", pythons.RELEASES)
DLPROBE = ["/dlprobe", *DRIVER_LIBRARIES]


@pytest.fixture(scope="module")
def installed(
    node8: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Installation]:
    """Return a function that returns the installation for a version of Python."""
    made: dict[str, Installation] = {}

    def installation_for(version: str) -> Installation:
        if version not in made:
            place = tmp_path_factory.mktemp(f"python{version}")
            bindir = install(place / "prefix", pythons.interpreter(version))
            made[version] = installation(place, node8.node, bindir)
        return made[version]

    return installation_for


@VERSIONS
@pytest.mark.parametrize("integration", ["runc", "crun", "podman-runtime", "podman-cdi"])
def test_gpu_on_each_python(
    version: str,
    integration: str,
    installed: Callable[[str], Installation],
    tmp_path: Path,
    root_of: Roots,
) -> None:
    """The wrapper and the CDI hook inject the GPU, and the loader finds the driver."""
    made = installed(version)
    enter = Integrations(made, tmp_path)
    root = root_of("debian")
    command = ["/probe", *questions(tries=[made.number(0), made.number(2)], runs=[DLPROBE])]
    view = enter.through(integration, root, command, "2").view
    control = ALL_CONTROL if integration == "podman-cdi" else CONTROL
    assert set(view.gpus()) == {*control, made.device(2)}
    assert view.tries[made.number(0)] == "EPERM"
    assert all("real" in found for found in view.runs[0].found().values())
    assert f"{LIBRARIES[1:]}/libcuda.so.1" in roots.listing(root)


@VERSIONS
@pytest.mark.parametrize("value", ["99", "GPU-x::y"])
def test_refusal_on_each_python(
    version: str,
    value: str,
    installed: Callable[[str], Installation],
    tmp_path: Path,
    root_of: Roots,
) -> None:
    """The wrapper prints an error without a traceback."""
    enter = Integrations(installed(version), tmp_path)
    result = enter.by_runtime("runc", root_of("distroless"), ["/probe"], asks(value))
    assert result.rc == 1
    assert "error GH1" in result.stderr
    assert "Traceback" not in result.stderr
    assert value in result.log


@VERSIONS
def test_hook_refuses_a_stale_spec_on_each_python(
    version: str, installed: Callable[[str], Installation], tmp_path: Path, root_of: Roots
) -> None:
    made = installed(version)
    fresh = made.spec.read_text(encoding="utf-8")
    made.spec.write_text(fresh.replace("boot=", "boot=not-"), encoding="utf-8")
    try:
        enter = Integrations(made, tmp_path)
        result = enter.through("podman-cdi", root_of("distroless"), ["/probe"], "2")
    finally:
        made.spec.write_text(fresh, encoding="utf-8")
    assert result.rc != 0
    assert "GH1120" in result.stderr


@VERSIONS
def test_memory_limit_on_each_python(
    version: str, installed: Callable[[str], Installation], bundle_of: Bundles
) -> None:
    """The hook sets a memory limit by the driver, or records why it cannot.

    The simulated driver is built on this machine, and is too new for bullseye's C library.
    """
    made = installed(version)
    limited = grant(made, bundle_of("debian", WAIT, asks("2")), 2, 4096, 1024)
    with wrapped(limited, made, "runc", "v2") as live:
        (record,) = entry(made)["memory"]
        if "GLIBC" in record["trouble"]:
            assert record["trouble"].startswith("GH1202: ")
            assert version == "3.9"
        else:
            assert enforced_limits(made, live.pid) == {uuid(made, 2): (4096, 1024)}
