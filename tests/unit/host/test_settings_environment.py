# SPDX-License-Identifier: Apache-2.0
"""Settings in the environment: each key of the file, with the same values and precedence
over it.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import gpuhook as package
from gpuhook.cli import COMMANDS, main
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import settings, settings_environment
from gpuhook.node import settings_file

SCHEMA = settings_file.schema()["properties"]
KEYS = {attribute: path for path, attribute in settings.KEYS.items()}
# Section and key of a variable, a text for it, and the resulting value.
TEXTS: dict[str, tuple[str, Any]] = {
    "GPUHOOK_CDI_ANNOTATION_PREFIXES": ("a.example/, b.example/", ["a.example/", "b.example/"]),
    "GPUHOOK_CDI_DEFAULT_KIND": ("example.com/gpu", "example.com/gpu"),
    "GPUHOOK_CDI_ON_STALE": ("refuse", "refuse"),
    "GPUHOOK_CDI_SPEC_DIRS": ("/a:/b,/c", ["/a", "/b", "/c"]),
    "GPUHOOK_DRIVER_DEV_ROOT": ("/dev-root", "/dev-root"),
    "GPUHOOK_DRIVER_ROOT": ("/run/nvidia/driver", "/run/nvidia/driver"),
    "GPUHOOK_LIMITS_GUARANTEE": ("never", "never"),
    "GPUHOOK_LIMITS_HINTS": ("jax,cupy,jax", ["jax", "cupy"]),
    "GPUHOOK_LIMITS_ON_FAILURE": ("start", "start"),
    "GPUHOOK_NRI_DEVICES": ("a/b, a/b=c", ["a/b", "a/b=c"]),
    "GPUHOOK_NRI_MANAGEMENT_NAMESPACES": ("gpu-operator", ["gpu-operator"]),
    "GPUHOOK_NRI_NAMESPACES": ("lab, *", ["lab", "*"]),
    "GPUHOOK_NRI_RUNTIME_CLASSES": ("nvidia", ["nvidia"]),
    "GPUHOOK_REQUEST_ACCEPT_ANNOTATIONS": ("none", "none"),
    "GPUHOOK_REQUEST_ACCEPT_ENV_WHEN_UNPRIVILEGED": ("No", False),
    "GPUHOOK_REQUEST_ACCEPT_VOLUME_MOUNTS": ("1", True),
    "GPUHOOK_REQUEST_DEFAULT_DRIVER_CAPABILITIES": ("compute,all", ["compute", "all"]),
    "GPUHOOK_REQUEST_DISABLE_REQUIREMENTS": ("TRUE", True),
    "GPUHOOK_REQUEST_DRIVER_CAPABILITIES": ("compute,utility", ["compute", "utility"]),
    "GPUHOOK_REQUEST_EXCLUSIVE_DEVICES": ("all, a/b=c", ["all", "a/b=c"]),
    "GPUHOOK_REQUEST_IGNORE_IMEX_CHANNELS": ("on", True),
    "GPUHOOK_REQUEST_LEGACY_IMAGES": ("0", False),
    "GPUHOOK_REQUEST_ON_MISSING_DRIVER": ("refuse", "refuse"),
    "GPUHOOK_REQUEST_ON_REFUSAL": ("fail", "fail"),
    "GPUHOOK_REQUEST_ON_UNKNOWN_CAPABILITY": ("ignore", "ignore"),
    "GPUHOOK_REQUEST_SWARM_RESOURCES": ("DOCKER_RESOURCE_GPU", ["DOCKER_RESOURCE_GPU"]),
    "GPUHOOK_RUNTIME_LOW_LEVEL_RUNTIMES": ("/opt/crun,runc", ["/opt/crun", "runc"]),
}


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of this node's settings file, which does not exist."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "config.yaml"))
    return tmp_path / "config.yaml"


def gpuhook(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["config", *arguments], prog_name="gpuhook")


def never(path: str) -> None:
    raise AssertionError(path)


def variable(section: str, key: str) -> str:
    """Return the name of the variable by the documented rule."""
    words = re.sub("([A-Z])", r"_\1", key)
    return f"GPUHOOK_{section}_{words}".upper()


def test_every_setting_has_a_variable() -> None:
    named = {variable(*path): attribute for path, attribute in settings.KEYS.items()}
    assert {name: one[0] for name, one in settings_environment.VARIABLES.items()} == named
    assert set(TEXTS) == set(named)


@pytest.mark.parametrize("name", sorted(settings_environment.VARIABLES))
def test_variable_accepts_what_the_schema_accepts(name: str) -> None:
    """Words, types and forms are those of the file's key."""
    attribute, form, words = settings_environment.VARIABLES[name]
    section, key = KEYS[attribute]
    said = SCHEMA[section]["properties"][key]
    assert words == tuple(said.get("enum") or said.get("items", {}).get("enum", ()))
    kinds = {"boolean": "boolean", "list": "array", "directories": "array"}
    assert said.get("type", "string") == kinds.get(form, "string")
    text, value = TEXTS[name]
    assert settings_environment.values({name: text}) == {attribute: value}
    assert settings_file.faults_of({section: {key: value}}) == []


