# SPDX-License-Identifier: Apache-2.0
"""nvidia-ctk as a name of gpuhook: the command of gpuhook for each of its command lines."""

from __future__ import annotations

import pytest

from gpuhook.cli import toolkit_front
from gpuhook.errors import GpuhookError


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("", ""),
        ("--help", ""),
        ("cdi", ""),
        ("--version", "--version"),
        ("cdi generate", "generate-cdi"),
        (
            "cdi generate --output=/etc/cdi/nvidia.yaml --device-name-strategy uuid",
            "generate-cdi --output-file=/etc/cdi/nvidia.yaml --device-name-strategy uuid",
        ),
        ("--quiet cdi list", "-q cdi list -o name"),
        ("-d cdi list --spec-dir=/a,/b", "--debug cdi list --spec-dir=/a --spec-dir=/b -o name"),
        ("cdi list --spec-dir /a", "cdi list --spec-dir=/a -o name"),
        (
            "cdi transform root --from=/a --to / --input=-",
            "cdi transform root --from=/a --to / --input=-",
        ),
        ("runtime configure", "configure docker"),
        ("runtime configure --runtime=containerd", "configure containerd"),
        ("--config /x runtime configure --runtime crio", "configure crio"),
        (
            "runtime configure --runtime=docker --config=/home/u/.config/docker/daemon.json",
            "configure docker --config=/home/u/.config/docker/daemon.json",
        ),
        (
            "runtime configure --runtime=docker --nvidia-set-as-default --cdi.enabled --dry-run",
            "configure docker --set-as-default --dry-run",
        ),
        ("runtime configure --set-as-default=false", "configure docker"),
        (
            "runtime configure --nvidia-runtime-name=gpu --nvidia-runtime-path=/opt/runtime",
            "configure docker --runtime-name=gpu --runtime-path=/opt/runtime",
        ),
        ("runtime configure --runtime-path nvidia-container-runtime", "configure docker"),
        ("runtime configure --runtime crio --config-mode=oci-hook", "configure crio --route=hook"),
        (
            "runtime configure --config-source=file --drop-in-config=RUNTIME_SPECIFIC_DEFAULT",
            "configure docker",
        ),
        ("config", "config show"),
        ("config default", "config default"),
        ("config create-default", "config default"),
        ("info", "inventory"),
        (
            "system create-device-nodes --control-devices --root=/run/nvidia/driver",
            "system create-device-nodes --control-devices --driver-root=/run/nvidia/driver",
        ),
        (
            "system create-dev-char-symlinks --create-all",
            "system create-dev-char-symlinks --create-all",
        ),
    ],
)
def test_commands_of_the_toolkit(given: str, made: str) -> None:
    """Command lines of the toolkit's users work."""
    assert toolkit_front.translated(given.split(), {}) == made.split()


@pytest.mark.parametrize(
    ("given", "variables", "made"),
    [
        ("cdi list", {"NVIDIA_CTK_CDI_SPEC_DIRS": "/a,/b"}, "--spec-dir=/a --spec-dir=/b -o name"),
        (
            "system create-device-nodes",
            {"NVIDIA_DRIVER_ROOT": "/d", "DRIVER_ROOT": "/e", "NVIDIA_DEV_ROOT": "/f"},
            "--driver-root=/d --dev-root=/f",
        ),
        (
            "system create-dev-char-symlinks --driver-root=/x",
            {"DRIVER_ROOT": "/e", "DEV_CHAR_PATH": "/c", "CREATE_ALL": "true", "DRY_RUN": "false"},
            "--driver-root=/x --dev-char-path=/c --create-all",
        ),
    ],
)
def test_variables_of_the_toolkit(given: str, variables: dict[str, str], made: str) -> None:
    """They apply if the option is not set."""
    words = toolkit_front.translated(given.split(), variables)
    assert words[2:] == made.split()
    assert toolkit_front.translated([*given.split()], {"NVIDIA_CTK_QUIET": "1"})[0] == "-q"


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ("cdi", None),
        ("nonsense", "gpuhook --help"),
        ("cdi nonsense", "gpuhook --help"),
        ("system print-ldcache", "gpuhook --help"),
        ("config --set nvidia-container-cli.no-cgroups --in-place", "gpuhook config import"),
        ("config default --output=/etc/nvidia-container-runtime/config.toml", "config.yaml"),
        ("runtime configure --nonsense", "gpuhook configure --help"),
        ("runtime", None),
    ],
)
def test_commands_without_a_counterpart_are_refused(given: str, instead: str | None) -> None:
    """The message contains the alternative; a group alone prints its usage."""
    if instead is None:
        assert toolkit_front.translated(given.split(), {}) == []
        return
    with pytest.raises(GpuhookError) as raised:
        toolkit_front.translated(given.split(), {})
    assert raised.value.code == "GH2142"
    assert instead in raised.value.hint
