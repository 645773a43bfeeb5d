# SPDX-License-Identifier: Apache-2.0
"""`gpuhook compare` on real containers that have GPUs by a simulated stack of NVIDIA."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuhook.cdi import spec_file
from gpuhook.loader import ld_cache
from tests.contract.installation import Installation, asks
from tests.contract.live import Live, sleeping, started, wrapped
from tests.contract.runtimes import CGROUPS
from tests.simulated import nvidia_stack
from tests.simulated.node import SimulatedNode, make_node

GPU = 2
DifferenceKey = tuple[str, str, str]  # kind, name and verdict
Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def nvidia(node8: Installation, tmp_path: Path) -> Installation:
    """Return the node with NVIDIA's CDI spec only, without files of gpuhook."""
    mine = node8.apart(tmp_path / "nvidia")
    mine.spec.unlink()
    hooks = nvidia_stack.programs(mine.place / "bin")
    nvidia_stack.write_cdi(mine.node, mine.specs / "nvidia.yaml", hooks)
    shutil.rmtree(mine.state, ignore_errors=True)
    return mine


def nvidia_alone(node8: Installation, place: Path, node: SimulatedNode) -> Installation:
    """Return an installation without a CDI spec, on a node with the programs of NVIDIA's stack."""
    mine = Installation(place, node8.bindir, node)
    mine.configure()
    nvidia_stack.programs(mine.place / "bin")
    return mine


@pytest.fixture
def mig(node8: Installation, tmp_path: Path) -> Installation:
    """Return a node of GPUs in MIG mode with NVIDIA's stack only."""
    return nvidia_alone(node8, tmp_path / "mig", make_node(tmp_path / "node", "a100-mig"))


@contextmanager
def by_cdi(
    installation: Installation,
    place: Path,
    change: Change | None = None,
    kind: str = "debian",
    engine: str = "runc",
    cgroup: str = "host",
    env: list[str] | None = None,
    name: str = str(GPU),
) -> Iterator[Live]:
    """Yield a container of NVIDIA's runtime in its CDI modes; `change` alters its config.json."""
    made = sleeping(place, kind, env=asks(name) if env is None else env)
    described = nvidia_stack.cdi_spec(installation.node, installation.place / "bin")
    config = nvidia_stack.cdi_edited(made.config(), described, [name])
    if change is not None:
        change(config)
    made.write(config)
    with started(made, installation, engine, cgroup) as live:
        yield live


@contextmanager
def by_legacy(
    installation: Installation,
    place: Path,
    change: Change | None = None,
    kind: str = "debian",
    capabilities: str | None = None,
    name: str = str(GPU),
) -> Iterator[Live]:
    """Yield a container with GPUs by NVIDIA's legacy hook; `change` alters the hook's plan."""
    if not (CGROUPS / "devices").is_dir():
        pytest.skip("the simulated hook writes a v1 cgroup's file")
    made = sleeping(place, kind, env=asks(name, capabilities))
    graphical = installation.node if "graphics" in (capabilities or "") else None
    hooks = installation.place / "bin"
    made.write(nvidia_stack.legacy_edited(made.config(), hooks, graphical))
    words = [capabilities] if capabilities else []
    plan = nvidia_stack.legacy_plan(installation.node, made.root, [name], *words)
    if change is not None:
        change(plan)
    nvidia_stack.write_plan(made.path, plan)
    with started(made, installation) as live:
        yield live


def document(live: Live, *words: str, rc: int) -> dict[str, Any]:
    result = live.gpuhook("compare", *live.installation.node.options, "-o", "json", *words)
    content = result.document("compare")
    assert result.rc == rc, (result.stderr, [_counted(one) for one in content["containers"]])
    return content


def differences(live: Live) -> list[dict[str, Any]]:
    """Return the differences of a container, which has at least one."""
    (one,) = document(live, rc=1)["containers"]
    return _counted(one)


def difference_keys(items: list[dict[str, Any]]) -> list[DifferenceKey]:
    """Return the kind, name and verdict of each difference."""
    return [(one["kind"], one["name"], one["verdict"]) for one in items]


def _counted(one: dict[str, Any]) -> list[dict[str, Any]]:
    return [i for i in one["items"] if i["verdict"] != "same" and not i["reason"]]


