# SPDX-License-Identifier: Apache-2.0
"""`gpuhook config import`: imported keys of the toolkit's config.toml, and remarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from gpuhook.cli import main
from gpuhook.config import toolkit_import
from gpuhook.doctor.facts import toolkit_settings
from gpuhook.node import settings_file

# The output of `nvidia-ctk config default` 1.20.
DEFAULT = """\
#accept-nvidia-visible-devices-as-volume-mounts = false
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"
#swarm-resource = "DOCKER_RESOURCE_GPU"

[nvidia-container-cli]
#debug = "/var/log/nvidia-container-toolkit.log"
environment = []
#ldcache = "/etc/ld.so.cache"
ldconfig = "@/sbin/ldconfig"
load-kmods = true
#no-cgroups = false
#path = "/usr/bin/nvidia-container-cli"
#root = "/run/nvidia/driver"
#user = "root:video"

[nvidia-container-runtime]
#debug = "/var/log/nvidia-container-runtime.log"
log-level = "info"
mode = "auto"
runtimes = ["runc", "crun"]

[nvidia-container-runtime.modes]

[nvidia-container-runtime.modes.cdi]
annotation-prefixes = ["cdi.k8s.io/"]
default-kind = "nvidia.com/gpu"
spec-dirs = ["/etc/cdi", "/var/run/cdi"]

[nvidia-container-runtime.modes.csv]
mount-spec-path = "/etc/nvidia-container-runtime/host-files-for-container.d"

[nvidia-container-runtime.modes.legacy]
cuda-compat-mode = "ldconfig"

[nvidia-container-runtime-hook]
path = "nvidia-container-runtime-hook"
skip-mode-detection = false

