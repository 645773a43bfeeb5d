# SPDX-License-Identifier: Apache-2.0
"""The settings file, its compiled form, and the hot path's settings."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import settings

WHOLE = """\
runtime:
  lowLevelRuntimes: [/opt/crun, runc]
cdi:
  specDirs: [/etc/cdi, /opt/cdi]
  defaultKind: example.com/gpu
  annotationPrefixes: [gpus.example.com/]
  onStale: refuse
driver:
  root: /run/nvidia/driver
  devRoot: /
request:
  acceptEnvWhenUnprivileged: false
  acceptVolumeMounts: true
  disableRequirements: true
  driverCapabilities: [compute, utility]
  defaultDriverCapabilities: [all]
  onUnknownCapability: ignore
  exclusiveDevices: [amd.com/gpu=0]
  ignoreImexChannels: true
  legacyImages: false
  acceptAnnotations: kubelet
  onMissingDriver: refuse
  onRefusal: fail
  swarmResources: [DOCKER_RESOURCE_GPU]
nri:
  devices: [nvidia.com/gpu, nvidia.com/mig=0]
  managementNamespaces: [gpu-operator]
  namespaces: [lab, '*']
  runtimeClasses: [nvidia]
limits:
  guarantee: never
  onFailure: start
  hints: [jax, cupy]
generate:
  mode: nvml
  deviceIds: ['0', '1']
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of this node's settings file, which does not exist."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "config.yaml"))
    return tmp_path / "config.yaml"


def gpuhook(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["config", *arguments], prog_name="gpuhook")


def compiling(path: str) -> None:
    """Compile the settings as the hot path does."""
    assert gpuhook("compile", path).exit_code == 0


def never(path: str) -> None:
    raise AssertionError(path)


def values(found: settings.Settings) -> dict[str, object]:
    return vars(found)


def test_without_a_file_the_defaults_apply(file: Path) -> None:
    """Nothing is compiled."""
    assert values(settings.load(never)) == values(settings.Settings())
    assert gpuhook("path").stdout == f"{file}\n"
    assert gpuhook("validate").stdout == f"{file}: absent, defaults apply\n"


def test_every_setting_reaches_the_hot_path(file: Path) -> None:
    """With one compilation."""
    file.write_text(WHOLE)
    found = settings.load(compiling)
    assert values(found) == {
        "accept_annotations": "kubelet",
        "accept_env_when_unprivileged": False,
        "accept_volume_mounts": True,
        "annotation_prefixes": ["gpus.example.com/"],
        "default_driver_capabilities": ["all"],
        "dev_root": "/",
        "disable_requirements": True,
        "driver_capabilities": ["compute", "utility"],
        "driver_root": "/run/nvidia/driver",
        "exclusive_devices": ["amd.com/gpu=0"],
        "ignore_imex_channels": True,
        "legacy_images": False,
        "on_refusal": "fail",
        "on_stale": "refuse",
        "on_unknown_capability": "ignore",
        "swarm_resources": ["DOCKER_RESOURCE_GPU"],
        "default_kind": "example.com/gpu",
        "limits_guarantee": "never",
        "limits_hints": ["jax", "cupy"],
        "limits_on_failure": "start",
        "low_level_runtimes": ["/opt/crun", "runc"],
        "nri_devices": ["nvidia.com/gpu", "nvidia.com/mig=0"],
        "nri_management_namespaces": ["gpu-operator"],
        "nri_namespaces": ["lab", "*"],
        "nri_runtime_classes": ["nvidia"],
        "on_missing_driver": "refuse",
        "spec_dirs": ["/etc/cdi", "/opt/cdi"],
    }
    assert values(settings.load(never)) == values(found)


def test_changed_file_is_compiled_again(file: Path) -> None:
    """The compiled form of the earlier file is not used."""
    file.write_text(WHOLE)
    settings.load(compiling)
    (file.parent / "new").write_text("request: {onMissingDriver: start}\n")
    (file.parent / "new").rename(file)
    assert settings.load(compiling).on_missing_driver == "start"


def test_every_attribute_has_a_key() -> None:
    """Each setting of the hot path is a key of the file."""
    assert sorted(settings.KEYS.values()) == sorted(vars(settings.Settings()))


@pytest.mark.parametrize("spoil", ["corrupt", "wrong version", "others may write it", "a list"])
def test_invalid_compiled_form_is_replaced(spoil: str, file: Path) -> None:
    """Also one that another user can write."""
    file.write_text(WHOLE)
    settings.load(compiling)
    kept = Path(settings.compiled_path(str(file)))
    head, _, body = kept.read_bytes().partition(b"\n")
    if spoil == "others may write it":
        kept.chmod(0o666)
    elif spoil == "wrong version":
        kept.write_bytes(head.replace(b"settings 1", b"settings 0") + b"\n" + body)
    else:
        kept.write_bytes(head + b"\n" + {"corrupt": body[:-3], "a list": b"[]"}[spoil])
    with pytest.raises(AssertionError):
        settings.load(never)
    settings.load(compiling)
    assert settings.load(never).on_missing_driver == "refuse"


BROKEN = [
    ("runtime: [", "line 1, column 11"),
    ("a: b\n c: d\n", "line 2, column 3"),
    ("cdi: {specDirs: /etc/cdi}\n", "cdi.specDirs"),
    ("cdi: {specDirs: [relative]}\n", "cdi.specDirs.0"),
    ("cdi: {defaultKind: gpu}\n", "cdi.defaultKind"),
    ("runtime: {lowLevelRuntimes: []}\n", "runtime.lowLevelRuntimes"),
    ("request: {acceptVolumeMounts: 1}\n", "request.acceptVolumeMounts"),
    ("request: {onMissingDriver: maybe}\n", "request.onMissingDriver"),
    ("- a list\n", "the file"),
    ("just text\n", "the file"),
]