def comparison_without_differences(live: Live, by: str, name: str = str(GPU)) -> dict[str, Any]:
    """Return the comparison of a container that has no difference."""
    content = document(live, rc=0)
    (one,) = content["containers"]
    assert _counted(one) == []
    assert one["givenBy"] == by
    assert one["request"]["names"] == [name]
    kinds = {i["kind"] for i in one["items"] if i["verdict"] == "same"}
    assert kinds >= {"node", "access", "mount", "library"}
    return dict(one)


@pytest.mark.parametrize("kind", ["debian", "lib64", "musl"])
def test_cdi_modes_have_known_differences_only(
    kind: str, nvidia: Installation, tmp_path: Path
) -> None:
    with by_cdi(nvidia, tmp_path, kind=kind) as live:
        one = comparison_without_differences(live, "nvidia-cdi")
        assert not nvidia.state.exists()
    assert "link" in {i["kind"] for i in one["items"] if i["verdict"] == "same"}
    known = {(i["kind"], i["name"]) for i in one["items"] if i["reason"]}
    same = {i["name"] for i in one["items"] if i["verdict"] == "same" and i["kind"] == "variable"}
    assert "NVIDIA_CTK_LIBCUDA_DIR" in same
    assert ("node", "/dev/nvidia-modeset") in known


@pytest.mark.thorough
@pytest.mark.parametrize(("engine", "cgroup"), [("runc", "v2"), ("crun", "host"), ("crun", "v2")])
def test_cdi_modes_on_other_runtimes_and_cgroups(
    engine: str, cgroup: str, nvidia: Installation, tmp_path: Path
) -> None:
    with by_cdi(nvidia, tmp_path, engine=engine, cgroup=cgroup) as live:
        comparison_without_differences(live, "nvidia-cdi")


@pytest.mark.thorough
@pytest.mark.parametrize("by", ["nvidia-cdi", "nvidia-legacy"])
def test_mig_instance_has_known_differences_only(
    by: str, mig: Installation, tmp_path: Path
) -> None:
    """A container with a MIG instance has the nodes of its two capabilities only."""
    made = by_cdi if by == "nvidia-cdi" else by_legacy
    with made(mig, tmp_path, name="0:1") as live:
        one = comparison_without_differences(live, by, "0:1")
    nodes = [i["name"] for i in one["items"] if i["kind"] == "node"]
    assert len([path for path in nodes if "/nvidia-caps/" in path]) == 2


def test_simulated_spec_is_valid_cdi(nvidia: Installation) -> None:
    """The simulated spec has the kind, the devices and the hooks of nvidia-ctk's spec."""
    spec = spec_file.read(str(nvidia.specs / "nvidia.yaml"))
    names = [device["name"] for device in spec["devices"]]
    gpus = nvidia.node.node.gpus
    assert sorted(names) == sorted(["all", *(n for g in gpus for n in (str(g.index), str(g.uuid)))])
    verbs = [hook["args"][1] for hook in spec["containerEdits"]["hooks"]]
    assert verbs[0] == "create-symlinks"
    assert verbs[2] == "update-ldcache"


def _number(installation: Installation, index: int) -> tuple[str, int]:
    return installation.device(index), int(installation.gpu(index).minor or 0)


def _devices(config: dict[str, Any], *, rules: bool = False) -> list[dict[str, Any]]:
    linux = config["linux"]
    devices: list[dict[str, Any]] = linux["resources"]["devices"] if rules else linux["devices"]
    return devices


def _without_rule(config: dict[str, Any], minor: int) -> None:
    rules = _devices(config, rules=True)
    rules[:] = [r for r in rules if (r.get("major"), r.get("minor")) != (195, minor)]


def _with_gpu(config: dict[str, Any], path: str, minor: int, *, is_node: bool = True) -> None:
    device = {"type": "c", "major": 195, "minor": minor}
    if is_node:
        _devices(config).append({"path": path, **device, "fileMode": 0o666})
    _devices(config, rules=True).append({"allow": True, **device, "access": "rw"})


def _mount(config: dict[str, Any], end: str) -> dict[str, Any]:
    (mount,) = [m for m in config["mounts"] if str(m["destination"]).endswith(end)]
    assert isinstance(mount, dict)
    return mount