[nvidia-ctk]
path = "nvidia-ctk"
"""

TAKEN = [
    ("disable-require = true", {"request": {"disableRequirements": True}}),
    ('swarm-resource = "A, B,A"', {"request": {"swarmResources": ["A", "B"]}}),
    (
        "accept-nvidia-visible-devices-envvar-when-unprivileged = false",
        {"request": {"acceptEnvWhenUnprivileged": False}},
    ),
    (
        "accept-nvidia-visible-devices-as-volume-mounts = true",
        {"request": {"acceptVolumeMounts": True}},
    ),
    ('supported-driver-capabilities = "all"', {}),
    (
        'supported-driver-capabilities = "compute,utility"',
        {"request": {"driverCapabilities": ["compute", "utility"]}},
    ),
    ('[nvidia-container-cli]\nroot = "/run/driver"', {"driver": {"root": "/run/driver"}}),
    (
        '[nvidia-container-runtime]\nruntimes = ["crun"]',
        {"runtime": {"lowLevelRuntimes": ["crun"]}},
    ),
    (
        (
            '[nvidia-container-runtime.modes.cdi]\nspec-dirs = ["/a"]\ndefault-kind = "a.b/c"\n'
            'annotation-prefixes = ["x/"]'
        ),
        {"cdi": {"specDirs": ["/a"], "defaultKind": "a.b/c", "annotationPrefixes": ["x/"]}},
    ),
    (
        "[features]\nignore-imex-channel-requests = true",
        {"request": {"ignoreImexChannels": True}},
    ),
]

TOLD = [
    ("frob = 1", "line 1: frob: the toolkit has no such key"),
    ("disable-requires = true", "did you mean disable-require?"),
    (
        "[nvidia-container-runtime]\nlog-levels = 'info'",
        "did you mean nvidia-container-runtime.log-level?",
    ),
    ("[nvidia-container-runtime]\nunknown-thing = 3", "no such key, and ignores it"),
    ('disable-require = "yes"', 'it must be true or false, but is the text "yes"'),
    (
        '[nvidia-container-runtime]\nmode = "legcay"',
        "line 2: nvidia-container-runtime.mode: it must",
    ),
    ('[nvidia-container-runtime]\nmode = "jit-cdi"', "gpuhook generate-cdi --output"),
    (
        '[nvidia-container-cli]\nroot = "driver"',
        "driver.root does not permit this value: it must be an abs",
    ),
    ("[nvidia-container-cli]\nno-cgroups = true", "no action is needed"),
    ('[nvidia-container-cli]\nuser = "root:video"', "NVreg_DeviceFileMode"),
    ('[nvidia-container-cli]\nldcache = "/x"', "generate.librarySearchPaths"),
    ('[nvidia-container-runtime.modes.cdi]\ndefault-kind = "gpu"', "it must be VENDOR/CLASS"),
    ("[features]\nallow-ldconfig-from-container = true", "does not run any program of an image"),
]


def gpuhook(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["config", "import", *arguments], prog_name="gpuhook")


def imported(tmp_path: Path, text: str) -> tuple[dict[str, Any], str]:
    path = tmp_path / "config.toml"
    path.write_text(text)
    done = gpuhook(str(path))
    assert done.exit_code == 0
    return yaml.safe_load(done.stdout) or {}, done.stderr


def test_default_file_sets_nothing(tmp_path: Path) -> None:
    """Except for the modules that the toolkit loads at every start, and gpuhook does not."""
    document, told = imported(tmp_path, DEFAULT)
    assert document == {}
    (line,) = told.splitlines()
    assert "line 12: nvidia-container-cli.load-kmods: " in line
    assert "gpuhook system load-kernel-modules" in line


@pytest.mark.parametrize(("text", "document"), TAKEN)
def test_imported_keys(text: str, document: dict[str, Any], tmp_path: Path) -> None:
    """They have the same meaning, are valid, and get no remark."""
    found, told = imported(tmp_path, text + "\n")
    assert (found, told) == (document, "")
    assert settings_file.faults_of(found) == []


@pytest.mark.parametrize(("text", "sentence"), TOLD)
def test_remarks_for_keys_that_are_not_imported(text: str, sentence: str, tmp_path: Path) -> None:
    """The remark has the key, the reason and what to do; no invalid value is written."""
    found, told = imported(tmp_path, text + "\n")
    assert found == {}
    assert sentence in told


def test_every_key_of_the_toolkit_is_imported_or_has_a_remark(tmp_path: Path) -> None:
    """Keys with a value other than the default."""
    others: dict[type, Any] = {bool: True, str: "/other", list: ["/other"]}
    special = {
        "supported-driver-capabilities": "compute",
        "nvidia-container-runtime.mode": "legacy",
        "nvidia-container-runtime.log-level": "debug",
        "nvidia-container-runtime.modes.legacy.cuda-compat-mode": "mount",
        "nvidia-container-runtime.modes.cdi.default-kind": "a/b",
        "nvidia-container-cli.ldconfig": "@/other",
        "swarm-resource": "OTHER",
        "accept-nvidia-visible-devices-envvar-when-unprivileged": False,
    }
    for key, kind in toolkit_settings.KEYS.items():
        value = special.get(key, others[kind])
        document: dict[str, Any] = {}
        *tables, last = key.split(".")
        inner = document
        for table in tables:
            inner = inner.setdefault(table, {})
        inner[last] = value
        found = toolkit_import.import_settings(toolkit_settings.ToolkitSettings("x", document))
        assert bool(found.document) != bool(found.remarks), key


def test_output_is_a_valid_settings_file(tmp_path: Path) -> None:
    """--output writes a valid file with the remarks, and replaces an existing one."""
    source, target = tmp_path / "config.toml", tmp_path / "config.yaml"
    source.write_text('disable-require = true\nfrob = "\\u001b[1m"\n')
    target.write_text("old")
    done = gpuhook(str(source), "--output-file", str(target))
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"wrote {target}, 1 key not converted" in done.stderr
    assert settings_file.problem(str(target)) == settings_file.unknown_keys(str(target)) == ""
    assert "# Not imported:\n#   line 2: frob: " in target.read_text()
    assert source.read_text().startswith("disable-require")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"[[[", "line 1: "),
        (b"a = 1\nb\n", "line 2: "),
        (b"\xff", "it is not UTF-8"),
        (b"a = " + b"9" * 5000, "a number has too many digits"),
        (b"#" * ((1 << 20) + 1), "it is larger than 1 MiB"),
    ],
)
def test_unreadable_file_is_a_fault(content: bytes | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    if content is not None:
        path.write_bytes(content)
    failed = gpuhook(str(path))
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert f"Error GH1534: {path}: " in failed.stderr
    assert reason in failed.stderr


VALUES = st.one_of(
    st.booleans(), st.integers(), st.text(max_size=8), st.lists(st.text(max_size=8), max_size=3)
)


@given(st.dictionaries(st.sampled_from(list(toolkit_settings.KEYS)), VALUES, max_size=8))
@example({"nvidia-container-runtime.runtimes": ["\x85"]})
@examples(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_file_gives_valid_settings(keys: dict[str, Any]) -> None:
    """The settings are valid for any values, and are read back unchanged."""
    document: dict[str, Any] = {}
    for key, value in keys.items():
        *tables, last = key.split(".")
        inner = document
        for table in tables:
            inner = inner.setdefault(table, {})
        inner[last] = value
    found = toolkit_import.import_settings(toolkit_settings.ToolkitSettings("x", document))
    assert settings_file.faults_of(found.document) == []
    assert (yaml.safe_load(toolkit_import.text(found, "x\ny")) or {}) == found.document
