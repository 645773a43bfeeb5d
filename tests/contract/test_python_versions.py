# SPDX-License-Identifier: Apache-2.0
"""The wrapper and the hook, installed for the Pythons that nodes have, start and inject."""

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
from tests.contract.limiting import entry, grant, held, uuid
from tests.contract.live import WAIT, wrapped
from tests.contract.roots import Roots
from tests.contract.views import questions

VERSIONS = pytest.mark.parametrize("version", pythons.RELEASES)
LOOKED_UP = ["/dlprobe", *DRIVER_LIBRARIES]


@pytest.fixture(scope="module")
def installed(
    node8: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Installation]:
    """Return a function that gives an installation for a version of Python, made once."""
    made: dict[str, Installation] = {}

    def of(version: str) -> Installation:
        if version not in made:
            place = tmp_path_factory.mktemp(f"python{version}")
            bindir = install(place / "prefix", pythons.interpreter(version))
            made[version] = installation(place, node8.node, bindir)
        return made[version]

    return of


@VERSIONS
@pytest.mark.parametrize("integration", ["runc", "crun", "podman-runtime", "podman-cdi"])
def test_a_container(
    version: str,
    integration: str,
    installed: Callable[[str], Installation],
    tmp_path: Path,
    root_of: Roots,
) -> None:
    """A container gets its GPU and finds the driver, by the wrapper and by the hook."""
    made = installed(version)
    enter = Integrations(made, tmp_path)
    root = root_of("debian")
    asked = ["/probe", *questions(tries=[made.number(0), made.number(2)], runs=[LOOKED_UP])]
    view = enter.through(integration, root, asked, "2").view
    control = ALL_CONTROL if integration == "podman-cdi" else CONTROL
    assert set(view.gpus()) == {*control, made.device(2)}
    assert view.tries[made.number(0)] == "EPERM"
    assert all("real" in found for found in view.runs[0].found().values())
    assert f"{LIBRARIES[1:]}/libcuda.so.1" in roots.listing(root)


@VERSIONS
@pytest.mark.parametrize("value", ["99", "GPU-x::y"])
def test_a_refusal(
    version: str,
    value: str,
    installed: Callable[[str], Installation],
    tmp_path: Path,
    root_of: Roots,
) -> None:
    """A refusal has the same words."""
    enter = Integrations(installed(version), tmp_path)
    result = enter.by_runtime("runc", root_of("distroless"), ["/probe"], asks(value))
    assert result.rc == 1
    assert "error GH1" in result.stderr
    assert "Traceback" not in result.stderr
    assert value in result.log


@VERSIONS
def test_a_hook_refuses_too(
    version: str, installed: Callable[[str], Installation], tmp_path: Path, root_of: Roots
) -> None:
    """A stale spec is refused by the hook under each Python."""
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
def test_a_limit(
    version: str, installed: Callable[[str], Installation], bundle_of: Bundles
) -> None:
    """The hook that limits memory talks to the driver, or tells why it cannot, under each Python.

    The simulated driver is of this machine, and is too new for the C library of bullseye.
    """
    made = installed(version)
    limited = grant(made, bundle_of("debian", WAIT, asks("2")), 2, 4096, 1024)
    with wrapped(limited, made, "runc", "v2") as live:
        (record,) = entry(made)["memory"]
        if "GLIBC" in record["trouble"]:
            assert record["trouble"].startswith("GH1202: ")
            assert version == "3.9"
        else:
            assert held(made, live.pid) == {uuid(made, 2): (4096, 1024)}
