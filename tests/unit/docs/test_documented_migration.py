# SPDX-License-Identifier: Apache-2.0
"""docs/how-to/migration.md has every NVIDIA name that gpuhook accepts, with its counterpart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuhook.cli.generate import toolkit_options
from gpuhook.config.toolkit_import import import_settings
from gpuhook.device_plugin.config.grammar.grammar import Option
from gpuhook.device_plugin.config.plugin_options import LABEL_OPTIONS, OPTIONS
from gpuhook.doctor import check_list
from gpuhook.doctor.facts import toolkit_settings
from gpuhook.vendors.nvidia.warm import hook_names

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-to/migration.md").read_text(encoding="utf-8")
TROUBLE = (ROOT / "docs/how-to/troubleshooting.md").read_text(encoding="utf-8")
# The prefix of variables that only gpuhook has.
OWN = "GPUHOOK_"


def section(heading: str, page: str = PAGE) -> str:
    """Return the text below a second-level heading."""
    return re.split(r"^## ", page.split(f"\n## {heading}\n", 1)[1], flags=re.MULTILINE)[0]


def row(text: str, *words: str) -> str:
    """Return the line that contains all of `words` as code, "" for none."""
    lines = text.splitlines()
    return next((one for one in lines if all(f"`{word}`" in one for word in words)), "")


@pytest.mark.parametrize(
    "option", sorted({*toolkit_options.VARIABLES, *toolkit_options.ALIASES.values()})
)
def test_options_of_generate_have_their_toolkit_names(option: str) -> None:
    aliases = [name for name, own in toolkit_options.ALIASES.items() if own == option]
    variable = toolkit_options.VARIABLES[option]
    assert row(section("nvidia-ctk cdi generate"), option, *aliases, variable)


@pytest.mark.parametrize("key", sorted(toolkit_settings.KEYS))
def test_keys_of_config_toml_have_a_row(key: str) -> None:
    assert row(section("config.toml"), key)


def test_imported_keys_are_those_of_the_page() -> None:
    """The setting that replaces a key is in the key's row."""
    given: dict[str, object] = {
        "disable-require": True,
        "swarm-resource": "DOCKER_RESOURCE_GPU",
        "accept-nvidia-visible-devices-as-volume-mounts": True,
        "supported-driver-capabilities": "compute,utility",
        "nvidia-container-cli": {"root": "/run/nvidia/driver"},
        "features": {"ignore-imex-channel-requests": True},
    }
    document = import_settings(toolkit_settings.ToolkitSettings("config.toml", given, b"")).document
    made = {f"{part}.{key}" for part, keys in document.items() for key in keys}
    rows = section("config.toml").splitlines()
    assert len(made) == 6
    assert all(
        any(f"`{one}`" in line.split("|")[-2] for line in rows if "|" in line) for one in made
    )


def is_nvidias(option: Option) -> bool:
    """Return whether NVIDIA's programs have the option."""
    return any(not name.startswith(OWN) for name in option.variables)


@pytest.mark.parametrize(
    "option",
    [one for one in (*OPTIONS, *LABEL_OPTIONS) if is_nvidias(one)],
    ids=lambda one: one.name,
)
def test_options_of_the_plugin_have_a_row(option: Option) -> None:
    """By the variable: the option may have another name there."""
    variables = [name for name in option.variables if not name.startswith(OWN)]
    assert any(f"`{name}`" in line for name in variables for line in PAGE.splitlines())
    if option.key.startswith("flags.") and ".gfd." not in option.key:
        assert row(section("Device plugin"), f"--{option.name}", variables[0], option.key)


@pytest.mark.parametrize("hook", sorted(hook_names.NAMES))
def test_hooks_have_a_row(hook: str) -> None:
    assert row(section("Hooks of CDI specs"), hook)


def test_troubleshooting_page_names_existing_checks() -> None:
    """The third column of each table names checks of doctor."""
    known = {check.id for check in check_list.checks()}
    rows = [line.split("|") for line in TROUBLE.splitlines() if line.startswith("| `")]
    named = {
        one for cells in rows if len(cells) == 6 for one in re.findall(r"`([a-z.-]+)`", cells[3])
    }
    assert len(named) > 40
    assert named <= known


def test_troubleshooting_page_has_the_messages_of_doctor() -> None:
    """Users search for these messages of other programs."""
    folders = (ROOT / "gpuhook/doctor", *(ROOT / "gpuhook/vendors").glob("*/doctor"))
    said = "".join(
        path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")
    )
    for text in (
        "Driver/library version mismatch",
        "Failed to initialize NVML: Unknown Error",
        "unresolvable CDI devices",
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "all CUDA-capable devices are busy or unavailable",
        "container.Runtime.Name must be set",
        "expected cgroupsPath to be of format",
    ):
        assert text in said
        assert text in TROUBLE
