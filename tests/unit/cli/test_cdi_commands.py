# SPDX-License-Identifier: Apache-2.0
"""`gpuhook cdi show`, `validate` and `resolve`: specs of any vendor, checked on their host."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpuhook as package
from gpuhook.apply.rootfs.hook_args import Jobs
from gpuhook.cli import main
from gpuhook.vendors.nvidia.hot import host_fingerprint

SCHEMAS = Path(package.__file__).parent / "schemas"
HOOK = {"hookName": "prestart", "env": ["A=1"]}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="who may write a file is told by owner")


@pytest.fixture
def dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return the two spec directories of a node that has no settings."""
    low, high = tmp_path / "etc", tmp_path / "run"
    low.mkdir()
    high.mkdir()
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "none.yaml"))
    monkeypatch.setenv("GPUHOOK_CDI_SPEC_DIRS", f"{low}:{high}")
    return low, high


def gpuhook(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["cdi", *arguments], input=text, prog_name="gpuhook")


def _edits(**edits: Any) -> dict[str, Any]:
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "containerEdits": edits,
        "devices": [
            {"name": "0", "containerEdits": {"env": ["A=0"]}},
            {"name": "1", "containerEdits": {"env": ["A=1"]}},
        ],
    }


def _write(path: Path, spec: dict[str, Any]) -> str:
    path.write_text(json.dumps(spec), "utf-8")
    return str(path)


def _validated(text: str, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    jsonschema.validate(document, json.loads((SCHEMAS / f"{name}.json").read_text("utf-8")))
    return document


def _findings(*arguments: str) -> list[str]:
    """Return level, pointer and message of each finding of `cdi validate`."""
    document = _validated(gpuhook("validate", *arguments, "-o", "json").stdout, "cdi-validate")
    return [
        f"{one['level']} {one['pointer']} {one['message']}"
        for spec in document["specs"]
        for one in spec["findings"]
    ]


def test_device_is_shown_as_a_spec(dirs: tuple[Path, Path]) -> None:
    """One device with the common edits is a valid spec that names its file."""
    path = _write(dirs[0] / "a.json", _edits(env=["B=1"]))
    done = gpuhook("show", "nvidia.com/gpu=1")
    assert done.stdout.startswith(f"# {path}\n")
    found = yaml.safe_load(done.stdout)
    assert found["devices"] == [{"name": "1", "containerEdits": {"env": ["A=1"]}}]
    assert found["containerEdits"] == {"env": ["B=1"]}
    assert json.loads(gpuhook("show", path, "-o", "json").stdout) == _edits(env=["B=1"])


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nvidia.com/gpu=7", "GH1102"),
        ("amd.com/gpu=0", "GH1104"),
        ("0", "GH1101"),
        ("/no/such/spec.yaml", "GH1112"),
        ("nvidia.yaml", "GH1112"),
        ("a=b", "GH1101"),
    ],
)
def test_show_without_devices_or_files_is_a_fault(
    name: str, code: str, dirs: tuple[Path, Path]
) -> None:
    """The fault lists what exists."""
    _write(dirs[0] / "a.json", _edits())
    done = gpuhook("show", name)
    assert done.exit_code == 1
    assert f"Error {code}" in done.stderr


def test_resolve_shows_the_source_of_each_edit(dirs: tuple[Path, Path]) -> None:
    """The edits of a spec are first and once, then those of each device, with their source."""
    path = _write(dirs[0] / "a.json", _edits(env=["B=1"]))
    done = gpuhook("resolve", "0", "nvidia.com/gpu=1", "0", "-o", "json")
    document = _validated(done.stdout, "cdi-resolve")
    assert document["names"] == ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]
    assert document["containerEdits"] == {"env": ["B=1", "A=0", "A=1"]}
    assert [(part["path"], part["device"]) for part in document["parts"]] == [
        (path, ""), (path, "nvidia.com/gpu=0"), (path, "nvidia.com/gpu=1"),
    ]  # fmt: skip
    table = gpuhook("resolve", "0", "--no-headers").stdout.splitlines()
    assert [line.split() for line in table] == [
        ["env", "B=1", path], ["env", "A=0", "nvidia.com/gpu=0", "of", path],
    ]  # fmt: skip


