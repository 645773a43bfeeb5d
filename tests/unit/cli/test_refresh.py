# SPDX-License-Identifier: Apache-2.0
"""`gpuhook refresh`: the specs that it writes again, how, and those that it does not change."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from click.testing import CliRunner, Result

import gpuhook
from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi import spec_file as spec_files
from gpuhook.cli import main
from gpuhook.cli.engines.setup_commands import SetupCommands
from gpuhook.cli.generate import refresh as refreshing
from gpuhook.setup.node_commands import HAS, WRITES
from gpuhook.vendors.nvidia.spec import spec_records
from tests.simulated.node import SimulatedNode, make_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
SCHEMA = json.loads(
    Path(gpuhook.__file__).with_name("schemas").joinpath("refresh.json").read_text()
)
GPUS = "proc/driver/nvidia/gpus"


class Here:
    """A node with its own spec directories, settings and state."""

    def __init__(self, place: Path, profile: str = "h100x8") -> None:
        self.node: SimulatedNode = make_node(place / "node", profile)
        self.host = Path(self.node.host_root)
        self.specs = place / "cdi"
        self.spec = self.specs / "nvidia.yaml"
        self.state = place / "state"
        self.config = place / "config.yaml"
        self.specs.mkdir()
        dirs = [str(place / "etc"), str(self.specs)]
        self.config.write_text(json.dumps({"cdi": {"specDirs": dirs}}))
        self.env = {
            "GPUHOOK_CONFIG": str(self.config),
            "GPUHOOK_HOST_ROOT": str(self.host),
            "GPUHOOK_STATE_DIR": str(self.state),
        }

    def call(self, *words: str, **env: str) -> Result:
        return CliRunner().invoke(main, words, prog_name="gpuhook", env={**self.env, **env})

    def generate(self, *options: str, output: Path | None = None) -> None:
        words = [*self.node.options, "--output-file", str(output or self.spec), *options]
        done = self.call("generate-cdi", *words)
        assert done.exit_code == 0, done.stderr

    def refresh(self, *options: str, rc: int = 0) -> list[dict[str, Any]]:
        done = self.call("refresh", "-o", "json", *options)
        assert done.exit_code == rc, done.stderr
        document = json.loads(done.stdout)
        jsonschema.validate(document, SCHEMA)
        return list(document["specs"])

    def states(self, *options: str, rc: int = 0) -> dict[str, str]:
        return {Path(one["path"]).name: one["state"] for one in self.refresh(*options, rc=rc)}

    def names(self, path: Path | None = None) -> list[str]:
        return [device["name"] for device in spec_files.read(str(path or self.spec))["devices"]]

    def reboot(self) -> None:
        (self.host / "proc/sys/kernel/random/boot_id").write_text("another\n")

    def gpus(self) -> list[Path]:
        return sorted((self.host / GPUS).iterdir())


@pytest.fixture
def here(tmp_path: Path, installed_hook: str) -> Here:
    return Here(tmp_path)


def test_fresh_specs_are_kept_without_a_call_of_nvml(here: Here) -> None:
    here.generate()
    before = here.spec.stat()
    Path(here.node.nvml_profile).write_text("init 999\n")
    for _ in range(2):
        assert here.states() == {"nvidia.yaml": "unchanged"}
    assert here.spec.stat() == before


def test_refresh_keeps_the_options_of_each_spec(here: Here) -> None:
    """Each spec is written again with its own options, and with no others."""
    other = here.specs / "some.json"
    here.generate("--device-id", "1,3", "--device-name-strategy", "type-index", "--no-all-device")
    here.generate("--class", "other", "--hooks", "none", "--driver-capabilities", "utility",
                  output=other)  # fmt: skip
    before = [path.read_text() for path in (here.spec, other)]
    here.reboot()
    assert here.states("--dry-run") == {"nvidia.yaml": "stale", "some.json": "stale"}
    assert [path.read_text() for path in (here.spec, other)] == before
    assert here.states() == {"nvidia.yaml": "written", "some.json": "written"}
    assert here.names() == ["gpu1", "gpu3"]
    assert here.spec.read_text() != before[0]
    assert other.read_text() == before[1]  # without a hook it has no boot id
    assert here.states() == {"nvidia.yaml": "unchanged", "some.json": "unchanged"}


def upgraded(here: Here) -> None:
    """Replace a library by another build of the same version, as a package upgrade does."""
    library = next(f for f in here.node.node.files if f.soname == "libcuda.so.1")
    os.utime(library.host_path, ns=(1, 1))


def new_uvm_major(here: Here) -> None:
    devices = here.host / "proc/devices"
    old = here.node.node.majors["nvidia-uvm"]
    devices.write_text(devices.read_text().replace(f"{old} nvidia-uvm", "400 nvidia-uvm"))
    for name in ("nvidia-uvm", "nvidia-uvm-tools"):
        path = Path(here.node.dev_root, "dev", name)
        minor = os.minor(path.stat().st_rdev)
        path.unlink()
        os.mknod(path, 0o20666, os.makedev(400, minor))


def replaced_root(here: Here) -> None:
    """Replace the driver's tree by a copy with other inodes, as a restarted driver
    container does.
    """
    root = Path(here.node.driver_root)
    shutil.copytree(root / "usr", root / "new", symlinks=True)
    shutil.rmtree(root / "usr")
    (root / "new").rename(root / "usr")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (Here.reboot, "boot: was "),
        (upgraded, "tree: was "),
        (new_uvm_major, "majors: was "),
        (replaced_root, "tree: was "),
        (lambda here: here.config.write_text(here.config.read_text() + "\n"), "was changed"),
    ],
)
def test_changes_that_make_a_spec_stale(
    change: Callable[[Here], object], told: str, here: Here
) -> None:
    here.generate()
    change(here)
    (one,) = here.refresh()
    assert one["state"] == "written"
    assert told in one["reason"]
    assert here.states() == {"nvidia.yaml": "unchanged"}


@pytest.mark.parametrize(
    ("place", "name"), [("option", "site.yaml"), ("settings", "site.yaml"), ("option", "site.yml")]
)
def test_changed_rules_of_the_site_make_a_spec_stale(place: str, name: str, here: Here) -> None:
    """For each way to name their directory."""
    rules = here.config.parent / "files.d"
    rules.mkdir()
    if place == "settings":
        document = json.loads(here.config.read_text())
        here.config.write_text(json.dumps({**document, "generate": {"filesDir": str(rules)}}))
    here.generate(*(["--files-dir", str(rules)] if place == "option" else []))
    assert "nvidia-debugdump" in here.spec.read_text()
    assert here.states() == {"nvidia.yaml": "unchanged"}
    (rules / name).write_text("drop: ['*/nvidia-debugdump']\n")
    (one,) = here.refresh()
    assert one["reason"].endswith(f"a file of {rules} was changed")
    assert "nvidia-debugdump" not in here.spec.read_text()
    assert here.states() == {"nvidia.yaml": "unchanged"}


def test_other_version_of_gpuhook_makes_a_spec_stale(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.generate()
    monkeypatch.setattr(spec_records, "__version__", "99.0")
    (one,) = here.refresh("--dry-run")
    assert "gpuhook: was " in one["reason"]


def test_removed_gpu_makes_a_spec_stale(here: Here) -> None:
    """The new spec has the remaining seven GPUs."""
    here.generate("--mode", "proc", "--device-name-strategy", "index")
    shutil.rmtree(here.gpus()[0])
    (one,) = here.refresh()
    assert one["reason"].startswith("gpus: was 8-")
    assert here.names() == [*map(str, range(7)), "all"]


def test_removed_mig_instance_makes_a_spec_stale(tmp_path: Path) -> None:
    here = Here(tmp_path, "a100-mig")
    here.generate("--mode", "proc", "--device-name-strategy", "index")
    capabilities = here.host / "proc/driver/nvidia/capabilities"
    shutil.rmtree(next(capabilities.glob("gpu0/mig/gi*")))
    before = here.names()
    (one,) = here.refresh()
    assert "mig: was " in one["reason"]
    assert (
        len([name for name in here.names() if name.startswith("0:")])
        == len([name for name in before if name.startswith("0:")]) - 1
    )


def test_without_a_driver_the_spec_is_kept_without_failure(here: Here) -> None:
    here.generate()
    before = here.spec.read_text()
    for path in ("sys/module/nvidia/version", "proc/driver/nvidia/version"):
        (here.host / path).unlink()
    (one,) = here.refresh()
    assert one["state"] == "kept"
    assert one["reason"].startswith("no NVIDIA driver is loaded (driver: was ")
    assert here.spec.read_text() == before


def test_without_gpus_the_spec_is_kept(here: Here) -> None:
    here.generate()
    for gpu in here.gpus():
        shutil.rmtree(gpu)
    (one,) = here.refresh()
    assert (one["state"], one["reason"][:21]) == ("kept", "the driver has no GPU")


def test_node_without_a_driver_needs_no_spec(here: Here) -> None:
    shutil.rmtree(here.host / "sys/module")
    shutil.rmtree(here.host / "proc/driver")
    done = here.call("refresh")
    assert done.exit_code == 0
    assert done.stdout.startswith("nothing to do: no NVIDIA driver is loaded; ")
    assert not here.spec.exists()


def test_node_without_a_spec_gets_one(here: Here) -> None:
    """In the directory of the highest priority; the environment names the driver root."""
    here.env["GPUHOOK_DRIVER_ROOT"] = here.node.driver_root
    assert here.states("--dry-run") == {"nvidia.yaml": "stale"}
    assert not here.spec.exists()
    assert here.states() == {"nvidia.yaml": "written"}
    assert len(here.names()) == 17
    assert here.states() == {"nvidia.yaml": "unchanged"}


def test_spec_that_no_engine_reads_does_not_count(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """refresh and setup write the first spec, as on a node without one."""
    here.env["GPUHOOK_DRIVER_ROOT"] = here.node.driver_root
    look = tmp_path / "look.yaml"
    here.generate(output=look)
    for name, value in here.env.items():
        monkeypatch.setenv(name, value)
    root = click.Context(main, info_name="gpuhook")
    states = {one.path: one.state for one in SetupCommands(root).specs(is_dry=True)}
    assert states == {str(look): HAS, str(here.spec): WRITES}
    assert here.states("--dry-run") == {"look.yaml": "unchanged", "nvidia.yaml": "stale"}
    assert here.states() == {"look.yaml": "unchanged", "nvidia.yaml": "written"}
    assert here.spec.exists()
    assert here.states() == {"look.yaml": "unchanged", "nvidia.yaml": "unchanged"}


def test_removed_spec_is_forgotten(here: Here) -> None:
    """One of two specs is not written again; the last one is, with its options."""
    other = here.specs / "other.yaml"
    here.generate("--device-id", "2", "--no-all-device")
    here.generate("--class", "other", output=other)
    other.unlink()
    assert here.states() == {"nvidia.yaml": "unchanged", "other.yaml": "forgotten"}
    assert here.states() == {"nvidia.yaml": "unchanged"}
    here.spec.unlink()
    assert here.states()["nvidia.yaml"] == "written"
    assert here.names()[0] == "2"


def test_specs_of_others_are_not_changed(here: Here) -> None:
    text = json.dumps(
        {
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "devices": [{"name": "0", "containerEdits": {"env": ["A=1"]}}],
        }
    )
    path = here.specs / "nvidia.json"
    path.write_text(text)
    for options in ((), ("--force",)):
        (one,) = here.refresh(*options)
        assert (one["state"], one["reason"]) == ("unchanged", "gpuhook did not write it")
    assert path.read_text() == text
    assert os.listdir(here.specs) == ["nvidia.json"]


def test_force_writes_all_specs_of_gpuhook(here: Here) -> None:
    here.generate()
    before = here.spec.stat().st_mtime_ns
    (one,) = here.refresh("--force")
    assert (one["state"], one["reason"]) == ("written", "--force")
    assert here.spec.stat().st_mtime_ns > before


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GPUHOOK_GENERATE_CDI_FORMAT", "yaml"),
        ("NVIDIA_CTK_CDI_GENERATE_OUTPUT_FORMAT", "yaml"),
        ("NVIDIA_CTK_CDI_GENERATE_VENDOR", "example.com"),
        ("GPUHOOK_GENERATE_CDI_DEVICE_ID", "0"),
        ("GPUHOOK_GENERATE_CDI_INVENTORY", "t4"),
    ],
)
@pytest.mark.parametrize("is_noted", [True, False])
def test_variables_do_not_change_a_spec_that_exists(
    variable: str, value: str, is_noted: bool, here: Here
) -> None:
    path = here.specs / "nvidia.json"
    here.generate("--format", "json", output=path)
    before = json.loads(path.read_text(encoding="utf-8"))
    if not is_noted:
        shutil.rmtree(here.state)
    done = here.call("refresh", "--force", **{variable: value})
    assert done.exit_code == 0, done.stderr
    assert json.loads(path.read_text(encoding="utf-8")) == before


def test_without_a_record_options_are_read_from_the_spec(here: Here) -> None:
    """After a boot /run is empty, and a spec in /etc/cdi remains."""
    path = here.specs.parent / "etc/gpus.yaml"
    path.parent.mkdir()
    here.generate("--device-name-strategy", "type-index", "--vendor", "example.com", output=path)
    before = spec_files.read(str(path))
    shutil.rmtree(here.state)
    assert here.states() == {"gpus.yaml": "unchanged"}
    here.reboot()
    assert here.states() == {"gpus.yaml": "written"}
    after = spec_files.read(str(path))
    assert (after["kind"], after["devices"]) == (before["kind"], before["devices"])
    assert after["containerEdits"]["mounts"] == before["containerEdits"]["mounts"]


@pytest.mark.parametrize(
    "options",
    [
        ["--disable-hook", "update-ldcache,enable-cuda-compat"],
        ["--disable-hook", "create-symlinks,update-application-profile"],
        ["--enable-hook", "chmod"],
        ["--ldconfig-path", "/sbin/ldconfig"],
    ],
)
def test_without_a_record_the_jobs_of_the_hook_are_kept(options: list[str], here: Here) -> None:
    """The choice of its jobs is read from its arguments."""

    def choices() -> list[object]:
        job = hook_args.of_hook(spec_files.read(str(here.spec))["containerEdits"]["hooks"][0])
        return [job.skipped, job.cuda_compat, job.chmod, job.ldconfig, job.libraries, job.links]

    here.generate(*options)
    before = choices()
    shutil.rmtree(here.state)
    here.reboot()
    assert here.states() == {"nvidia.yaml": "written"}
    assert choices() == before


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--device-id", "1"], "the node now has different devices"),
        (["--driver-capabilities", "utility"], "it was generated without "),
    ],
)
def test_without_a_record_a_limited_spec_is_kept(options: list[str], what: str, here: Here) -> None:
    """No container gets more than before, except with --force."""
    here.generate(*options)
    before = here.spec.read_text()
    shutil.rmtree(here.state)
    here.reboot()
    (one,) = here.refresh(rc=1)
    assert (one["state"], one["error"]["code"]) == ("failed", "GH1527")
    assert what in one["error"]["message"]
    assert here.spec.read_text() == before
    assert here.states("--force") == {"nvidia.yaml": "written"}


def test_one_failure_does_not_stop_the_other_specs(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of another version, with an unknown option."""
    other = here.specs / "other.yaml"
    here.generate("--mode", "proc")
    here.generate("--class", "other", output=other)
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(here.state))
    (made,) = [one for one in spec_records.all_of_node() if one.path == str(other)]
    spec_records.remember(replace(made, words=[*made.words, "--no-such-option"]))
    here.reboot()
    found = {Path(one["path"]).name: one for one in here.refresh(rc=1)}
    assert found["nvidia.yaml"]["state"] == "written"
    assert found["other.yaml"]["error"]["code"] == "GH1528"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "gpuhook/generated/v1", "words": 7}'])
