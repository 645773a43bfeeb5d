# SPDX-License-Identifier: Apache-2.0
"""The source of the device plugin's configuration: a file, or one of several in a directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.device_plugin.config.config_reader import Override, read
from gpuhook.device_plugin.config.config_source import (
    ConfigSource,
    choose,
    digest,
    load,
    names,
    watched,
)
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.errors import GpuhookError
from tests.kubelet.config_map import ConfigMap

SINGLE = "version: v1\nflags: {migStrategy: single}\n"
MIXED = "version: v1\nflags: {migStrategy: mixed}\n"
WRONG = "version: v2\nflags: {migStrategy: 1}\n"


@pytest.fixture
def config_map(tmp_path: Path) -> ConfigMap:
    mounted = ConfigMap(tmp_path / "configs")
    mounted.publish(default="", single=SINGLE, mixed=MIXED)
    return mounted


def test_defaults_apply_without_a_source() -> None:
    """The command line applies, too."""
    assert load(ConfigSource()).configuration == Configuration()
    made = load(ConfigSource(), {"flags.migStrategy": Override("mixed", "--mig-strategy")})
    assert made.configuration.flags.mig_strategy == "mixed"


def test_file_is_read_again_at_each_load(tmp_path: Path) -> None:
    """Another meaning has another digest."""
    file = tmp_path / "config.yaml"
    file.write_text(SINGLE)
    source = ConfigSource(file=str(file))
    first = load(source)
    assert (first.configuration.flags.mig_strategy, first.name) == ("single", "")
    file.write_text("# another text\n" + SINGLE)
    assert load(source).digest == first.digest
    file.write_text(MIXED)
    assert load(source).digest != first.digest


def test_invalid_file_is_a_fault_with_the_number_of_errors(tmp_path: Path) -> None:
    """The fault has the first error with its place."""
    file = tmp_path / "config.yaml"
    file.write_text(WRONG)
    with pytest.raises(GpuhookError) as caught:
        load(ConfigSource(file=str(file)))
    assert caught.value.code == "GH1800"
    assert caught.value.message == (
        f"the configuration has 2 errors, the first: {file}:1:10: version: must be "
        '"v1", found the text "v2"'
    )
    assert caught.value.hint.startswith(f"run `gpuhook device-plugin --validate {file}`")
    found = read(file.read_bytes(), str(file))
    assert found.configuration is None
    assert [finding.path for finding in found.findings] == ["version", "flags.migStrategy"]


def test_strict_load_refuses_warnings(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("flags: {renameByDefault: true}\n")
    source = ConfigSource(file=str(tmp_path / "config.yaml"))
    assert [found.severity for found in load(source).findings] == ["warning"]
    with pytest.raises(GpuhookError, match="has an error: "):
        load(source, strict=True)


@pytest.mark.parametrize("what", ["missing", "a directory"])
def test_unreadable_file_is_a_fault(tmp_path: Path, what: str) -> None:
    path = tmp_path / "config.yaml"
    if what == "a directory":
        path.mkdir()
    with pytest.raises(GpuhookError) as caught:
        load(ConfigSource(file=str(path)))
    assert str(path) in caught.value.message
    with pytest.raises(GpuhookError) as caught:
        load(ConfigSource(directory=str(tmp_path / "missing")))
    assert caught.value.code == "GH1801"


def test_names_are_the_visible_files(config_map: ConfigMap) -> None:
    """The kubelet's own files in a mounted ConfigMap are not configurations."""
    (config_map.directory / "nested").mkdir()
    assert names(str(config_map.directory)) == ["default", "mixed", "single"]


def test_label_selects_the_configuration(config_map: ConfigMap) -> None:
    """A node without a label gets `default`."""
    source = ConfigSource(directory=str(config_map.directory))
    assert load(source, label="single").configuration.flags.mig_strategy == "single"
    assert load(source, label="single").name == "single"
    assert load(source).name == "default"
    assert load(source, label="").name == "default"


def test_unknown_label_keeps_the_configuration(config_map: ConfigMap) -> None:
    """It is a warning (NVIDIA's plugin exits)."""
    source = ConfigSource(directory=str(config_map.directory))
    found = load(source, label="../single", current="mixed")
    assert (found.name, found.configuration.flags.mig_strategy) == ("mixed", "mixed")
    assert [str(finding) for finding in found.findings] == [
        (
            "the node's label: warning: '../single' is not a configuration (default, "
            "mixed, single): mixed remains active"
        )
    ]
    assert load(source, label="gone").name == "default"