def test_table_has_a_line_for_each_kind_of_edit(dirs: tuple[Path, Path]) -> None:
    """No field of CDI is missing in the table."""
    spec = _edits(
        deviceNodes=[
            {"path": "/dev/a", "hostPath": "/x/a", "major": 1, "minor": 3, "permissions": "r"},
            {"path": "/dev/b"},
        ],
        mounts=[{"hostPath": "/h", "containerPath": "/c", "options": ["ro", "bind"]}],
        hooks=[{"hookName": "createContainer", "path": "/bin/h", "args": ["h", "--all"]}],
        additionalGids=[44],
        intelRdt={"closID": "x"},
        netDevices=[{"hostInterfaceName": "eth9", "name": "eth0"}],
    )
    _write(dirs[0] / "a.json", {**spec, "cdiVersion": "1.1.0"})
    text = gpuhook("resolve", "0").stdout
    for line in (
        "/x/a -> /dev/a 1:3 r",
        "/dev/b rwm",
        "/h -> /c ro,bind",
        "createContainer /bin/h --all",
        "44",
        "closID=x",
        "eth9 -> eth0",
    ):
        assert line in text


def test_resolve_applies_edits_to_a_config_json(dirs: tuple[Path, Path], tmp_path: Path) -> None:
    """--oci applies the edits to a config.json, whose file and unknown fields are kept."""
    _write(dirs[0] / "a.json", _edits(mounts=[{"hostPath": "/h", "containerPath": "/c"}]))
    config = tmp_path / "config.json"
    config.write_text('{"odd": 1, "process": {"env": ["PATH=/"]}}')
    before = config.read_bytes()
    found = json.loads(gpuhook("resolve", "0", "--oci", str(config)).stdout)
    assert found["process"]["env"] == ["PATH=/", "A=0"]
    assert found["mounts"] == [{"destination": "/c", "source": "/h", "type": "bind"}]
    assert found["odd"] == 1
    assert config.read_bytes() == before
    assert json.loads(gpuhook("resolve", "0", "--oci", "-", text="{}").stdout)["mounts"]
    assert "GH1300" in gpuhook("resolve", "0", "--oci", "/no/config.json").stderr
    assert "GH1301" in gpuhook("resolve", "0", "--oci", "-", text="[").stderr


def test_resolve_keeps_numbers_of_a_config_json(dirs: tuple[Path, Path]) -> None:
    """Numbers that Python changes or refuses are printed as they were read."""
    _write(dirs[0] / "a.json", _edits(env=["B=1"]))
    numbers = f"[1.10, -0, 1e400, {'9' * 5000}]"
    done = gpuhook("resolve", "0", "--oci", "-", text=f'{{"x": {numbers}}}')
    assert "".join(done.stdout.split()).startswith(f'{{"x":{"".join(numbers.split())},')


def test_ambiguous_config_json_is_refused(dirs: tuple[Path, Path]) -> None:
    """Duplicate keys, and keys in another case: runtimes read them in different ways."""
    _write(dirs[0] / "a.json", _edits(env=["B=1"]))
    for text in ('{"process": {"env": []}, "process": {}}', '{"Process": {}}'):
        done = gpuhook("resolve", "0", "--oci", "-", text=text)
        assert done.exit_code == 1
        assert "GH1307" in done.stderr


def test_validate_without_a_path_checks_all_specs_of_the_node(
    dirs: tuple[Path, Path], tmp_path: Path
) -> None:
    """A spec whose nodes, files and hooks exist has no finding."""
    hook = tmp_path / "hook"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    null = os.stat("/dev/null").st_rdev
    good = _edits(
        deviceNodes=[{"path": "/dev/null", "major": os.major(null), "minor": os.minor(null)}],
        mounts=[
            {"hostPath": "/etc/passwd", "containerPath": "/c"},
            {"hostPath": "tmpfs", "containerPath": "/t", "type": "tmpfs"},
        ],
        hooks=[
            {"hookName": "createContainer", "path": str(hook), "env": ["A=1"]},
            {"hookName": "startContainer", "path": "/only/in/the/container"},
        ],
    )
    path = _write(dirs[0] / "a.json", good)
    done = gpuhook("validate")
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{path}: valid, cdiVersion 0.5.0, nvidia.com/gpu, 2 devices\n"