def test_broken_records_are_ignored(text: str, here: Here) -> None:
    here.generate()
    (note,) = (here.state / "generated").iterdir()
    note.write_text(text)
    assert here.states() == {"nvidia.yaml": "unchanged"}
    here.reboot()
    assert here.states() == {"nvidia.yaml": "written"}


@pytest.mark.parametrize("options", [[], ["--force"]])
def test_hook_with_unknown_arguments_fails_that_spec_alone(options: list[str], here: Here) -> None:
    """The other specs are still written."""
    garbled = here.specs / "garbled.json"
    here.generate("--class", "other", output=garbled)
    shutil.rmtree(here.state)
    here.generate()
    document = json.loads(garbled.read_text())
    document["containerEdits"]["hooks"][0]["args"] += ["--of-another-release"]
    garbled.write_text(json.dumps(document))
    before = garbled.read_bytes()
    here.reboot()
    for words in (["--dry-run"], []):
        found = {Path(one["path"]).name: one for one in here.refresh(*words, *options, rc=1)}
        assert found["garbled.json"]["state"] == "failed"
        assert found["garbled.json"]["error"]["code"] == "GH1640"
        assert found["nvidia.yaml"]["state"] == ("stale" if words else "written")
    assert garbled.read_bytes() == before


def test_lock_held_by_another_process_is_a_fault(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.generate()
    here.reboot()
    monkeypatch.setattr(refreshing, "_LOCK_SECONDS", 0.1)
    with (here.state / "refresh.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = here.call("refresh")
    assert done.exit_code == 1
    assert "Error GH1526" in done.stderr
    assert here.states() == {"nvidia.yaml": "written"}


def test_text_output(here: Here) -> None:
    here.generate()
    assert here.call("refresh").stdout == (f"{here.spec}: unchanged: it matches this host\n")
    Path(here.node.nvml_profile).write_text("init 999\n")
    here.reboot()
    done = here.call("refresh")
    assert done.exit_code == 1
    assert done.stdout.startswith(f"{here.spec}: failed: boot: was ")
    assert "Error GH1206: " in done.stderr


def test_spec_replaced_by_another_program_is_kept(here: Here) -> None:
    """NVIDIA's refresh writes the same file: gpuhook does not change it."""
    here.generate()
    devices = [{"name": "0", "containerEdits": {"env": ["A=1"]}}]
    text = json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices})
    here.spec.write_text(text)
    here.reboot()
    found = here.refresh()
    assert [(one["state"], one["reason"]) for one in found] == [
        ("forgotten", "another program has written it"),
        ("unchanged", "gpuhook did not write it"),
    ]
    assert here.spec.read_text() == text
    assert here.states() == {"nvidia.yaml": "unchanged"}


