# SPDX-License-Identifier: Apache-2.0
"""The recorded arguments of generate-cdi: a second call with them has the same options."""

from __future__ import annotations

import os
from typing import Any

import click
import pytest

from gpuhook.cli.generate import generate_argv
from gpuhook.cli.generate.generate_cdi import generate_cdi

OPTIONS = [one for one in generate_cdi.params if isinstance(one, click.Option)]
# Values of options that do not accept any text.
SAMPLES = {
    "host_root": ["/tmp"],
    "capabilities": ["utility,compute"],
    "device_id": ["0,2", "GPU-1"],
    "device_name_strategy": ["uuid", "type-index"],
    "disable_hook": ["all", "chmod"],
    "enable_hook": ["chmod", "create-symlinks"],
    "files_dir": ["/etc"],  # an existing directory
    "feature_flag": ["disable-ipc-discoverer", "enable-coherent-annotations"],
}


def context_of(words: list[str]) -> click.Context:
    return generate_cdi.make_context("generate-cdi", list(words))


def sample(option: click.Option) -> list[str]:
    """Return arguments that set an option."""
    name = max(option.opts, key=len)
    if option.is_flag:
        return [name]
    if isinstance(option.type, click.Choice):
        return [name, str(option.type.choices[-1])]
    values = SAMPLES.get(option.name or "", ["/some/where", "/else where"])
    return [word for value in values[: None if option.multiple else 1] for word in (name, value)]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("GPUHOOK_"):
            monkeypatch.delenv(name)


def test_unset_options_are_not_recorded() -> None:
    assert generate_argv.recorded_argv(context_of([])) == []


def test_variables_of_the_toolkit_are_recorded_as_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call does not have the environment of the first."""
    monkeypatch.setenv("NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS", "0,2")
    assert generate_argv.recorded_argv(context_of([])) == ["--device-id", "0", "--device-id", "2"]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: str(option.name))
def test_each_option_is_recorded(option: click.Option) -> None:
    """Also options that are added later."""
    before = context_of(sample(option))
    words = generate_argv.recorded_argv(before)
    assert words
    after = context_of(words)
    assert after.params == before.params
    assert generate_argv.recorded_argv(after) == words


def test_all_options_are_recorded_together() -> None:
    words = [word for option in OPTIONS for word in sample(option)]
    before = context_of(words)
    assert context_of(generate_argv.recorded_argv(before)).params == before.params
    kept = generate_argv.recorded_argv(before, "output", "vendor")
    assert "--output-file" not in kept
    assert "--vendor" not in kept


def test_environment_is_recorded_as_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUHOOK_GENERATE_CDI_MODE", "proc")
    monkeypatch.setenv("GPUHOOK_DRIVER_ROOT", "/driver")
    assert sorted(generate_argv.recorded_argv(context_of([]))) == sorted(
        ["--mode", "proc", "--driver-root", "/driver"]
    )


def test_recorded_paths_are_absolute(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call may have another working directory."""
    monkeypatch.chdir(tmp_path)
    found = generate_argv.recorded_argv(context_of(["--driver-root", "some/../driver"]))
    assert found == ["--driver-root", f"{tmp_path}/driver"]


def test_settings_of_the_site_are_not_recorded() -> None:
    """The settings at the time of the second call apply."""
    ctx = generate_cdi.make_context("generate-cdi", [], default_map={"vendor": "example.com"})
    assert ctx.params["vendor"] == "example.com"
    assert generate_argv.recorded_argv(ctx) == []
