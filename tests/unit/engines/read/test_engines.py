# SPDX-License-Identifier: Apache-2.0
"""Configurations of engines: merged as each version merges them, with the place of each setting."""

from __future__ import annotations

import json

import pytest

from gpuhook.engines.read import (
    containerd_config,
    crio_config,
    docker_config,
    engine_config,
    oci_hooks,
    podman_config,
    toml_document,
)
from gpuhook.engines.read.config_files import matching

OLD = 'plugins."io.containerd.grpc.v1.cri"'
NEW = 'plugins."io.containerd.cri.v1.runtime"'
RUNC = 'runtime_type = "io.containerd.runc.v2"\n'
NVIDIA = "/usr/bin/nvidia-container-runtime"
DROP_INS = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'


class Memory:
    """Files in memory."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts

    def read(self, path: str) -> bytes | None:
        text = self.texts.get(path)
        return None if text is None else text.encode()

    def names(self, path: str) -> list[str]:
        before = "/" if path == "/" else f"{path}/"
        below = {
            one[len(before) :].partition("/")[0] for one in self.texts if one.startswith(before)
        }
        return sorted(below)


def runtime(key: str, name: str, path: str = NVIDIA, option: str = "BinaryName") -> str:
    table = f"{key}.containerd.runtimes.{name}"
    return f'[{table}]\n{RUNC}[{table}.options]\n{option} = "{path}"\n'


def read(daemon: engine_config.Version | None, **texts: str) -> containerd_config.Containerd:
    """Return the configuration of config.toml and drop-ins; a keyword is the name of a drop-in."""
    files = {"/etc/containerd/config.toml": texts.pop("config")}
    files |= {f"/etc/containerd/conf.d/{name}.toml": text for name, text in texts.items()}
    return containerd_config.read(Memory(files), daemon=daemon)


@pytest.mark.parametrize(
    ("daemon", "names"),
    [
        ((1, 6, 20), {"b"}),
        ((1, 7, 27), {"b"}),
        ((2, 0, 5), {"b", "runc"}),
        ((2, 1, 0), {"a", "b", "runc"}),
        (None, {"b"}),
    ],
)
def test_a_later_file_replaces_the_plugin_until_2_1(
    daemon: engine_config.Version | None, names: set[str]
) -> None:
    found = read(
        daemon,
        config=f"version = 2\n{DROP_INS}{runtime(OLD, 'a')}",
        b=f"version = 2\n{runtime(OLD, 'b')}",
    )
    assert set(found.configuration.runtimes) == names
    assert [(one.runtime.name, one.by) for one in found.ignored] == (
        [] if "a" in names else [("a", "/etc/containerd/conf.d/b.toml")]
    )


@pytest.mark.parametrize(
    ("version", "key", "daemon", "is_read"),
    [
        (2, OLD, (1, 7), True),
        (2, NEW, (1, 7), False),
        (3, NEW, (1, 7), False),
        (1, "plugins.cri", (1, 7), True),
        (1, OLD, (1, 7), False),
        (1, "plugins.cri", (2, 0), True),
        (2, OLD, (2, 0), True),
        (2, NEW, (2, 0), True),
        (3, NEW, (2, 0), True),
        (3, OLD, (2, 0), False),
        (4, NEW, (2, 3), True),
        (2, OLD, None, True),
        (3, NEW, None, True),
        (2, NEW, None, False),
    ],
)
def test_runtimes_are_under_the_key_of_the_version(
    version: int, key: str, daemon: engine_config.Version | None, is_read: bool
) -> None:
    found = read(daemon, config=f"version = {version}\n{runtime(key, 'nvidia')}")
    assert ("nvidia" in found.configuration.runtimes) == is_read
    assert [one.runtime.path for one in found.ignored] == ([] if is_read else [NVIDIA])
    if is_read:
        where = found.configuration.runtimes["nvidia"].where
        assert str(where) == "/etc/containerd/config.toml:2"


@pytest.mark.parametrize(
    ("daemon", "said", "is_on"),
    [
        ((1, 6), "true", False),
        ((1, 7), "", False),
        ((1, 7), "true", True),
        ((2, 0), "", True),
        ((2, 0), "false", False),
        (None, "", False),
    ],
)
def test_cdi_is_on_by_default_from_2_0(
    daemon: engine_config.Version | None, said: str, is_on: bool
) -> None:
    line = f"enable_cdi = {said}\n" if said else ""
    assert read(daemon, config=f"version = 2\n[{OLD}]\n{line}").has_cdi is is_on


@pytest.mark.parametrize(
    ("daemon", "config", "drop_in", "fatal"),
    [
        ((2, 3), 2, 2, 0),
        ((2, 3), 2, 3, 1),
        ((2, 3), 4, 3, 0),
        ((2, 3), 5, 5, 2),
        ((2, 1), 4, 3, 1),
        ((2, 1), 2, 3, 0),
        ((1, 7), 2, 3, 0),
    ],
)
def test_versions_that_containerd_refuses_are_fatal(
    daemon: engine_config.Version, config: int, drop_in: int, fatal: int
) -> None:
    found = read(daemon, config=f"version = {config}\n{DROP_INS}", a=f"version = {drop_in}\n")
    assert len(found.configuration.trouble) == fatal


def test_option_names_are_read_in_each_spelling() -> None:
    text = f"version = 2\n{runtime(OLD, 'nvidia', option='binaryName')}systemdCgroup = true\n"
    found = read((1, 7), config=text).configuration.runtimes["nvidia"]
    assert found.path == NVIDIA
    assert found.options["options"]["systemdcgroup"] is True


def test_containerd_without_a_file_has_defaults() -> None:
    found = containerd_config.read(Memory({}), daemon=(1, 7))
    assert list(found.configuration.runtimes) == ["runc"]
    assert found.configuration.default == "runc"
    assert found.has_cri


def test_circular_imports_end() -> None:
    found = read(
        None, config=f"version = 2\n{DROP_INS}", a='imports = ["../config.toml", "b.toml"]', b=""
    )
    assert [path.rpartition("/")[2] for path in found.configuration.files] == [
        "config.toml",
        "a.toml",
        "b.toml",
    ]


@pytest.mark.parametrize(("daemon", "files"), [((1, 7), 1), ((2, 0), 2), (None, 1)])
def test_relative_pattern_starts_at_the_file_since_2_0(
    daemon: engine_config.Version | None, files: int
) -> None:
    found = read(daemon, config='version = 2\nimports = ["conf.d/*.toml"]\n', a="")
    assert len(found.configuration.files) == files


def test_docker_defaults() -> None:
    found = docker_config.read(Memory({docker_config.PATH: "{}"}))
    assert found.configuration.default == "runc"
    assert found.has_cdi((28, 3))
    assert not found.has_cdi((27, 5))


def test_docker_settings_have_their_place() -> None:
    document = {
        "runtimes": {"nvidia": {"path": NVIDIA, "args": []}},
        "features": {"cdi": False},
        "cdi-spec-dirs": ["/opt/cdi"],
        "selinux-enabled": True,
    }
    found = docker_config.read(Memory({docker_config.PATH: json.dumps(document, indent=4)}))
    assert str(found.configuration.runtimes["nvidia"].where) == f"{docker_config.PATH}:3"
    assert found.configuration.gpu_runtimes[0].path == NVIDIA
    assert found.configuration.cdi_dirs == ("/opt/cdi",)
    assert not found.has_cdi((29, 0))
    assert found.has_selinux
    assert found.line_of("features") == 8


@pytest.mark.parametrize("text", ['{"runtimes": []}', "[]", "{,}", '{"features": true}', "\xff"])
def test_configuration_that_docker_refuses_is_fatal(text: str) -> None:
    found = docker_config.read(Memory({docker_config.PATH: text}))
    assert len(found.configuration.trouble) == 1
    assert found.configuration.trouble[0].where.path == docker_config.PATH


def test_crio_reads_drop_ins_in_order_of_names() -> None:
    found = crio_config.read(
        Memory(
            {
                crio_config.PATH: '[crio.runtime]\ndefault_runtime = "a"\n'
                "[crio.runtime.runtimes.a]\n",
                f"{crio_config.DROP_INS}/99-b": '[crio.runtime]\ndefault_runtime = "b"\n'
                "selinux = true\n",
                f"{crio_config.DROP_INS}/10-c": '[crio.runtime]\ndefault_runtime = "c"\n'
                f'[crio.runtime.runtimes.b]\nruntime_path = "{NVIDIA}"\n',
            }
        )
    )
    assert found.configuration.default == "b"
    assert set(found.configuration.runtimes) == {"a", "b", "crun"}  # CRI-O's default one is kept
    assert str(found.configuration.runtimes["b"].where) == f"{crio_config.DROP_INS}/10-c:3"
    assert found.has_selinux


def test_podman_has_cdi_since_4_1() -> None:
    assert [podman_config.has_cdi(one) for one in ((3, 4), (4, 0, 3), (4, 1), None)] == [
        False,
        False,
        True,
        True,
    ]


def test_hook_of_a_later_directory_masks_one_with_its_name() -> None:
    files = Memory(
        {
            "/usr/hooks/a.json": '{"hook": {"path": "/usr/bin/nvidia-container-toolkit"}}',
            "/etc/hooks/a.json": '{"hook": {"path": "/bin/true"}}',
            "/etc/hooks/b.json": '{"hook": "/usr/bin/nvidia-container-runtime-hook"}',
            "/etc/hooks/c.json": "{",
            "/etc/hooks/d.txt": "{",
        }
    )
    found = oci_hooks.read(files, ["/usr/hooks", "/etc/hooks"])
    assert [(one.path, one.gives_gpus) for one in found] == [
        ("/bin/true", False),
        ("/usr/bin/nvidia-container-runtime-hook", True),
        ("", False),
    ]
    assert found[2].reason


def test_line_of_a_key_in_each_spelling() -> None:
    text = b"""# [a.b]