def test_no_variable_is_that_of_an_option() -> None:
    """No variable equals click's name for an option of gpuhook, except the driver root."""
    options = set()
    for name in COMMANDS:
        group = main.get_command(main.make_context("gpuhook", ["--help"], resilient_parsing=True),
                                 name)  # fmt: skip
        assert group is not None
        for one in [group, *getattr(group, "commands", {}).values()]:
            words = [name] if one is group else [name, str(one.name)]
            before = "_".join(words).replace("-", "_").upper()
            for param in one.params:
                own = param.envvar if isinstance(param.envvar, str) else None
                options.add(own or f"GPUHOOK_{before}_{(param.name or '').upper()}")
    assert set(settings_environment.VARIABLES) & options == {"GPUHOOK_DRIVER_ROOT"}


def test_environment_takes_precedence_over_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the hot path and in commands; keys without a variable are read from the file."""
    file.write_text("request: {onRefusal: fail, onMissingDriver: refuse}\n")
    assert gpuhook("compile", str(file)).exit_code == 0
    monkeypatch.setenv("GPUHOOK_REQUEST_ON_REFUSAL", "ignore")
    monkeypatch.setenv("GPUHOOK_REQUEST_ON_MISSING_DRIVER", "")  # like an unset variable
    monkeypatch.setenv("GPUHOOK_REQUEST_ON_REFUSALS", "fail")  # not a variable of gpuhook
    for found in (settings.load(never), settings_file.of_node()):
        assert (found.on_refusal, found.on_missing_driver) == ("ignore", "refuse")
    shown = gpuhook("show", "--origin", "-o", "json")
    document = json.loads(shown.stdout)
    schema = Path(package.__file__).with_name("schemas") / "config-origins.json"
    jsonschema.validate(document, json.loads(schema.read_text("utf-8")))
    request = document["request"]
    assert request["onRefusal"] == {"value": "ignore", "origin": "GPUHOOK_REQUEST_ON_REFUSAL"}
    assert request["onMissingDriver"] == {"value": "refuse", "origin": f"{file}, line 1"}
    assert request["legacyImages"] == {"value": True, "origin": "default"}
    assert yaml.safe_load(gpuhook("show").stdout)["request"]["onRefusal"] == "ignore"
    assert shown.stderr == (
        "warning: GPUHOOK_REQUEST_ON_REFUSALS: unknown setting; did you mean "
        "GPUHOOK_REQUEST_ON_REFUSAL?\n"
    )


WRONG = [
    ("GPUHOOK_CDI_DEFAULT_KIND", "gpu", "it must be VENDOR/CLASS"),
    ("GPUHOOK_CDI_DEFAULT_KIND", "nvidia.com/gpu/x", "it must be VENDOR/CLASS"),
    ("GPUHOOK_CDI_SPEC_DIRS", "/a:b", "b is not an absolute path"),
    ("GPUHOOK_CDI_SPEC_DIRS", ":", "it is empty"),
    ("GPUHOOK_DRIVER_ROOT", "driver", "it must be an absolute path"),
    ("GPUHOOK_LIMITS_HINTS", "jax,torch", "torch is not one of tensorflow, pytorch"),
    ("GPUHOOK_REQUEST_ACCEPT_VOLUME_MOUNTS", "maybe", "it must be true or false"),
    ("GPUHOOK_REQUEST_ON_REFUSAL", "never", "it must be ignore or fail"),
    ("GPUHOOK_LIMITS_GUARANTEE", "x", "it must be auto, always or never"),
    ("GPUHOOK_REQUEST_SWARM_RESOURCES", "A,B=C", "B=C is not the name of a variable"),
    ("GPUHOOK_NRI_DEVICES", "a/b,all", "all is neither a CDI kind nor a CDI name"),
    ("GPUHOOK_REQUEST_EXCLUSIVE_DEVICES", "all,0", "0 is neither a CDI name nor all"),
    ("GPUHOOK_REQUEST_EXCLUSIVE_DEVICES", "a/b=c=d", "a/b=c=d is neither"),
]


@pytest.mark.parametrize(("name", "text", "reason"), WRONG)
def test_invalid_value_is_a_fault(
    name: str, text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No policy is known then: the error has the variable, its value and the allowed ones."""
    monkeypatch.setenv(name, text)
    with pytest.raises(GpuhookError) as caught:
        settings.load(never)
    assert caught.value.code == "GH1533"
    assert caught.value.message.startswith(f"{name}=")
    assert reason in caught.value.message
    for verb in ("show", "validate"):
        failed = gpuhook(verb)
        assert failed.exit_code == 1
        assert "Error GH1533" in failed.stderr


@given(
    name=st.sampled_from(sorted(settings_environment.VARIABLES)),
    text=st.text(alphabet="/:,.-_abz09 \n\u00e9", max_size=12) | st.sampled_from(["true", "jax"]),
)
def test_any_text_is_a_valid_value_or_a_fault(name: str, text: str) -> None:
    """It is a value of the schema, or GH1533, or is ignored."""
    section, key = KEYS[settings_environment.VARIABLES[name][0]]
    found = {}
    with suppress(GpuhookError):
        found = settings_environment.values({name: text})
        assert bool(found) == bool(text.strip())
    for value in found.values():
        wrong = settings_file.faults_of({section: {key: value}})
        assert wrong == []


@pytest.mark.parametrize("command", ["show", "validate"])
def test_variable_with_wrong_underscores_is_reported(
    file: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Variables of commands may begin like a section: only similar names are reported."""
    file.write_text("{}")
    monkeypatch.setenv("GPUHOOK_CDI_ONSTALE", "refuse")
    monkeypatch.setenv("GPUHOOK_LIMITS_SHOW_OUTPUT", "json")
    assert gpuhook(command).stderr == (
        "warning: GPUHOOK_CDI_ONSTALE: unknown setting; did you mean GPUHOOK_CDI_ON_STALE?\n"
    )
