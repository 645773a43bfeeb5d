# SPDX-License-Identifier: Apache-2.0
"""containerd's configurations through configure, a second configure and undo; containerd agrees."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.engines.configure import configure_engine, engine_status
from gpuhook.engines.configure.containerd import configure_containerd, containerd_locations
from gpuhook.engines.configure.containerd.containerd_handler import BASE_SPEC
from gpuhook.engines.configure.engine_plan import ConfigChange, EngineOptions
from gpuhook.engines.configure.host_files import Host
from gpuhook.engines.configure.host_programs import HostPrograms
from gpuhook.engines.read import containerd_config as reader
from gpuhook.engines.read import toml_document
from gpuhook.engines.toml import toml_text
from tests.contract.configurations import HOOK, PROGRAM, Case, cases
from tests.refusal import refused

pytestmark = [pytest.mark.contract, pytest.mark.every_case]
WANTED = EngineOptions("wrapper", "nvidia", PROGRAM, HOOK)
CASES = cases("containerd")
CHANGED = {name: one for name, one in CASES.items() if one.becomes}
WHOLE = {name: one for name, one in CHANGED.items() if "base_spec" not in one.wanted}
# containerd's own word on them: this one is 1.6, which reads what is for 1.x.
DUMPED = {
    name: one
    for name, one in CHANGED.items()
    if any(path.startswith("/etc/containerd/") for path in one.becomes)
    and one.version.startswith("1.")
    and not {"route", "config"} & set(one.wanted)
}


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def write(root: Path, changes: tuple[ConfigChange, ...]) -> None:
    for change in changes:
        place = root / change.path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        assert change.after is not None
        place.write_bytes(change.after)


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_configuration_becomes_what_is_expected(case: Case, tmp_path: Path) -> None:
    node = case.write(tmp_path)
    if case.fault:
        with refused(case.fault):
            configure_containerd.plan(node, case.asked())
        return
    changes = configure_containerd.plan(node, case.asked()).changes
    assert {one.path: one.after for one in changes} == {
        path: encoded(text) for path, text in case.becomes.items()
    }
    assert {one.path: one.before for one in changes} == {
        path: encoded(case.files[path]) if path in case.files else None for path in case.becomes
    }


@pytest.mark.parametrize("case", CHANGED.values(), ids=CHANGED)
def test_a_second_time_changes_nothing(case: Case, tmp_path: Path) -> None:
    node = case.write(tmp_path)
    write(tmp_path, configure_containerd.plan(node, case.asked()).changes)
    assert configure_containerd.plan(node, replace(case.asked(), takes_over=False)).changes == ()


@pytest.mark.parametrize("case", CHANGED.values(), ids=CHANGED)
def test_a_file_that_was_edited_since_loses_only_what_is_ours(case: Case) -> None:
    for path, text in case.becomes.items():
        if path == BASE_SPEC:
            continue
        was = encoded(case.files[path]) if path in case.files else None
        left = configure_containerd.without(path, encoded(text), case.asked(), was)
        if path not in case.files:
            assert left is None
            added = configure_containerd.without(path, encoded(f"{text}[debug]\n"), case.asked())
            assert added is not None
            assert added.endswith(b"[debug]\n")
            assert PROGRAM.encode() not in added
        else:
            before = encoded(case.files[path])
            assert left is not None
            assert left.rstrip() == before.rstrip()


def test_a_file_that_somebody_has_broken_since_is_named_with_its_line() -> None:
    with refused("GH2003") as caught:
        configure_containerd.without(reader.PATH, b"version = 2\n[plugins\n", WANTED)
    assert "config.toml:2 is not TOML" in caught.value.message


@pytest.mark.parametrize("case", CHANGED.values(), ids=CHANGED)
def test_no_line_of_others_is_lost(case: Case) -> None:
    for path, text in case.becomes.items():
        kept = text.replace(toml_text.WAS, "").splitlines()
        if path != BASE_SPEC:
            assert [one for one in case.files.get(path, "").splitlines() if one not in kept] == []


def tree(root: Path) -> dict[str, bytes]:
    """Return the files and directories of a tree, without gpuhook's state."""
    found = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if not name.startswith("var/lib/gpuhook") and name not in ("var", "var/lib", "var/lib/"):
            found[name] = path.read_bytes() if path.is_file() else b"/"
    return found


@pytest.mark.parametrize("case", WHOLE.values(), ids=WHOLE)
def test_undo_gives_back_every_byte(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = case.write(tmp_path).version
    monkeypatch.setattr(HostPrograms, "version", lambda *_: daemon)
    before = tree(tmp_path)
    chosen = {key: case.wanted[key] for key in ("config", "drop_in") if key in case.wanted}
    where = configure_engine.Where("containerd", **chosen)
    host = Host(str(tmp_path))
    first = configure_engine.configure(host, where, case.asked())
    configured = tree(tmp_path)
    assert {one.path: one.after for one in first.writes} == {
        path: encoded(text) for path, text in case.becomes.items()
    }
    again = configure_engine.configure(host, where, case.asked())
    assert (again.writes, tree(tmp_path)) == ((), configured)
    # Other choices: what is there then is made of the original, not of the first choice.
    other = replace(case.asked(), program="/opt/gpuhook/bin/gpuhook-runtime")
    if other.route == "wrapper":
        configure_engine.configure(host, where, other)
        said = b"".join(tree(tmp_path).values())
        assert other.program.encode() in said
        assert b'"' + PROGRAM.encode() + b'"' not in said or PROGRAM in str(case.files)
    configure_engine.undo(host, where)
    assert tree(tmp_path) == before


def dumped(root: Path) -> subprocess.CompletedProcess[str]:
    """Return the output of `containerd config dump` for a tree's configuration."""
    script = f"mount --bind {root}/etc/containerd /etc/containerd && containerd config dump"
    words = ["unshare", "--mount", "sh", "-c", script]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=60, cwd="/")


