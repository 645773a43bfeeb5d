# SPDX-License-Identifier: Apache-2.0
"""generate-cdi, refresh and the commands of CDI specs on nodes with AMD GPUs, or of two vendors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.cli.engines.setup_commands import SetupCommands
from gpuhook.engines.configure.host_programs import HostPrograms
from gpuhook.setup.node_commands import WRITES
from gpuhook.vendors import inventory_file
from tests.simulated import amd_tree
from tests.simulated.amd_kfd_tree import Oddities
from tests.simulated.amd_tree import AmdTree
from tests.simulated.node import make_node

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")
OPTIONS, TOKEN = "io.gpuhook.options", "io.gpuhook.token"


def call(*words: str, **env: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, words, prog_name="gpuhook", env=env)


def kinds(text: str) -> list[str]:
    """Return the kinds of the specs in a text of YAML documents."""
    return [document["kind"] for document in yaml.safe_load_all(text)]


@pytest.mark.parametrize(
    ("profile", "options", "expected"),
    [
        ("t4", [], ["nvidia.com/gpu"]),
        ("mi300x8", [], ["amd.com/gpu"]),
        ("mi300x-cpx", ["--vendor", "auto"], ["amd.com/gpu"]),
        ("mixed", [], ["nvidia.com/gpu", "amd.com/gpu"]),
        ("mixed", ["--vendor", "auto"], ["nvidia.com/gpu", "amd.com/gpu"]),
        ("mixed", ["--vendor", "amd"], ["amd.com/gpu"]),
        ("mixed", ["--vendor", "amd.com"], ["amd.com/gpu"]),
        ("mixed", ["--vendor", "nvidia"], ["nvidia.com/gpu"]),
        ("mixed", ["--vendor", "example.com"], ["example.com/gpu"]),
        ("mixed", ["--hooks", "none"], ["nvidia.com/gpu"]),
        ("mixed", ["--cdi-version", "0.7.0"], ["amd.com/gpu"]),
        ("mixed", ["--device-id", "0"], ["nvidia.com/gpu", "amd.com/gpu"]),
    ],
)
def test_vendors_of_a_call(profile: str, options: list[str], expected: list[str]) -> None:
    """Without --vendor: each vendor that the node has, if all options apply to its GPUs."""
    done = call("generate-cdi", "--inventory", profile, *options)
    assert done.exit_code == 0, done.stderr
    assert kinds(done.stdout) == expected


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--vendor", "amd", "--inventory", "t4"], "GH1513", "no amdgpu driver is loaded"),
        (["--vendor", "amd", "--inventory", "mi300x8", "--mode", "nvml"], "GH1520", "--mode does"),
        (["--vendor", "amd", "--hooks", "none"], "GH1520", "--hooks does not apply to AMD GPUs"),
        (
            ["--vendor", "nvidia", "--inventory", "t4", "--cdi-version", "0.7.0"],
            "GH1520",
            "--cdi-version does not apply to NVIDIA GPUs",
        ),
        (["--vendor", "x.com", "--cdi-version", "0.7.0"], "GH1520", "does not apply to NVIDIA"),
        (["--cdi-version", "0.7.0", "--mode", "nvml"], "GH1520", "GPUs of different vendors"),
        (["--inventory", "mixed", "-o", "json"], "GH1520", "JSON is a single document"),
        (["--inventory", "mi300x8", "--device-id", "8"], "GH1511", "it has 0, 1, 2, 3, 4, 5, 6, 7"),
    ],
)
def test_refused_options(options: list[str], code: str, said: str) -> None:
    """The message names the option that does not apply."""
    done = call("generate-cdi", *options)
    assert done.exit_code != 0
    assert f"Error {code}: " in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("nvidia.yaml", {"nvidia.yaml": "nvidia.com/gpu", "amd.yaml": "amd.com/gpu"}),
        ("amd.yaml", {"nvidia.yaml": "nvidia.com/gpu", "amd.yaml": "amd.com/gpu"}),
        ("gpus.json", {"gpus.json": "nvidia.com/gpu", "amd.json": "amd.com/gpu"}),
    ],
)
def test_files_of_two_vendors(tmp_path: Path, name: str, others: dict[str, str]) -> None:
    """One file for each vendor: FILE is that of the vendor in its name, else of the first one."""
    state = str(tmp_path / "state")
    file = str(tmp_path / "cdi" / name)
    done = call(
        "generate-cdi", "--inventory", "mixed", "--output-file", file, GPUHOOK_STATE_DIR=state
    )
    assert done.exit_code == 0, done.stderr
    found = {
        path.name: yaml.safe_load(path.read_text())["kind"] for path in (tmp_path / "cdi").iterdir()
    }
    assert found == others


def test_one_vendor_fails_alone(tmp_path: Path) -> None:
    """A broken GPU of one vendor: the other's spec is written, and the exit status is 1."""
    done = call("generate-cdi", "--inventory", "mixed")
    documents = list(yaml.safe_load_all(done.stdout))
    dump = yaml.safe_load(Path(inventory_file.path("mixed")).read_text())
    dump["gpus"] = [{**gpu, "lost": "it is lost"} for gpu in dump["gpus"]]
    broken = tmp_path / "broken.yaml"
    broken.write_text(yaml.safe_dump(dump))
    done = call("generate-cdi", "--inventory", str(broken))
    assert (done.exit_code, "Error GH1513" in done.stderr) == (1, True)
    assert list(yaml.safe_load_all(done.stdout)) == documents[1:]


