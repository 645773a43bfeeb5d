# SPDX-License-Identifier: Apache-2.0
"""The application profile for EGL lists the container's GPUs, by each integration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract import integrations, roots
from tests.contract.installation import Installation, asks
from tests.contract.integrations import Integrations
from tests.contract.live import sleeping, wrapped
from tests.contract.roots import Roots
from tests.contract.test_detach import assert_profile
from tests.contract.test_prestart import PROFILE
from tests.contract.views import questions

PROBE_PROFILE = ["/probe", *questions(PROFILE)]
GRAPHICS = ["NVIDIA_DRIVER_CAPABILITIES=graphics"]
INTEGRATIONS = ["runc", "crun", "ctr", "podman-runtime", "podman-cdi", "runc-prestart"]


def bits(node: Installation, *indexes: int) -> int:
    """Return the bit mask of these GPUs."""
    return sum(1 << (node.gpu(index).minor or 0) for index in indexes)


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_profile_by_each_integration(
    integration: str, node8: Installation, enter: Integrations, root_of: Roots
) -> None:
    """The profile has the bits of the container's GPUs, and of no other GPU."""
    assert integration in integrations.ALL
    view = enter.through(integration, root_of("debian"), PROBE_PROFILE, "2,5", GRAPHICS).view
    text = view.paths[PROFILE].content.decode()
    assert f'"EGLVisibleDGPUDevices", {bits(node8, 2, 5):#x}]' in text


def test_no_profile_without_graphics(
    node8: Installation, enter: Integrations, root_of: Roots
) -> None:
    """A container without the capability `graphics` gets no profile."""
    root = root_of("debian")
    enter.through("runc", root, PROBE_PROFILE, "2", ["NVIDIA_DRIVER_CAPABILITIES=compute,utility"])
    assert PROFILE[1:] not in roots.listing(root)


def test_profile_after_a_restart_with_another_gpu(
    node8: Installation, enter: Integrations, root_of: Roots
) -> None:
    root = root_of("debian")
    enter.through("runc", root, PROBE_PROFILE, "2", GRAPHICS)
    view = enter.through("runc", root, PROBE_PROFILE, "3", GRAPHICS).view
    assert f"{bits(node8, 3):#x}]" in view.paths[PROFILE].content.decode()


def test_profile_after_attach_and_detach(node8: Installation, tmp_path: Path) -> None:
    """The wrapper's profile is updated in the running container."""
    made = sleeping(tmp_path, env=asks("2,3", "all"))
    with wrapped(made, node8) as live:
        assert_profile(live, bits(node8, 2, 3))
        live.detach("3")
        assert_profile(live, bits(node8, 2))
        live.attach("4")
        assert_profile(live, bits(node8, 2, 4))