@pytest.mark.parametrize(("text", "place"), BROKEN)
def test_broken_file_is_reported_with_its_place(text: str, place: str, file: Path) -> None:
    """By the command and by the hot path."""
    file.write_text(text)
    for code, *verb in (
        ("GH1532", "validate"),
        ("GH1532", "validate", str(file)),
        ("GH1530", "show"),
    ):
        shown = gpuhook(*verb)
        assert (shown.exit_code, shown.stdout) == (1, ""), verb
        assert f"Error {code}: {file}: " in shown.stderr
        assert place in shown.stderr
    with pytest.raises(GpuhookError) as caught:
        settings.load(compiling)
    assert caught.value.code == "GH1530"
    assert place in caught.value.message
    with pytest.raises(GpuhookError):
        settings.load(never)


@pytest.mark.parametrize("text", ["runtime: {unknown: 1}\n", "unknown: {}\n"])
def test_unknown_key_is_an_error_only_for_validate(text: str, file: Path) -> None:
    """It is a warning elsewhere: the node continues."""
    file.write_text(text)
    refused = gpuhook("validate")
    assert refused.exit_code == 1
    assert "Error GH1532" in refused.stderr
    assert "unknown: there is no such key" in refused.stderr
    shown = gpuhook("show")
    assert shown.exit_code == 0
    assert "unknown: there is no such key" in shown.stderr
    assert settings.load(compiling).low_level_runtimes == ["runc", "crun"]


SENTENCES = [
    (
        "limits:\n  onFailuer: start\n",
        "line 2: limits.onFailuer: there is no such key; did you mean onFailure?",
    ),
    (
        "limits:\n  frobs: 1\n",
        "line 2: limits.frobs: there is no such key; known here are onFailure, guarantee, hints",
    ),
    (
        "limits:\n  onFailure:\n",
        "line 2: limits.onFailure: it must be auto, refuse or start, but is nothing",
    ),
    ("limits:\n  onFailure: strat\n", 'is the text "strat"; did you mean start?'),
    ("limits:\n  hints:\n  - jax\n  - jxa\n", "line 4: limits.hints.1: it must be tensorflow, "),
    ("limits:\n  hints: [jax, jax]\n", 'limits.hints: it names the text "jax" twice'),
    ("[]\n", "line 1: the file: it must be a section with keys, but is a list"),
    ("false\n", "line 1: the file: it must be a section with keys, but is"),
    ("limits: [onFailure]\n", "line 1: limits: it must be a section with keys, but is a list"),
    ("cdi: {specDirs: [cdi]}\n", "it must be an absolute path, but is"),
    ("runtime: {lowLevelRuntimes: []}\n", "runtime.lowLevelRuntimes: it must not be empty"),
    (
        "limits:\n  onFailure: start\n  onFailure: refuse\n",
        "line 3: limits.onFailure: it occurs twice, first in line 2",
    ),
    ("limits: {}\ncdi: {}\nlimits: {}\n", "line 3: limits: it occurs twice, first in line 1"),
]


@pytest.mark.parametrize(("text", "sentence"), SENTENCES)
def test_messages_are_sentences(text: str, sentence: str, file: Path) -> None:
    """They name the place and the expected value, not the validator's terms."""
    file.write_text(text)
    refused = gpuhook("validate")
    assert refused.exit_code == 1
    assert sentence in refused.stderr


def test_merged_key_may_be_overridden(file: Path) -> None:
    """A key next to a merged mapping is not a duplicate."""
    file.write_text("cdi: &one {specDirs: [/a]}\nlimits: {}\n")
    assert gpuhook("validate").exit_code == 0
    file.write_text("cdi: {<<: {specDirs: [/a]}, specDirs: [/b]}\n")
    assert gpuhook("validate").exit_code == 0


def test_file_that_is_not_utf8_is_broken(file: Path) -> None:
    file.write_bytes(b"runtime: \xff\n")
    assert "Error GH1532" in gpuhook("validate").stderr


def test_named_file_must_exist(file: Path) -> None:
    """Only this node's own file may be absent."""
    missing = str(file.parent / "missing.yaml")
    shown = gpuhook("validate", missing)
    assert shown.exit_code == 1
    assert f"{missing}: the file does not exist" in shown.stderr


@pytest.mark.parametrize("text", ["", "# nothing\n", "cdi: {}\n", WHOLE])
def test_show_prints_every_setting(text: str, file: Path) -> None:
    """The output is a valid settings file."""
    file.write_text(text)
    shown = gpuhook("show").stdout
    assert json.loads(gpuhook("show", "-o", "json").stdout) == yaml.safe_load(shown)
    if text == WHOLE:
        assert yaml.safe_load(shown) == yaml.safe_load(WHOLE)
    elif text:
        file.write_text(shown.replace("defaultKind: ''", "defaultKind: nvidia.com/gpu"))
        assert gpuhook("validate").stdout == f"{file}: valid\n"


def test_compiler_without_output_is_a_fault(file: Path) -> None:
    """Without a compiled form no policy is known: GH1105 with the file's path."""
    file.write_text(WHOLE)
    with pytest.raises(GpuhookError) as caught:
        settings.load(lambda path: None)
    assert caught.value.code == "GH1105"
    assert str(file) in caught.value.message


@pytest.mark.skipif(os.geteuid() != 0, reason="root reads everything in another way")
def test_directory_in_place_of_the_file_is_a_fault(file: Path) -> None:
    file.mkdir()
    assert "Error GH1532" in gpuhook("validate").stderr
    with pytest.raises(GpuhookError) as caught:
        settings.load(compiling)
    assert caught.value.code == "GH1530"