class Here:
    """A tree with AMD GPUs as this node, with its own spec directory, settings and state."""

    def __init__(self, place: Path, profile: str = "mi300x8") -> None:
        self.tree: AmdTree = amd_tree.build(place / "node", profile, real_nodes=True)
        self.specs = place / "cdi"
        self.spec = self.specs / "amd.yaml"
        self.specs.mkdir()
        config = place / "config.yaml"
        config.write_text(json.dumps({"cdi": {"specDirs": [str(self.specs)]}}))
        self.env = {
            "GPUHOOK_CONFIG": str(config),
            "GPUHOOK_HOST_ROOT": str(self.tree.root),
            "GPUHOOK_STATE_DIR": str(place / "state"),
        }

    def call(self, *words: str, rc: int = 0) -> Result:
        done = call(*words, **self.env)
        assert done.exit_code == rc, done.stderr
        return done

    def document(self) -> dict[str, Any]:
        return dict(yaml.safe_load(self.spec.read_text()))

    def states(self, *options: str, rc: int = 0) -> dict[str, tuple[str, str]]:
        found = json.loads(self.call("refresh", "-o", "json", *options, rc=rc).stdout)
        return {Path(one["path"]).name: (one["state"], one["reason"]) for one in found["specs"]}


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


@needs_root
@pytest.mark.parametrize("profile", ["mi300x8", "mi300x-cpx", "radeon"])
def test_tree_equals_its_dump(tmp_path: Path, profile: str) -> None:
    """The spec of a node's files is that of its dump, with the notes for refresh."""
    here = Here(tmp_path, profile)
    root = str(here.tree.root)
    here.call("generate-cdi", "--output-file", str(here.spec))
    found = here.document()
    assert found.pop("annotations")[TOKEN].startswith("generation=")
    assert found.pop("cdiVersion") == "0.6.0"
    dumped = yaml.safe_load(call("generate-cdi", "--inventory", profile).stdout)
    assert dumped.pop("cdiVersion") == "0.5.0"
    text = json.dumps(found)
    for part in (found["containerEdits"], *(one["containerEdits"] for one in found["devices"])):
        for one in part["deviceNodes"]:
            assert one.pop("hostPath") == root + one["path"]
    assert root in text
    assert found == dumped


@needs_root
def test_refresh_writes_the_first_spec(here: Here) -> None:
    """A node without a spec gets amd.yaml; then it is fresh."""
    assert here.states("--dry-run") == {"amd.yaml": ("stale", "this node has no CDI spec")}
    assert not here.spec.exists()
    assert here.states()["amd.yaml"][0] == "written"
    before = here.spec.stat()
    assert here.states() == {"amd.yaml": ("unchanged", "it matches this host")}
    assert here.spec.stat() == before
    assert here.states("--force")["amd.yaml"] == ("written", "--force")