@pytest.mark.parametrize("case", DUMPED.values(), ids=DUMPED)
def test_containerd_has_the_handler(case: Case, tmp_path: Path) -> None:
    node = replace(case.write(tmp_path), version=(1, 6, 20))
    before = reader.read(node.files, daemon=node.version).configuration
    plan = configure_containerd.plan(node, case.asked())
    write(tmp_path, plan.changes)
    said = dumped(tmp_path)
    assert said.returncode == 0, said.stderr
    read = reader.read(node.files, daemon=node.version)
    if read.key == "cri":  # it prints its defaults of version 2 then, not what it goes by
        assert read.configuration.runtimes[case.asked().name].path == PROGRAM
        return
    document = toml_document.parsed(said.stdout.encode())
    engine = document["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]
    options = engine["runtimes"][case.asked().name]["options"]
    assert PROGRAM in options.values()
    assert set(before.runtimes) <= set(engine["runtimes"])
    assert engine["default_runtime_name"] == (plan.expected.default or before.default)
    assert "cri" not in " ".join(document["disabled_plugins"])


def test_the_base_spec_is_that_of_the_tool() -> None:
    case = CASES["hook-base-spec"]
    spec = json.loads(case.becomes[BASE_SPEC])
    packaged = json.loads(Path("packaging/hooks.d/gpuhook-prestart.json").read_text())["hook"]
    packaged["path"] = HOOK
    assert spec["hooks"]["prestart"] == [packaged]


def rendered(template: str, found: dict[str, object], place: Path) -> str:
    """Return what Go's text/template makes of a template of k3s: helm has the same."""
    (place / "templates").mkdir(parents=True)
    (place / "Chart.yaml").write_text("apiVersion: v2\nname: k3s\nversion: 0.1.0\n")
    (place / "templates/base.tpl").write_text(
        '{{ define "base" }}version = 3\n{{ range $k, $v := .ExtraRuntimes }}'
        "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.'{{ $k }}']\n"
        "{{ end }}{{ end }}"
    )
    (place / "templates/whole.tpl").write_text(f'{{{{ define "whole" }}}}{template}{{{{ end }}}}')
    (place / "templates/a.yaml").write_text('a: {{ include "whole" .Values | toJson }}')
    values = json.dumps({"ExtraRuntimes": found, "SystemdCgroup": True})
    (place / "values.yaml").write_text(values)
    helm = Path(sys.executable).with_name("helm")
    words = [str(helm), "template", str(place)]
    said = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
    text: str = json.loads(said.stdout.partition("a: ")[2])
    return text


@pytest.mark.parametrize("has_nvidia", [False, True])
def test_a_template_never_has_a_table_twice(has_nvidia: bool, tmp_path: Path) -> None:
    template = next(iter(CASES["k3s-3"].becomes.values()))
    found: dict[str, object] = {"nvidia": {}} if has_nvidia else {"crun": {}}
    document = toml_document.parsed(rendered(template, found, tmp_path).encode())
    runtimes = document["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    if has_nvidia:
        assert runtimes == {"nvidia": {}}
    else:
        assert runtimes["nvidia"]["options"] == {"BinaryName": PROGRAM, "SystemdCgroup": True}


def test_what_k3s_has_made_is_shown(tmp_path: Path) -> None:
    node = CASES["k3s-nvidia"].write(tmp_path)
    found = engine_status.engine_status(Host(str(tmp_path)), configure_engine.Where("containerd"))
    assert found.reading.configuration.files == (
        containerd_locations.containerd_location(node).root,
    )
    assert [one.name for one in found.reading.configuration.gpu_runtimes] == ["nvidia"]


def test_a_nodes_notes_name_what_is_left_to_do(tmp_path: Path) -> None:
    case = CASES["nodeadm"]
    notes = configure_containerd.plan(case.write(tmp_path), case.asked()).notes
    snippet = notes[-1].partition("config: |\n")[2]
    document = toml_document.parsed(snippet.encode())
    runtimes = document["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    assert runtimes["nvidia"]["options"]["BinaryName"] == PROGRAM


def test_a_handler_without_marks_is_found_by_its_program() -> None:
    content = (
        b'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\n'
        b'default_runtime_name = "nvidia"\n'
        b'[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n'
        b'runtime_type = "io.containerd.runc.v2"\n'
        b'[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\n'
        b'BinaryName = "/usr/bin/gpuhook-runtime"\n'
    )
    left = configure_containerd.without(reader.PATH, content, WANTED)
    assert left is not None
    engine = toml_document.parsed(left)["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]
    assert engine == {"runtimes": {"runc": {"runtime_type": "io.containerd.runc.v2"}}}
