# SPDX-License-Identifier: Apache-2.0
"""`gpuhook generate-cdi` and `gpuhook cdi`, called by users and by the wrapper."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuhook.cdi import spec_file as spec_files
from gpuhook.cdi.hot import compiled_spec, registry
from gpuhook.cli import main
from gpuhook.cli.generate import generate_cdi_options
from gpuhook.cli.generate.generate_cdi import generate_cdi
from gpuhook.vendors.catalogue import vendors
from tests.simulated.node import make_node

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the test's own state directory."""
    for name in list(os.environ):
        if name.startswith("GPUHOOK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "no-settings.yaml"))
    return tmp_path / "state"


def call(*args: str, env: dict[str, str] | None = None) -> Result:
    """Run `gpuhook` with `args`."""
    return CliRunner().invoke(main, args, env=env, prog_name="gpuhook")


def compile_never(*paths: str) -> None:
    """Fail: the cold compiler must not run."""
    raise AssertionError(paths)


def compile_cold(*paths: str) -> None:
    """Compile as the wrapper does, by `gpuhook cdi compile`."""
    assert call("cdi", "compile", *paths).exit_code == 0


@pytest.mark.parametrize("profile", ["t4", "h100x8", "lost-gpu", "a100-mig"])
@pytest.mark.parametrize("fmt", ["yaml", "json"])
def test_profile_becomes_a_spec_on_standard_output(profile: str, fmt: str) -> None:
    """Each profile gives a spec in both formats, without root and without a GPU."""
    done = call("generate-cdi", "--inventory", profile, "--format", fmt)
    assert done.exit_code == 0
    document = spec_files.parser("x." + fmt)(done.stdout.encode(), "x")
    assert document["kind"] == "nvidia.com/gpu"
    assert document["cdiVersion"] == "0.5.0"


def mounted(document: dict[str, Any]) -> list[str]:
    """Return the names of the files that a spec mounts."""
    return [
        os.path.basename(mount["containerPath"]) for mount in document["containerEdits"]["mounts"]
    ]


def spec(*words: str) -> dict[str, Any]:
    """Return the edits of the spec of all containers."""
    done = call("generate-cdi", *words, "--format", "json")
    assert done.exit_code == 0, done.stderr
    edits: dict[str, Any] = json.loads(done.stdout)["containerEdits"]
    return edits


def test_spec_names_the_installed_hook(tmp_path: Path, installed_hook: str) -> None:
    node = make_node(tmp_path / "node", "t4")
    assert [hook["path"] for hook in spec(*node.options)["hooks"]] == [installed_hook]


def test_spec_has_no_hook_that_does_not_exist(tmp_path: Path) -> None:
    """A wheel has no gpuhook-hook: the spec is one of --hooks none, and a note says so."""
    node = make_node(tmp_path / "node", "t4")
    made = spec(*node.options)
    assert "hooks" not in made
    assert made == spec(*node.options, "--hooks", "none")
    note = "note: this host has no gpuhook-hook, so the spec is written as with --hooks none: "
    assert note in call("generate-cdi", *node.options).stderr
    assert note not in call("generate-cdi", *node.options, "--hooks", "none").stderr
    named = spec(*node.options, "--hook-path", "/opt/gpuhook/bin/gpuhook-hook")
    assert [hook["path"] for hook in named["hooks"]] == ["/opt/gpuhook/bin/gpuhook-hook"]


@pytest.mark.parametrize(
    "option", ["--hooks=gpuhook", "--enable-hook=chmod", "--disable-hook=chmod"]
)
def test_options_of_a_missing_hook_are_refused(option: str, tmp_path: Path) -> None:
    done = call("generate-cdi", *make_node(tmp_path / "node", "t4").options, option)
    assert done.exit_code == 1
    assert f"Error GH1521: {option.partition('=')[0]} needs gpuhook-hook" in done.stderr


@pytest.mark.usefixtures("installed_hook")
def test_spec_has_only_allowed_capabilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine applies the whole spec: files that the settings do not allow need an option."""
    settings = tmp_path / "settings.yaml"
    monkeypatch.setenv("GPUHOOK_CONFIG", str(settings))
    node = make_node(tmp_path / "node", "t4")
    words = ["generate-cdi", *node.options, "--format", "json"]

    def files(*more: str) -> list[str]:
        return mounted(json.loads(call(*words, *more).stdout))

    settings.write_text("request: {driverCapabilities: []}")
    assert "nvidia-smi" in files()
    assert [name for name in files() if name.startswith("libcuda")]
    settings.write_text("request: {driverCapabilities: [utility]}")
    assert "nvidia-smi" in files()
    assert not [name for name in files() if name.startswith("libcuda")]
    # libcuda identifies the driver of a spec, also if containers do not get it.
    arguments = json.loads(call(*words).stdout)["containerEdits"]["hooks"][0]["args"]
    assert "libcuda.so." in arguments[arguments.index("--libcuda") + 1]
    assert "--cuda-compat" not in arguments
    assert [name for name in files("--driver-capabilities=all") if name.startswith("libcuda")]
    elsewhere = call("generate-cdi", "--inventory", "t4", "--format", "json")
    assert [one for one in mounted(json.loads(elsewhere.stdout)) if one.startswith("libcuda")]
    settings.write_text("request: {driverCapabilities: [magic]}")
    assert "GH1530" in call(*words).output


def test_lost_gpu_is_reported_once() -> None:
    """One line says that a lost GPU is skipped, and why."""
    done = call("generate-cdi", "--inventory", "lost-gpu")
    (line,) = [line for line in done.stderr.splitlines() if "lost" in line]
    assert line.startswith("warning: GPU 2 is omitted from the spec: it is lost (")


def test_output_file_is_complete_and_compiled(tmp_path: Path) -> None:
    """--output writes a 0644 file and its compiled form, and nothing to standard output."""
    path = tmp_path / "cdi/nvidia.yaml"
    done = call("generate-cdi", "--inventory", "t4", "--output-file", str(path))
    assert (done.exit_code, done.stdout) == (0, "")
    assert str(path) in done.stderr
    assert path.stat().st_mode & 0o777 == 0o644
    found = registry.load([str(path.parent)], compile_never)
    compiled, edits = found.device("nvidia.com/gpu=0")
    assert edits == {
        "deviceNodes": [{"path": "/dev/nvidia0", "fileMode": 438, "permissions": "rw"}]
    }
    assert compiled.edits == spec_files.read(str(path))["containerEdits"]


def test_long_list_of_devices_is_cut(tmp_path: Path) -> None:
    done = call(
        "generate-cdi", "--inventory", "a100-mig", "--output-file", str(tmp_path / "a.yaml")
    )
    assert "nvidia.com/gpu 0:0, 0:1, " in done.stderr
    assert done.stderr.endswith(" and 1 more\n")


def test_second_run_replaces_the_first(tmp_path: Path) -> None:
    """The same command twice leaves one file with the same content."""
    path = tmp_path / "nvidia.json"
    for _ in range(2):
        assert call("generate-cdi", "--inventory", "t4", "--output-file", str(path)).exit_code == 0
    assert sorted(os.listdir(tmp_path)) == ["nvidia.json", "state"]


def test_dump_writes_no_node_record(tmp_path: Path, state: Path) -> None:
    """node.json describes this node; a dump may be of any node."""
    path = str(tmp_path / "nvidia.json")
    assert call("generate-cdi", "--inventory", "t4", "--output-file", path).exit_code == 0
    assert not (state / "node.json").exists()


def test_unwritable_state_directory_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spec is written also if the state directory is not writable."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", "/proc/gpuhook")
    path = tmp_path / "nvidia.json"
    assert call("generate-cdi", "--inventory", "t4", "--output-file", str(path)).exit_code == 0
    assert path.exists()


@needs_root
@pytest.mark.usefixtures("installed_hook")
def test_instances_with_missing_nodes_are_left_out_or_fixed(tmp_path: Path, state: Path) -> None:
    """The warning has the command that makes the nodes; with the option they are made."""
    made = make_node(tmp_path / "node", "a100-mig")
    missing = Path(made.dev_root, "dev/nvidia-caps/nvidia-cap76")
    missing.unlink()
    path = str(tmp_path / "nvidia.json")
    options = [*made.options, "--output-file", path, "--device-name-strategy", "index"]
    done = call("generate-cdi", *options)
    assert done.exit_code == 0
    assert "warning: MIG instance 0:1 is omitted from the spec: " in done.stderr
    assert "nvidia-modprobe -f /proc/driver/nvidia/capabilities/gpu0/mig/gi8/" in done.stderr
    assert "gpu 0:0, 0:2, 0:3" in done.stderr.replace("nvidia.com/gpu", "gpu")
    assert json.loads((state / "node.json").read_text("utf-8"))["aliases"]["mig0:0"] == "0:0"
    done = call("generate-cdi", *options, "--create-device-nodes")
    assert done.exit_code == 0
    assert "0:0, 0:1, 0:2" in done.stderr
    assert "warning" not in done.stderr
    assert missing.is_char_device()


def test_creating_nodes_for_a_dump_is_a_usage_error() -> None:
    """Nodes are made only on the node that is described."""
    done = call("generate-cdi", "--inventory", "a100-mig", "--create-device-nodes")
    assert done.exit_code == 2
    assert "--create-device-nodes cannot be used with --inventory" in done.stderr


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--vendor", "1x"], "GH1510"),
        (["--vendor", "a/b"], "GH1510"),
        (["--vendor", "intel"], "GH1522"),
        (["--vendor", "AMD"], "GH1522"),
        (["--class", "=x"], "GH1510"),
        (["--class", "x="], "GH1510"),
        (["--hook-path", "gpuhook-hook"], "GH1515"),
        (["--output-file", "x.yml"], "GH1514"),
        (["--output-file", "x"], "GH1514"),
        (["--output-file", "x.yaml", "--format", "json"], "GH1514"),
        (["--device-id", "99"], "GH1511"),
    ],
)
def test_wrong_values_are_refused_by_code(
    options: list[str], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong value is refused with its code and a hint, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    done = call("generate-cdi", "--inventory", "t4", *options)
    assert done.exit_code == (1 if code == "GH1511" else 2)
    assert done.stdout == ""
    assert f"Error {code}: " in done.stderr
    assert "hint: " in done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "options",
    [
        ["--device-name-strategy", "name"],
        ["--device-name-strategy", " , "],
        ["--driver-capabilities", "compute,magic"],
        ["--hooks", "some"],
        ["--format", "toml"],
    ],
)
def test_unknown_values_are_usage_errors(options: list[str]) -> None:
    """The exit status is 2, and the message has the allowed values."""
    done = call("generate-cdi", "--inventory", "t4", *options)
    assert done.exit_code == 2
    assert options[0] in done.stderr


def test_hook_path_without_hooks_has_a_note() -> None:
    done = call("generate-cdi", "--inventory", "t4", "--hooks", "none", "--hook-path", "/x/hook")
    assert done.exit_code == 0
    assert "note: --hook-path has no effect with --hooks none" in done.stderr
    assert "/x/hook" not in done.stdout


def test_options_are_checked_before_the_node_is_read() -> None:
    """A wrong option is reported first, also if the node cannot be read."""
    done = call("generate-cdi", "--inventory", "/no/such/dump", "--vendor", "1x")
    assert "GH1510" in done.stderr


def test_every_option_has_its_variable() -> None:
    """--help-all has an environment variable for each option, derived from the option's name."""
    shown = "".join(call("generate-cdi", "--help-all").stdout.split())
    for option in generate_cdi.params:
        if getattr(option, "hidden", False):
            continue  # another name of an option that is shown
        name = option.opts[-1].lstrip("-").replace("-", "_").upper()
        assert f"envvar:GPUHOOK_GENERATE_CDI_{name}" in shown or f"envvar:GPUHOOK_{name}" in shown


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("DEVICE_NAME_STRATEGY", "type-index,index", ["gpu0", "0", "all"]),
        ("DEVICE_NAME_STRATEGY", "type-index index", ["gpu0", "0", "all"]),
        ("NO_ALL_DEVICE", "1", ["0", "GPU-3d2b7a51-9c0e-4f6d-8b17-52e0c4a6f913"]),
    ],
)
def test_variables_have_the_effect_of_options(
    variable: str, value: str, expected: list[str]
) -> None:
    env = {f"GPUHOOK_GENERATE_CDI_{variable}": value}
    done = call("generate-cdi", "--inventory", "t4", "--format", "json", env=env)
    assert [device["name"] for device in json.loads(done.stdout)["devices"]] == expected