@needs_root
def test_setup_shows_the_first_spec(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of `gpuhook setup` has the devices of the spec that it will write."""
    for name, value in here.env.items():
        monkeypatch.setenv(name, value)
    commands = SetupCommands(click.Context(main, info_name="gpuhook"))
    (spec,) = commands.specs(is_dry=True)
    assert (spec.path, spec.state, spec.is_new) == (str(here.spec), WRITES, True)
    assert spec.contents.startswith("amd.com/gpu: 0, 1, 2")
    assert "driver files" not in spec.contents
    commands.specs(is_dry=False)
    assert here.spec.exists()


@needs_root
@pytest.mark.parametrize("version", ["0.5.0", "0.6.0", "0.7.0"])
def test_refresh_keeps_the_options(here: Here, version: str) -> None:
    """A stale spec is written with its options, which are in the spec: a reboot keeps them."""
    options = ["--vendor", "amd", "--cdi-version", version, "--driver-capabilities", "compute"]
    here.call("generate-cdi", *options, "--no-all-device", "--output-file", str(here.spec))
    before = here.document()
    assert before["cdiVersion"] == version
    assert ("annotations" in before) == (version != "0.5.0")
    assert here.states() == {"amd.yaml": ("unchanged", "it matches this host")}
    here.tree.lose_gpu("0000:27:00.0")
    assert here.states() == {"amd.yaml": ("written", "its devices have changed")}
    after = here.document()
    assert after["cdiVersion"] == version
    names = [one["name"] for one in after["devices"]]
    assert "6" in names
    assert not {"7", "all", "0000:27:00.0"} & set(names)
    assert "/dev/dri/card" not in here.spec.read_text()
    assert after.get("annotations", {}).get(OPTIONS) == before.get("annotations", {}).get(OPTIONS)


@needs_root
@pytest.mark.parametrize(
    ("podman", "written"),
    [((4, 3, 1), "0.5.0"), ((4, 7), "0.6.0"), ((5, 4, 2), "0.6.0"), ((3, 4, 2), "0.6.0")],
)
def test_refresh_for_the_podman_of_the_node(
    here: Here, monkeypatch: pytest.MonkeyPatch, podman: tuple[int, ...], written: str
) -> None:
    """An old podman skips a spec of a newer version; a given version is kept."""
    monkeypatch.setattr(HostPrograms, "version", lambda _, name: podman if name else None)
    assert here.states()["amd.yaml"][0] == "written"
    assert here.document()["cdiVersion"] == written
    assert here.states() == {"amd.yaml": ("unchanged", "it matches this host")}
    here.call("generate-cdi", "--vendor", "amd", "--output-file", str(here.spec))
    is_older = written == "0.5.0"
    reason = "podman 4.3.1 reads CDI 0.5.0 at most" if is_older else "it matches this host"
    assert here.states() == {"amd.yaml": ("written" if is_older else "unchanged", reason)}
    assert here.document()["cdiVersion"] == written
    given = ["--vendor", "amd", "--cdi-version", "0.7.0", "--output-file", str(here.spec)]
    here.call("generate-cdi", *given)
    assert here.states() == {"amd.yaml": ("unchanged", "it matches this host")}


@needs_root
def test_refresh_after_a_reload_of_the_driver(here: Here) -> None:
    """The same devices with another token: the spec is written, so that the wrapper takes it."""
    here.states()
    old = here.document()["annotations"][TOKEN]
    here.tree.generation(77)
    assert here.states()["amd.yaml"][0] == "written"
    new = here.document()["annotations"][TOKEN]
    assert (old != new, "generation=77" in new) == (True, True)


@needs_root
def test_refresh_without_a_driver_and_of_other_specs(here: Here) -> None:
    """A spec remains without a driver; a spec of another program is not touched."""
    here.states()
    text = here.spec.read_bytes()
    module = here.tree.root / "sys/module/amdgpu"
    module.rename(here.tree.root / "gone")
    state, reason = here.states()["amd.yaml"]
    assert (state, "no amdgpu driver is loaded" in reason) == ("kept", True)
    assert here.spec.read_bytes() == text
    here.spec.unlink()
    assert "no amdgpu driver is loaded" in here.call("refresh").stdout
    (here.tree.root / "gone").rename(module)
    theirs = here.specs / "theirs.json"
    theirs.write_text(
        '{"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": [{"name": "0",'
        ' "containerEdits": {"deviceNodes": [{"path": "/dev/kfd"}]}}]}'
    )
    assert here.states() == {"theirs.json": ("unchanged", "gpuhook did not write it")}


@needs_root
def test_refresh_of_two_vendors(tmp_path: Path) -> None:
    """A node of two vendors gets two specs; each is written alone when its GPUs change."""
    make_node(tmp_path / "node", "t4")
    root = tmp_path / "node"
    nvidia = next(path.parent for path in root.rglob("proc") if (path / "driver/nvidia").exists())
    here = Here(tmp_path / "amd")
    amd_tree.build(nvidia, "radeon", real_nodes=True)
    here.env["GPUHOOK_HOST_ROOT"] = str(nvidia)
    here.env |= {"GPUHOOK_DRIVER_ROOT": str(nvidia), "GPUHOOK_DEV_ROOT": str(nvidia)}
    states = here.states()
    assert {name: state for name, (state, _) in states.items()} == {
        "nvidia.yaml": "written", "amd.yaml": "written",
    }  # fmt: skip
    assert {state for state, _ in here.states().values()} == {"unchanged"}
    nvidia_spec = (here.specs / "nvidia.yaml").stat()
    (nvidia / "sys/class/kfd/kfd/topology/generation_id").write_text("99\n")
    assert {name: state for name, (state, _) in here.states().items()} == {
        "nvidia.yaml": "unchanged", "amd.yaml": "written",
    }  # fmt: skip
    assert (here.specs / "nvidia.yaml").stat() == nvidia_spec


@needs_root
def test_graphics_that_are_not_in_kfd_are_no_gpu(tmp_path: Path) -> None:
    """A processor's graphics beside a GPU of the other vendor: only that GPU needs a spec."""
    make_node(tmp_path / "node", "t4")
    root = next(one.parent for one in tmp_path.rglob("proc") if (one / "driver/nvidia").exists())
    here = Here(tmp_path / "amd")
    amd_tree.build(root, "radeon", real_nodes=True, odd=Oddities(has_kfd=False))
    here.env |= {f"GPUHOOK_{name}_ROOT": str(root) for name in ("HOST", "DRIVER", "DEV")}
    assert {name: state for name, (state, _) in here.states().items()} == {"nvidia.yaml": "written"}
    spec = here.specs / "both.yaml"
    here.call("generate-cdi", "--output-file", str(spec))
    assert not here.spec.exists()
    done = here.call("generate-cdi", "--vendor", "amd", "--output-file", str(here.spec), rc=1)
    assert "the kernel has no KFD" in done.stderr


@needs_root
def test_node_with_the_driver_and_without_gpus(tmp_path: Path) -> None:
    """The first vendor's fault comes with the reason of the vendor whose driver is loaded."""
    here = Here(tmp_path)
    for gpu in here.tree.node.gpus:
        here.tree.lose_gpu(gpu.pci_address)
    done = here.call("generate-cdi", rc=1)
    assert "note: AMD: the amdgpu driver has no GPU" in done.stderr
    done = here.call("generate-cdi", "--vendor", "amd", rc=1)
    assert "Error GH1513" in done.stderr


@needs_root
def test_commands_of_cdi(here: Here, tmp_path: Path) -> None:
    """List, show, resolve, transform and validate work with amd.com/gpu."""
    done = here.call("cdi", "resolve", "amd.com/gpu=0", rc=1)
    assert f"run `gpuhook refresh`, which writes {here.specs}/amd.yaml" in done.stderr
    here.states()
    listed = here.call("cdi", "list").stdout
    assert "amd.com/gpu=0000:05:00.0" in listed
    shown = here.call("cdi", "show", "amd.com/gpu=3:0").stdout
    assert "/dev/dri/renderD152" in shown
    edits = json.loads(here.call("cdi", "resolve", "amd.com/gpu=all", "-o", "json").stdout)
    assert "/dev/dri/renderD184" in json.dumps(edits)
    moved = tmp_path / "moved.yaml"
    root = str(here.tree.root)
    here.call(
        "cdi", "transform", "root", "--from", root, "--to", "/host", "--input", str(here.spec),
        "--output-file", str(moved),
    )  # fmt: skip
    assert f"{root}/dev" not in moved.read_text()
    assert "hostPath: /host/dev/kfd" in moved.read_text()
    assert "33 devices" in here.call("cdi", "validate", str(here.spec), "--host").stdout
    (here.tree.root / "dev/dri/renderD184").unlink()
    done = here.call("cdi", "validate", str(here.spec), "--host", rc=1)
    assert "renderD184: No such file or directory" in done.stderr