class PlantedDifferences:
    """Differences that a test plants; each method returns what compare must report."""

    def __init__(self, installation: Installation, place: Path) -> None:
        self.installation = installation
        self.place = place
        self.path, self.minor = _number(installation, GPU)

    def _replace(self, mount: dict[str, Any], name: str) -> None:
        """Mount a copy of the file under another name in its place."""
        other = self.place / name
        shutil.copy(mount["source"], other)
        mount["source"] = str(other)

    def _extra(self) -> str:
        """Return the path of a file that does not belong to the driver."""
        extra = self.place / "nvidia-extra"
        extra.touch()
        return str(extra)


class PlantedInCdi(PlantedDifferences):
    """Differences in the edits of NVIDIA's CDI modes."""

    def missing_node(self, config: dict[str, Any]) -> DifferenceKey:
        devices = _devices(config)
        devices[:] = [device for device in devices if device["path"] != self.path]
        _without_rule(config, self.minor)
        return "node", self.path, "only-gpuhook"

    def node_of_another_gpu(self, config: dict[str, Any]) -> DifferenceKey:
        path, minor = _number(self.installation, 5)
        _with_gpu(config, path, minor)
        return "node", path, "only-there"

    def wrong_minor(self, config: dict[str, Any]) -> DifferenceKey:
        (device,) = [one for one in _devices(config) if one["path"] == self.path]
        _without_rule(config, self.minor)
        device["minor"] = 6
        _with_gpu(config, "", 6, is_node=False)
        return "node", self.path, "differs"

    def mode(self, config: dict[str, Any]) -> DifferenceKey:
        (device,) = [one for one in _devices(config) if one["path"] == self.path]
        device["fileMode"] = 0o600
        return "node", self.path, "differs"

    def missing_rule(self, config: dict[str, Any]) -> DifferenceKey:
        _without_rule(config, self.minor)
        return "access", self.path, "differs"

    def rule_of_another_gpu(self, config: dict[str, Any]) -> DifferenceKey:
        path, minor = _number(self.installation, 5)
        _with_gpu(config, path, minor, is_node=False)
        return "access", path, "only-there"

    def library_of_another_version(self, config: dict[str, Any]) -> DifferenceKey:
        mount = _mount(config, f"/libcuda.so.{self._version}")
        self._replace(mount, "libcuda.so.999.10")
        return "mount", mount["destination"], "differs"

    def unasked_library_of_another_version(self, config: dict[str, Any]) -> DifferenceKey:
        mount = _mount(config, f"/libnvidia-eglcore.so.{self._version}")
        self._replace(mount, "libnvidia-eglcore.so.999.10")
        return "mount", mount["destination"], "only-there"

    def missing_library(self, config: dict[str, Any]) -> DifferenceKey:
        mount = _mount(config, f"/libnvidia-ml.so.{self._version}")
        config["mounts"].remove(mount)
        return "mount", mount["destination"], "only-gpuhook"

    def writable_file(self, config: dict[str, Any]) -> DifferenceKey:
        mount = _mount(config, "/nvidia-smi")
        mount["options"].remove("ro")
        return "mount", mount["destination"], "differs"

    def extra_mount(self, config: dict[str, Any]) -> DifferenceKey:
        source = self._extra()
        entry = {"destination": "/usr/bin/nvidia-extra", "type": "bind", "source": source}
        config["mounts"].append({**entry, "options": ["ro", "nosuid", "nodev", "bind"]})
        return "mount", "/usr/bin/nvidia-extra", "only-there"

    def variable_not_set(self, config: dict[str, Any]) -> DifferenceKey:
        config["process"]["env"].remove("NVIDIA_VISIBLE_DEVICES=void")
        return "variable", "NVIDIA_VISIBLE_DEVICES", "differs"

    def extra_variable(self, config: dict[str, Any]) -> DifferenceKey:
        config["process"]["env"].append("CUDA_VISIBLE_DEVICES=0")
        return "variable", "CUDA_VISIBLE_DEVICES", "only-there"

    def missing_link(self, config: dict[str, Any]) -> DifferenceKey:
        path = "/usr/lib/x86_64-linux-gnu/libcuda.so"
        for hook in config["hooks"]["createContainer"]:
            link = f"libcuda.so.1::{path}"
            if link in hook["args"]:
                at = hook["args"].index(link)
                del hook["args"][at - 1 : at + 1]
        return "link", path, "only-gpuhook"

    def extra_link(self, config: dict[str, Any]) -> DifferenceKey:
        path = "/usr/lib/x86_64-linux-gnu/libcuda_extra.so"
        self._add_link(config, f"libcuda.so.1::{path}")
        return "link", path, "only-there"

    def extra_link_in_another_directory(self, config: dict[str, Any]) -> DifferenceKey:
        path = "/opt/vendor/lib/libnvidia-ml.so.7"
        target = f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{self._version}"
        self._add_link(config, f"{target}::{path}")
        return "link", path, "only-there"

    def driver_file_under_another_name(self, config: dict[str, Any]) -> DifferenceKey:
        mount = _mount(config, f"/libcuda.so.{self._version}")
        config["mounts"].append({**mount, "destination": "/opt/vendor/extra"})
        return "mount", "/opt/vendor/extra", "only-there"

    @property
    def _version(self) -> str:
        return str(self.installation.node.node.driver.version)

    @staticmethod
    def _add_link(config: dict[str, Any], link: str) -> None:
        (hook,) = [h for h in config["hooks"]["createContainer"] if "create-symlinks" in h["args"]]
        hook["args"] += ["--link", link]