version = 2
[ "a" . 'b.c' ]
  d = 1
a.e.f = 2
[[list]]
x = 1
[y]
inline = { deep = 1 }
"""
    for names, line in (
        (("version",), 2),
        (("a", "b.c"), 3),
        (("a", "b.c", "d"), 4),
        (("list",), 6),
        (("y", "inline", "deep"), 9),
        (("nothing",), 0),
    ):
        assert toml_document.line_of(text, names) == line


def test_invalid_toml_has_its_line() -> None:
    for text, line in ((b"a = 1\nb = \n", 2), (b"a = 1\n\xff\n", 2)):
        with pytest.raises(toml_document.UnreadableTomlError) as caught:
            toml_document.parsed(text)
        assert caught.value.line == line
        assert "line" not in caught.value.reason


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("containerd github.com/containerd/containerd v1.7.27 05044ec", (1, 7, 27)),
        ("runc version 1.1.5+ds1", (1, 1, 5)),
        ("Docker version 27.5.1, build 9f9e405", (27, 5, 1)),
        ("podman", None),
    ],
)
def test_versions_are_read_from_the_output_of_programs(
    said: str, version: engine_config.Version | None
) -> None:
    assert engine_config.parse_version(said) == version


def test_patterns_match_in_every_part_of_a_path() -> None:
    files = Memory({"/etc/a/1.toml": "", "/etc/b/2.toml": "", "/etc/b/3.txt": ""})
    assert matching(files, "/etc/*/*.toml") == ["/etc/a/1.toml", "/etc/b/2.toml"]
    assert matching(files, "/etc/b/3.txt") == ["/etc/b/3.txt"]
    assert matching(files, "/no/*") == []