def test_broken_spec_of_gpuhook_is_fixed(here: Here) -> None:
    here.generate()
    before = here.spec.read_text()
    here.spec.write_text("devices: [")
    (one,) = here.refresh()
    assert (one["state"], one["reason"]) == ("written", "it is broken")
    assert here.spec.read_text() == before


def test_broken_spec_of_unknown_origin_is_not_overwritten(here: Here) -> None:
    here.spec.write_text("devices: [")
    (one,) = here.refresh(rc=1)
    assert one["error"]["code"] == "GH1529"
    assert here.spec.read_text() == "devices: ["


def explained(here: Here, **env: str) -> dict[str, Any]:
    told = here.call("explain", "--env=NVIDIA_VISIBLE_DEVICES=0", "-o", "json", **env)
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def test_explain_reports_what_a_create_does_with_a_stale_spec(here: Here) -> None:
    """The spec is refreshed first, or a setting or missing GPU refuses the container."""
    here.generate("--mode", "proc")
    assert explained(here)["node"]["notes"] == []
    here.reboot()
    before = here.spec.read_bytes()
    told = explained(here)
    assert told["containers"][0]["result"] == "gets"
    (note,) = told["node"]["notes"]
    assert str(here.spec) in note
    assert "gpuhook refresh" in note
    assert here.spec.read_bytes() == before
    refused = explained(here, GPUHOOK_CDI_ON_STALE="refuse")
    assert refused["containers"][0]["fault"]["code"] == "GH1120"
    assert refused["node"]["notes"] == []
    for gpu in here.gpus():
        shutil.rmtree(gpu)
    assert explained(here)["containers"][0]["fault"]["code"] == "GH1120"