PLANTED = sorted(name for name in vars(PlantedInCdi) if not name.startswith("_"))


@pytest.mark.parametrize("name", PLANTED)
def test_planted_difference_of_the_cdi_modes_is_the_only_one(
    name: str, nvidia: Installation, tmp_path: Path
) -> None:
    planted: list[DifferenceKey] = []
    plant = getattr(PlantedInCdi(nvidia, tmp_path), name)
    with by_cdi(nvidia, tmp_path, lambda config: planted.append(plant(config))) as live:
        items = differences(live)
        text = live.gpuhook("compare", *nvidia.node.options).stdout
    assert difference_keys(items) == planted, items
    assert planted[0][1] in text
    assert text.endswith(", 1 difference\n")


def test_extra_file_and_variable_of_nvidias_spec_are_differences(
    nvidia: Installation, tmp_path: Path
) -> None:
    """A file and a variable of NVIDIA's spec that do not have a name of the driver."""
    file = nvidia.specs / "nvidia.yaml"
    described = yaml.safe_load(file.read_text(encoding="utf-8"))
    (tmp_path / "extra.conf").touch()
    source, path = str(tmp_path / "extra.conf"), "/usr/share/vendor/extra.conf"
    edits = described["containerEdits"]
    edits["mounts"].append({"hostPath": source, "containerPath": path, "options": ["ro", "bind"]})
    edits["env"].insert(0, "EXTRA=1")
    file.write_text(yaml.safe_dump(described), encoding="utf-8")

    def plant(config: dict[str, Any]) -> None:
        bound = {"type": "bind", "options": ["ro", "bind"]}
        config["mounts"].append({**bound, "destination": path, "source": source})
        own = {**bound, "destination": "/srv/own", "source": source}
        config["mounts"].append(own)  # a volume of the pod
        config["process"]["env"].append("EXTRA=1")

    with by_cdi(nvidia, tmp_path, plant) as live:
        items = differences(live)
    assert difference_keys(items) == [
        ("mount", path, "only-there"),
        ("variable", "EXTRA", "only-there"),
    ]


def test_extra_name_in_the_loader_cache_is_a_difference(
    nvidia: Installation, tmp_path: Path
) -> None:
    """A second name of a library in the loader cache is a difference."""
    with by_cdi(nvidia, tmp_path) as live:
        cache_file = live.bundle.root / "etc/ld.so.cache"
        (cuda,) = [
            str(m["destination"])
            for m in live.bundle.config()["mounts"]
            if "/libcuda.so." in str(m["destination"])
        ]
        entry = (b"libextra.so.5", os.fsencode(cuda.rpartition("/")[0] + "/libcuda.so.1"))
        flags = ld_cache.flags_for(os.uname().machine)
        cache_file.write_bytes(ld_cache.merged(cache_file.read_bytes(), [entry], flags=flags))
        items = differences(live)
    assert difference_keys(items) == [("library", "libextra.so.5", "only-there")]