@pytest.mark.parametrize(
    ("key", "item", "said"),
    [
        ("deviceNodes", {"path": "/dev/no"}, "error {at} the device node /dev/no: No such file"),
        ("deviceNodes", {"path": "/x", "hostPath": "/etc/passwd"}, "error {at} /etc/passwd is no"),
        (
            "deviceNodes",
            {"path": "/dev/null", "type": "b"},
            "error {at} /dev/null does not have the",
        ),
        ("deviceNodes", {"path": "/dev/null", "major": 9, "minor": 1}, "but the spec has 9:1"),
        (
            "deviceNodes",
            {"path": "/dev/no", "type": "c", "major": 9},
            "warning {at} the device node /dev/no: No such file",
        ),
        ("mounts", {"hostPath": "/no", "containerPath": "/c"}, "error {at} the mounted /no: No"),
        ("hooks", {**HOOK, "path": "/no/h"}, "error {at} the hook /no/h: No such"),
        ("hooks", {**HOOK, "path": "/etc/passwd"}, "is not an executable file"),
        ("hooks", {**HOOK, "path": "/bin/sh", "env": []}, "warning {at} the hook /bin/sh has"),
    ],
)
def test_validate_reports_what_the_host_lacks(
    key: str, item: dict[str, Any], said: str, dirs: tuple[Path, Path]
) -> None:
    """Each missing or different file is named with its place in the spec."""
    path = _write(dirs[0] / "a.json", _edits(**{key: [item]}))
    found = _findings()
    assert any(said.format(at=f"/containerEdits/{key}/0") in one for one in found), found
    assert len(found) == 1
    assert gpuhook("validate", "--no-host").exit_code == 0
    assert gpuhook("validate", path).exit_code == int(found[0].startswith("error"))


@needs_root
def test_validate_reports_files_that_others_can_write(
    dirs: tuple[Path, Path], tmp_path: Path
) -> None:
    """A user who can write a hook, a directory above it, or a spec, can become root."""
    home = tmp_path / "home"
    home.mkdir()
    hook = home / "hook"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    entry = {"hookName": "createRuntime", "path": str(hook), "env": []}
    _write(dirs[0] / "a.json", _edits(hooks=[{**entry, "env": ["A=1"]}]))
    assert _findings() == []
    home.chmod(0o777)
    assert "can be written by every user (its mode is 0777)" in _findings()[0]
    home.chmod(0o1777)
    assert _findings() == []
    home.chmod(0o755)
    os.chown(hook, 1234, 0)
    assert "can be written by the user 1234, who owns it" in _findings()[0]
    os.chown(hook, 0, 1234)
    hook.chmod(0o775)
    assert "can be written by the group 1234" in _findings()[0]
    hook.chmod(0o755)
    (dirs[0] / "a.json").chmod(0o666)
    assert _findings()[0].startswith("warning ")
    assert gpuhook("validate").exit_code == 0


def test_validate_reports_a_stale_spec(dirs: tuple[Path, Path], tmp_path: Path) -> None:
    """A stale spec of gpuhook is an error."""
    hook = tmp_path / "gpuhook-hook"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    job = Jobs(str(hook))
    job.libcuda = "/etc/passwd"
    job.fingerprint = host_fingerprint.fingerprint("/", job.libcuda)
    _write(dirs[0] / "a.json", _edits(hooks=[job.hook()]))
    assert _findings() == []
    job.fingerprint = job.fingerprint.replace("boot=", "boot=x")
    _write(dirs[0] / "a.json", _edits(hooks=[job.hook()]))
    assert "it does not match the current state of this host: boot: was x" in _findings()[0]
    assert gpuhook("validate").exit_code == 1


def test_validate_compares_files(dirs: tuple[Path, Path]) -> None:
    """A device that is in one directory twice is an error; a later directory overrides with
    a warning.
    """
    for name in ("a.json", "b.json"):
        _write(dirs[0] / name, _edits())
    found = _findings()
    assert len(found) == 2
    assert all("engines use neither" in one and one.startswith("error") for one in found)
    (dirs[0] / "b.json").unlink()
    _write(dirs[1] / "b.json", _edits())
    assert [one.startswith("warning /devices") and "overrides" in one for one in _findings()] == [
        True
    ]
    assert gpuhook("validate").exit_code == 0