def test_vendor_and_class_can_be_set() -> None:
    """--vendor and --class are the kind; a dotted class requires CDI 0.6.0."""
    options = ["--vendor", "a", "--class", "b.c", "--format", "json"]
    document = json.loads(call("generate-cdi", "--inventory", "t4", *options).stdout)
    assert (document["kind"], document["cdiVersion"]) == ("a/b.c", "0.6.0")


SPEC: dict[str, Any] = {
    "cdiVersion": "0.5.0",
    "kind": "vendor.com/device",
    "devices": [{"name": "a", "containerEdits": {"env": ["A=1"]}}],
}


def write(path: Path, **parts: object) -> Path:
    """Write a spec that is SPEC with `parts` replaced."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(SPEC | parts))  # JSON is YAML
    return path


def test_compiled_yaml_is_read_without_a_parser(tmp_path: Path) -> None:
    """A YAML spec of any program is compiled once and then read without a YAML parser."""
    path = write(tmp_path / "cdi/x.yaml")
    assert registry.load([str(path.parent)], compile_cold).device("vendor.com/device=a")
    assert registry.load([str(path.parent)], compile_never).device("vendor.com/device=a")


def test_broken_spec_is_compiled_into_its_error(tmp_path: Path) -> None:
    """The error of a spec is compiled, too: the file is parsed once, and its error is printed."""
    path = write(tmp_path / "cdi/x.yaml", cdiVersion="9.0.0")
    compile_cold(str(path))
    compiled = compiled_spec.load(str(path), os.stat(path))
    assert compiled is not None
    assert compiled.error is not None
    assert compiled.error.code == "GH1107"
    write(path)
    assert compiled_spec.load(str(path), os.stat(path)) is None


def test_unreadable_json_spec_is_one_broken_spec(tmp_path: Path) -> None:
    """A JSON spec that is not a regular file is one broken spec; the others still apply."""
    write(tmp_path / "cdi/x.json")
    os.mkfifo(tmp_path / "cdi/y.json")
    found = registry.load([str(tmp_path / "cdi")], compile_never)
    assert found.device("vendor.com/device=a")
    assert [broken.path for broken in found.broken] == [str(tmp_path / "cdi/y.json")]


def test_validate_names_each_broken_file(tmp_path: Path) -> None:
    """`cdi validate` checks every file, reports each error, and fails if there is any."""
    good = write(tmp_path / "good.yaml")
    bad = write(tmp_path / "bad.json", devices=[])
    done = call("cdi", "validate", str(bad), str(good))
    assert done.exit_code == 1
    assert f"Error GH1106: {bad}: /devices: " in done.stderr
    assert done.stdout == f"{good}: valid, cdiVersion 0.5.0, vendor.com/device, 1 device\n"
    assert call("cdi", "validate", str(good)).exit_code == 0


def test_list_shows_devices_conflicts_and_broken_files(tmp_path: Path) -> None:
    """`cdi list` shows each device with its file, the one that applies, and conflicts."""
    low, high = tmp_path / "low", tmp_path / "high"
    devices = [{"name": name, "containerEdits": {"env": ["A=1"]}} for name in ("a", "b", "c")]
    write(low / "1.json", devices=devices)
    write(low / "2.yaml", devices=devices[2:])
    write(high / "3.yaml", devices=devices[:1])
    (high / "4.yaml").write_text("a: [")
    (high / "5.yml").write_text("not read")
    options = ["--spec-dir", str(low), "--spec-dir", str(high)]
    done = call("cdi", "list", *options, "-o", "json")
    document = json.loads(done.stdout)
    notes = {(d["name"][-1], Path(d["path"]).name): d["note"] for d in document["devices"]}
    assert notes["a", "1.json"] == f"{high}/3.yaml wins"
    assert notes["a", "3.yaml"] == ""
    assert notes["b", "1.json"] == ""
    assert "twice" in notes["c", "1.json"]
    assert "twice" in notes["c", "2.yaml"]
    assert [(b["path"], b["code"]) for b in document["broken"]] == [(f"{high}/4.yaml", "GH1109")]
    table = call("cdi", "list", *options)
    assert table.stdout.splitlines()[0].split() == ["DEVICE", "SPEC", "NOTE"]
    assert len(table.stdout.splitlines()) == 6
    assert "GH1109" in table.stderr


def test_tegra_options_have_a_note_on_other_machines(tmp_path: Path) -> None:
    done = call("generate-cdi", "--inventory", "t4", "--csv-ignore-pattern", "*.so")
    assert done.exit_code == 0, done.stderr
    assert "note: the options --csv-... have no effect in mode nvml" in done.stderr


def test_help_has_each_option_in_one_section() -> None:
    shown = call("generate-cdi", "--help").stdout
    options = [option for option in generate_cdi.params if not getattr(option, "hidden", False)]
    assert len(options) > 25
    for option in options:
        assert shown.count(f"\n  {option.opts[0]}") == 1, option.name
    assert all(f"\n{title}:\n" in shown for title in generate_cdi_options.SECTIONS)
    assert "Examples:\n" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_each_option_of_a_vendor_is_an_option_of_the_command() -> None:
    """The options of all specs are no vendor's."""
    known = {param.name for param in generate_cdi.params}
    for vendor in vendors():
        assert vendor.own_options <= known
        assert vendor.own_options.isdisjoint(
            ("vendor", "output", "fmt", "inventory", "host_root", "dev_root", "device_id")
        )