@pytest.mark.parametrize("kind", ["debian", "lib64", "musl"])
def test_links_of_the_image_are_no_difference(
    kind: str, nvidia: Installation, tmp_path: Path
) -> None:
    """A link of the image to a driver file exists under gpuhook, too."""

    def plant(config: dict[str, Any]) -> None:
        directory = Path(config["root"]["path"]) / "usr/lib/x86_64-linux-gnu"
        directory.mkdir(parents=True, exist_ok=True)
        version = nvidia.node.node.driver.version
        (directory / "libextra.so.5").symlink_to(f"libcuda.so.{version}")
        time.sleep(0.1)  # older than the process, whose start /proc reports to 0.01 s

    with by_cdi(nvidia, tmp_path, plant, kind=kind) as live:
        comparison_without_differences(live, "nvidia-cdi")


def test_missing_loader_cache_entries_are_differences(nvidia: Installation, tmp_path: Path) -> None:
    def plant(config: dict[str, Any]) -> None:
        stage = config["hooks"]["createContainer"]
        stage[:] = [hook for hook in stage if "update-ldcache" not in hook["args"]]

    with by_cdi(nvidia, tmp_path, plant, kind="lib64") as live:
        items = differences(live)
    assert "libcuda.so.1" in {i["name"] for i in items if i["kind"] == "library"}
    assert {i["kind"] for i in items} <= {"library", "link"}


@pytest.mark.parametrize("kind", ["debian", "lib64"])
@pytest.mark.parametrize("capabilities", [None, "utility,compute,video,graphics"])
def test_legacy_mode_has_known_differences_only(
    capabilities: str | None, kind: str, nvidia: Installation, tmp_path: Path
) -> None:
    with by_legacy(nvidia, tmp_path, kind=kind, capabilities=capabilities) as live:
        one = comparison_without_differences(live, "nvidia-legacy")
    known = {(i["kind"], i["name"]) for i in one["items"] if i["reason"]}
    assert ("variable", "NVIDIA_VISIBLE_DEVICES") in known


class PlantedInLegacy(PlantedDifferences):
    """Differences in the edits of NVIDIA's legacy hook."""

    def missing_node(self, plan: dict[str, Any]) -> DifferenceKey:
        plan["nodes"] = [node for node in plan["nodes"] if node["target"] != self.path]
        plan["rules"].remove(f"c 195:{self.minor} rw")
        return "node", self.path, "only-gpuhook"

    def node_of_another_gpu(self, plan: dict[str, Any]) -> DifferenceKey:
        path, minor = _number(self.installation, 5)
        plan["nodes"].append({"source": self.installation.node.dev_root + path, "target": path})
        plan["rules"].append(f"c 195:{minor} rw")
        return "node", path, "only-there"

    def missing_rule(self, plan: dict[str, Any]) -> DifferenceKey:
        plan["rules"].remove(f"c 195:{self.minor} rw")
        return "access", self.path, "differs"

    def library_of_another_version(self, plan: dict[str, Any]) -> DifferenceKey:
        (mount,) = [m for m in plan["mounts"] if "/libcuda.so." in m["target"]]
        self._replace(mount, "libcuda.so.999.10")
        return "mount", mount["target"], "differs"

    def missing_program(self, plan: dict[str, Any]) -> DifferenceKey:
        plan["mounts"] = [m for m in plan["mounts"] if not m["target"].endswith("/nvidia-smi")]
        return "mount", "/usr/bin/nvidia-smi", "only-gpuhook"

    def extra_mount(self, plan: dict[str, Any]) -> DifferenceKey:
        target = "/usr/bin/nvidia-extra"
        plan["mounts"].append({"source": self._extra(), "target": target, "ro": True})
        return "mount", target, "only-there"

    def extra_link(self, plan: dict[str, Any]) -> DifferenceKey:
        (directory,) = plan["folders"]
        path = f"{directory}/libcuda_extra.so"
        plan["links"].append(("libcuda.so.1", path))
        return "link", path, "only-there"

    def link_to_another_library(self, plan: dict[str, Any]) -> DifferenceKey:
        (directory,) = plan["folders"]
        path = f"{directory}/libcuda.so"
        plan["links"] = [("libnvidia-ml.so.1", path)]
        return "link", path, "differs"