def test_validate_resolves_links_of_directories(
    dirs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """/var/run/cdi is /run/cdi: its specs do not contradict themselves."""
    _write(dirs[0] / "a.json", _edits())
    alias = dirs[0].parent / "alias"
    alias.symlink_to(dirs[0])
    monkeypatch.setenv("GPUHOOK_CDI_SPEC_DIRS", f"{dirs[0]}:{alias}")
    assert _findings() == []


def test_validate_reports_versions_that_old_engines_refuse(dirs: tuple[Path, Path]) -> None:
    """The finding has the field that needs the version."""
    spec = {**_edits(additionalGids=[44]), "cdiVersion": "0.7.0"}
    _write(dirs[0] / "a.json", spec)
    assert "additionalGids needs 0.7.0" in _findings()[0]
    _write(dirs[0] / "a.json", {**_edits(), "cdiVersion": "1.0.0"})
    assert "0.5.0 is enough" in _findings()[0]


def test_validate_without_specs_succeeds(dirs: tuple[Path, Path]) -> None:
    """A message says that there is nothing to check."""
    done = gpuhook("validate")
    assert done.exit_code == 0
    assert f"no CDI spec in {dirs[0]}, {dirs[1]}" in done.stderr
    dirs[0].rmdir()
    assert gpuhook("validate").exit_code == 0


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)
_KEYS = ("cdiVersion", "kind", "containerEdits", "devices", "annotations")
_TEXTS = (
    st.text(max_size=60)
    | _VALUES.map(json.dumps)
    | st.dictionaries(st.sampled_from(_KEYS), _VALUES).map(json.dumps)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(text=_TEXTS, extension=st.sampled_from(["json", "yaml"]))
def test_any_file_content_is_valid_or_a_fault(
    text: str, extension: str, dirs: tuple[Path, Path]
) -> None:
    """No content of a file causes a traceback: it is valid, or refused with a code."""
    path = dirs[0] / f"a.{extension}"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    commands = [
        ("list",), ("validate",), ("show", str(path)), ("show", "nvidia.com/gpu=0"),
        ("resolve", "0"), ("transform", "root", "--from", "/a", "--to", "/b", "--input", str(path)),
    ]  # fmt: skip
    for command in commands:
        done = gpuhook(*command)
        assert done.exit_code in (0, 1)
        assert done.exception is None or isinstance(done.exception, SystemExit), command
        assert "GH1491" not in done.stderr


def test_special_files_do_not_block(dirs: tuple[Path, Path]) -> None:
    """A directory, a pipe, a device or a dangling link in place of a spec does not block."""
    (dirs[0] / "d.json").mkdir()
    os.mkfifo(dirs[0] / "p.json")
    (dirs[0] / "l.json").symlink_to("nowhere")
    if os.geteuid() == 0:
        os.mknod(dirs[0] / "n.json", stat.S_IFCHR | 0o644, os.makedev(1, 5))
    _write(dirs[1] / "a.json", _edits())
    assert gpuhook("resolve", "0").exit_code == 0
    assert gpuhook("validate").exit_code == 1
    assert gpuhook("show", str(dirs[0] / "p.json")).exit_code == 1


def test_long_hook_arguments_are_cut_in_the_table(dirs: tuple[Path, Path]) -> None:
    """gpuhook's hook names each library of the driver: the table shows the beginning."""
    arguments = ["gpuhook-hook", "apply", *(f"--library=/usr/lib/lib{n}.so={n}" for n in range(99))]
    hook = {"hookName": "createContainer", "path": "/usr/bin/gpuhook-hook", "args": arguments}
    _write(dirs[1] / "nvidia.json", _edits(hooks=[hook]))
    table = gpuhook("resolve", "0").stdout
    assert max(map(len, table.splitlines())) < 300
    assert "arguments more (-o json shows all)" in table
    assert arguments[-1] in gpuhook("resolve", "0", "-o", "json").stdout


@pytest.mark.parametrize("command", ["show", "resolve"])
def test_hint_for_other_vendors_names_the_vendor_not_generate_cdi(
    dirs: tuple[Path, Path], command: str
) -> None:
    hint = gpuhook(command, "acme.com/gpu=0").stderr
    assert "GH1104" in hint
    assert "its vendor" in hint
    assert "generate-cdi" not in hint
    assert "gpuhook refresh" in gpuhook(command, "nvidia.com/gpu=0").stderr
    path = _write(dirs[1] / "nvidia.json", _edits())  # a spec of another program
    assert f"generate-cdi --output-file {path}" in gpuhook(command, "nvidia.com/gpu=7").stderr


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("nvidia.com/gpu", "run `gpuhook refresh`, which writes {}/nvidia.yaml"),
        ("amd.com/gpu", "run `gpuhook refresh`, which writes {}/amd.yaml"),
        ("k8s.device-plugin.amd.com/gpu", "`gpuhook generate-cdi`: its --mode"),
    ],
)
def test_hint_names_the_file_of_the_vendor(dirs: tuple[Path, Path], kind: str, advice: str) -> None:
    """Each vendor has a spec for its GPUs."""
    assert advice.format(dirs[1]) in gpuhook("show", f"{kind}=9").stderr