CHOICES = [
    (ConfigSource(default_name="b"), None, ["a", "b", "default"], "", "b"),
    (ConfigSource(default_name="b"), "a", ["a", "b"], "", "a"),
    (ConfigSource(), None, ["a", "default"], "", "default"),
    (ConfigSource(), None, ["a"], "", "a"),
    (ConfigSource(), None, ["a"], "b", "a"),
    (ConfigSource(fallbacks=("empty",)), None, ["a", "b"], "", ""),
    (ConfigSource(fallbacks=("empty",)), None, [], "", ""),
    (ConfigSource(fallbacks=("single", "named")), None, ["a", "default"], "", "default"),
]


@pytest.mark.parametrize(("source", "label", "known", "current", "name"), CHOICES)
def test_label_default_and_strategies_are_the_precedence(
    source: ConfigSource, label: str | None, known: list[str], current: str, name: str
) -> None:
    assert choose(source, label, known, current) == (name, "")


NOTHING = [
    (ConfigSource(directory="/d"), None, ["a", "b"], "the node has no label and there is no"),
    (ConfigSource(directory="/d"), "c", ["a", "b"], "'c' is not a configuration (a, b)"),
    (ConfigSource(directory="/d", default_name="c"), None, ["a"], "the default, c, does not exist"),
    (ConfigSource(directory="/d", fallbacks=()), None, ["default"], "the node has no label"),
]


@pytest.mark.parametrize(("source", "label", "known", "reason"), NOTHING)
def test_no_matching_configuration_is_a_fault(
    source: ConfigSource, label: str | None, known: list[str], reason: str
) -> None:
    """The fault lists the known names."""
    with pytest.raises(GpuhookError) as caught:
        choose(source, label, known)
    assert caught.value.code == "GH1802"
    assert reason in caught.value.message


def test_file_with_the_name_selects_the_configuration(
    config_map: ConfigMap, tmp_path: Path
) -> None:
    """It replaces the label; an empty file is no label."""
    name = tmp_path / "name"
    source = ConfigSource(directory=str(config_map.directory), name_file=str(name))
    assert load(source, label="mixed").name == "default"
    name.write_text("single\n")
    assert load(source, label="mixed").name == "single"
    name.write_text("other\n")
    (finding,) = load(source, current="single").findings
    assert str(finding).startswith(f"{name}: warning: 'other' is not a configuration")
    name.write_text("\n")
    assert load(source).name == "default"


def test_changed_config_map_is_read_at_the_next_load(config_map: ConfigMap) -> None:
    source = ConfigSource(directory=str(config_map.directory))
    before = load(source, label="single")
    config_map.publish(default="", single=MIXED)
    after = load(source, label="single")
    assert after.configuration.flags.mig_strategy == "mixed"
    assert before.digest != after.digest
    assert names(source.directory) == ["default", "single"]


def test_directories_of_files_and_link_targets_are_watched(
    config_map: ConfigMap, tmp_path: Path
) -> None:
    """The directory ..data is not."""
    mounted = str(config_map.directory)
    assert watched(ConfigSource()) == ()
    assert watched(ConfigSource(directory=mounted)) == (mounted,)
    assert watched(ConfigSource(file=f"{mounted}/single")) == (mounted,)
    assert watched(ConfigSource(directory=mounted, name_file=str(tmp_path / "n"))) == (
        mounted,
        str(tmp_path),
    )
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").symlink_to(config_map.directory / "single")
    linked = watched(ConfigSource(file=str(tmp_path / "config/config.yaml")))
    assert linked == (str(tmp_path / "config"), mounted)
    (tmp_path / "loop").symlink_to("loop")
    assert watched(ConfigSource(file=str(tmp_path / "loop"))) == (str(tmp_path),)


def test_swapped_config_map_changes_a_watched_directory(config_map: ConfigMap) -> None:
    (directory,) = watched(ConfigSource(file=str(config_map.directory / "single")))
    before = os.stat(directory).st_mtime_ns
    os.utime(directory, ns=(0, 0))
    config_map.publish(default="", single=MIXED, mixed=MIXED)
    assert os.stat(directory).st_mtime_ns >= before


def test_digest_depends_on_the_meaning_only() -> None:
    """It is short enough for a label."""
    one = digest(Configuration())
    assert one == digest(load(ConfigSource()).configuration)
    assert len(one) == 8


def test_directory_as_configuration_file_is_a_fault(tmp_path: Path) -> None:
    for source in (
        ConfigSource(file=str(tmp_path)),
        ConfigSource(directory=str(tmp_path), name_file=str(tmp_path)),
    ):
        with pytest.raises(
            GpuhookError, match=r"cannot read the configuration from .*: Is a directory"
        ) as caught:
            load(source)
        assert caught.value.code == "GH1801"