PLANTED_IN_LEGACY = sorted(name for name in vars(PlantedInLegacy) if not name.startswith("_"))


@pytest.mark.parametrize("name", PLANTED_IN_LEGACY)
def test_planted_difference_of_the_legacy_mode_is_the_only_one(
    name: str, nvidia: Installation, tmp_path: Path
) -> None:
    planted: list[DifferenceKey] = []
    plant = getattr(PlantedInLegacy(nvidia, tmp_path), name)
    with by_legacy(nvidia, tmp_path, lambda plan: planted.append(plant(plan))) as live:
        items = differences(live)
    assert difference_keys(items) == planted, items


def test_container_of_the_wrapper_has_no_difference(apart: Installation, tmp_path: Path) -> None:
    made = sleeping(tmp_path, env=asks(str(GPU)))
    with wrapped(made, apart) as live:
        content = document(live, rc=0)
    assert content["node"]["by"] == str(apart.spec)
    (one,) = content["containers"]
    assert (one["givenBy"], one["counts"]["known"]) == ("gpuhook", 0)


def test_variables_under_the_prestart_hook_are_known_differences(
    apart: Installation, tmp_path: Path
) -> None:
    """The prestart hook cannot set variables of a container that exists already."""
    hook = {"prestart": [apart.hooks["hook"]]}
    made = sleeping(tmp_path, env=asks(str(GPU)), hooks=hook)
    with started(made, apart) as live:
        (one,) = document(live, rc=0)["containers"]
    known = {i["name"]: i["reason"] for i in one["items"] if i["kind"] == "variable"}
    assert set(known) == {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_CTK_LIBCUDA_DIR"}
    assert all("a variable cannot be added" in reason for reason in known.values())


def test_changes_of_attach_and_detach_are_known_differences(
    apart: Installation, tmp_path: Path
) -> None:
    made = sleeping(tmp_path, env=asks(str(GPU)))
    with wrapped(made, apart) as live:
        live.attach("5")
        live.detach(str(GPU))
        (one,) = document(live, rc=0)["containers"]
    known = {i["name"]: i["reason"] for i in one["items"] if i["reason"] and i["kind"] == "node"}
    assert "attach" in known[apart.device(5)]
    assert "detach" in known[apart.device(GPU)]


def test_device_nodes_are_the_request_without_a_variable(
    nvidia: Installation, tmp_path: Path
) -> None:
    """If the kubelet passes devices, config.json has no variable: the nodes are the request."""
    with by_cdi(nvidia, tmp_path, env=[]) as live:
        (one,) = document(live, rc=0)["containers"]
    assert one["request"]["names"] == [f"nvidia.com/gpu={GPU}"]
    assert "device nodes" in one["request"]["where"]


def test_refused_request_is_a_difference(nvidia: Installation, tmp_path: Path) -> None:
    with by_cdi(nvidia, tmp_path, env=asks("GPU-nobody")) as live:
        (item,) = differences(live)
    assert (item["kind"], item["name"]) == ("request", "NVIDIA_VISIBLE_DEVICES")
    assert "GH1102" in item["gpuhook"]


def test_container_without_gpus_is_not_listed(nvidia: Installation, tmp_path: Path) -> None:
    with started(sleeping(tmp_path), nvidia) as live:
        assert document(live, rc=0)["containers"] == []


def test_privileged_container_has_no_difference(nvidia: Installation, tmp_path: Path) -> None:
    """A privileged container has all nodes of the host by its engine, not by a vendor's stack."""
    made = sleeping(tmp_path)
    config = made.config()
    config["linux"]["resources"]["devices"] = [{"allow": True, "access": "rwm"}]
    described = nvidia_stack.cdi_spec(nvidia.node, nvidia.place / "bin")
    every = nvidia_stack.cdi_edited(config, described, ["all"])["linux"]["devices"]
    config["linux"]["devices"] = every
    made.write(config)
    with started(made, nvidia) as live:
        (one,) = document(live, rc=0)["containers"]
    assert (one["givenBy"], one["request"]["names"]) == ("unknown", [])
    assert one["counts"] == {"same": 0, "known": len(every), "differences": 0}
