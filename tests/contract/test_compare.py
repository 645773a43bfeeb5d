# SPDX-License-Identifier: Apache-2.0
"""`gpuhook compare` on real containers that NVIDIA's stack, as simulated, has given GPUs."""

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
Found = tuple[str, str, str]  # kind, name and verdict
Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def nvidia(node8: Installation, tmp_path: Path) -> Installation:
    """Give the node with nothing of gpuhook's configured: NVIDIA's spec, and no other."""
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
    """Give a node of GPUs in MIG mode with NVIDIA's stack alone."""
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
    """Give a container as NVIDIA's runtime makes it in its CDI modes, its config.json changed."""
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
    """Give a container to which NVIDIA's legacy hook gives its GPUs, its plan changed."""
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
    done = live.gpuhook("compare", *live.installation.node.options, "-o", "json", *words)
    found = done.document("compare")
    assert done.rc == rc, (done.stderr, [_counted(one) for one in found["containers"]])
    return found


def differences(live: Live) -> list[dict[str, Any]]:
    """Return the differences of a container, of which there must be some."""
    (one,) = document(live, rc=1)["containers"]
    return _counted(one)


def found_in(items: list[dict[str, Any]]) -> list[Found]:
    return [(one["kind"], one["name"], one["verdict"]) for one in items]


def _counted(one: dict[str, Any]) -> list[dict[str, Any]]:
    return [i for i in one["items"] if i["verdict"] != "same" and not i["reason"]]


def unchanged(live: Live, by: str, name: str = str(GPU)) -> dict[str, Any]:
    """Return the comparison of a container in which nothing was planted."""
    told = document(live, rc=0)
    (one,) = told["containers"]
    assert _counted(one) == []
    assert one["givenBy"] == by
    assert one["request"]["names"] == [name]
    kinds = {i["kind"] for i in one["items"] if i["verdict"] == "same"}
    assert kinds >= {"node", "access", "mount", "library"}
    return dict(one)


@pytest.mark.parametrize("kind", ["debian", "lib64", "musl"])
def test_nothing_but_known_differences_in_the_cdi_modes(
    kind: str, nvidia: Installation, tmp_path: Path
) -> None:
    with by_cdi(nvidia, tmp_path, kind=kind) as live:
        one = unchanged(live, "nvidia-cdi")
        assert not nvidia.state.exists()
    assert "link" in {i["kind"] for i in one["items"] if i["verdict"] == "same"}
    known = {(i["kind"], i["name"]) for i in one["items"] if i["reason"]}
    same = {i["name"] for i in one["items"] if i["verdict"] == "same" and i["kind"] == "variable"}
    assert "NVIDIA_CTK_LIBCUDA_DIR" in same
    assert ("node", "/dev/nvidia-modeset") in known


@pytest.mark.thorough
@pytest.mark.parametrize(("engine", "cgroup"), [("runc", "v2"), ("crun", "host"), ("crun", "v2")])
def test_other_runtimes_and_cgroups(
    engine: str, cgroup: str, nvidia: Installation, tmp_path: Path
) -> None:
    with by_cdi(nvidia, tmp_path, engine=engine, cgroup=cgroup) as live:
        unchanged(live, "nvidia-cdi")


@pytest.mark.thorough
@pytest.mark.parametrize("by", ["nvidia-cdi", "nvidia-legacy"])
def test_an_instance_of_a_gpu_in_mig_mode(by: str, mig: Installation, tmp_path: Path) -> None:
    """It has its GPU's node and the two of its capabilities, and no other instance's."""
    made = by_cdi if by == "nvidia-cdi" else by_legacy
    with made(mig, tmp_path, name="0:1") as live:
        one = unchanged(live, by, "0:1")
    nodes = [i["name"] for i in one["items"] if i["kind"] == "node"]
    assert len([path for path in nodes if "/nvidia-caps/" in path]) == 2


def test_the_simulated_spec_is_one(nvidia: Installation) -> None:
    """It is valid CDI, of the kind and with the devices that nvidia-ctk writes."""
    found = spec_file.read(str(nvidia.specs / "nvidia.yaml"))
    names = [device["name"] for device in found["devices"]]
    gpus = nvidia.node.node.gpus
    assert sorted(names) == sorted(["all", *(n for g in gpus for n in (str(g.index), str(g.uuid)))])
    verbs = [hook["args"][1] for hook in found["containerEdits"]["hooks"]]
    assert verbs[0] == "create-symlinks"
    assert verbs[2] == "update-ldcache"


def _number(installation: Installation, index: int) -> tuple[str, int]:
    return installation.device(index), int(installation.gpu(index).minor or 0)


def _devices(config: dict[str, Any], *, rules: bool = False) -> list[dict[str, Any]]:
    linux = config["linux"]
    held: list[dict[str, Any]] = linux["resources"]["devices"] if rules else linux["devices"]
    return held


def _without_rule(config: dict[str, Any], minor: int) -> None:
    rules = _devices(config, rules=True)
    rules[:] = [r for r in rules if (r.get("major"), r.get("minor")) != (195, minor)]


def _with_gpu(config: dict[str, Any], path: str, minor: int, *, is_node: bool = True) -> None:
    device = {"type": "c", "major": 195, "minor": minor}
    if is_node:
        _devices(config).append({"path": path, **device, "fileMode": 0o666})
    _devices(config, rules=True).append({"allow": True, **device, "access": "rw"})


def _mount(config: dict[str, Any], end: str) -> dict[str, Any]:
    (found,) = [m for m in config["mounts"] if str(m["destination"]).endswith(end)]
    assert isinstance(found, dict)
    return found


class Mistakes:
    """Mistakes that a test plants; each returns what is to be found, alone."""

    def __init__(self, installation: Installation, place: Path) -> None:
        self.installation = installation
        self.place = place
        self.path, self.minor = _number(installation, GPU)

    def _replace(self, mount: dict[str, Any], name: str) -> None:
        """Mount a copy of the file under another name in place of it."""
        other = self.place / name
        shutil.copy(mount["source"], other)
        mount["source"] = str(other)

    def _extra(self) -> str:
        """Return the path of a file that is not the driver's."""
        extra = self.place / "nvidia-extra"
        extra.touch()
        return str(extra)


class Planted(Mistakes):
    """Mistakes in what NVIDIA's CDI modes write."""

    def missing_node(self, config: dict[str, Any]) -> Found:
        devices = _devices(config)
        devices[:] = [device for device in devices if device["path"] != self.path]
        _without_rule(config, self.minor)
        return "node", self.path, "only-gpuhook"

    def node_of_another_gpu(self, config: dict[str, Any]) -> Found:
        path, minor = _number(self.installation, 5)
        _with_gpu(config, path, minor)
        return "node", path, "only-there"

    def wrong_minor(self, config: dict[str, Any]) -> Found:
        (device,) = [one for one in _devices(config) if one["path"] == self.path]
        _without_rule(config, self.minor)
        device["minor"] = 6
        _with_gpu(config, "", 6, is_node=False)
        return "node", self.path, "differs"

    def mode(self, config: dict[str, Any]) -> Found:
        (device,) = [one for one in _devices(config) if one["path"] == self.path]
        device["fileMode"] = 0o600
        return "node", self.path, "differs"

    def missing_rule(self, config: dict[str, Any]) -> Found:
        _without_rule(config, self.minor)
        return "access", self.path, "differs"

    def rule_of_another_gpu(self, config: dict[str, Any]) -> Found:
        path, minor = _number(self.installation, 5)
        _with_gpu(config, path, minor, is_node=False)
        return "access", path, "only-there"

    def library_of_another_version(self, config: dict[str, Any]) -> Found:
        mount = _mount(config, f"/libcuda.so.{self._version}")
        self._replace(mount, "libcuda.so.999.10")
        return "mount", mount["destination"], "differs"

    def unasked_library_of_another_version(self, config: dict[str, Any]) -> Found:
        mount = _mount(config, f"/libnvidia-eglcore.so.{self._version}")
        self._replace(mount, "libnvidia-eglcore.so.999.10")
        return "mount", mount["destination"], "only-there"

    def missing_library(self, config: dict[str, Any]) -> Found:
        mount = _mount(config, f"/libnvidia-ml.so.{self._version}")
        config["mounts"].remove(mount)
        return "mount", mount["destination"], "only-gpuhook"

    def writable_file(self, config: dict[str, Any]) -> Found:
        mount = _mount(config, "/nvidia-smi")
        mount["options"].remove("ro")
        return "mount", mount["destination"], "differs"

    def extra_mount(self, config: dict[str, Any]) -> Found:
        source = self._extra()
        entry = {"destination": "/usr/bin/nvidia-extra", "type": "bind", "source": source}
        config["mounts"].append({**entry, "options": ["ro", "nosuid", "nodev", "bind"]})
        return "mount", "/usr/bin/nvidia-extra", "only-there"

    def variable_not_set(self, config: dict[str, Any]) -> Found:
        config["process"]["env"].remove("NVIDIA_VISIBLE_DEVICES=void")
        return "variable", "NVIDIA_VISIBLE_DEVICES", "differs"

    def extra_variable(self, config: dict[str, Any]) -> Found:
        config["process"]["env"].append("CUDA_VISIBLE_DEVICES=0")
        return "variable", "CUDA_VISIBLE_DEVICES", "only-there"

    def missing_link(self, config: dict[str, Any]) -> Found:
        path = "/usr/lib/x86_64-linux-gnu/libcuda.so"
        for hook in config["hooks"]["createContainer"]:
            link = f"libcuda.so.1::{path}"
            if link in hook["args"]:
                at = hook["args"].index(link)
                del hook["args"][at - 1 : at + 1]
        return "link", path, "only-gpuhook"

    def extra_link(self, config: dict[str, Any]) -> Found:
        path = "/usr/lib/x86_64-linux-gnu/libcuda_extra.so"
        self._add_link(config, f"libcuda.so.1::{path}")
        return "link", path, "only-there"

    def extra_link_in_another_directory(self, config: dict[str, Any]) -> Found:
        path = "/opt/vendor/lib/libnvidia-ml.so.7"
        target = f"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{self._version}"
        self._add_link(config, f"{target}::{path}")
        return "link", path, "only-there"

    def driver_file_under_another_name(self, config: dict[str, Any]) -> Found:
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


PLANTED = sorted(name for name in vars(Planted) if not name.startswith("_"))


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found_and_nothing_else(
    name: str, nvidia: Installation, tmp_path: Path
) -> None:
    planted: list[Found] = []
    plant = getattr(Planted(nvidia, tmp_path), name)
    with by_cdi(nvidia, tmp_path, lambda config: planted.append(plant(config))) as live:
        found = differences(live)
        text = live.gpuhook("compare", *nvidia.node.options).stdout
    assert found_in(found) == planted, found
    assert planted[0][1] in text
    assert text.endswith(", 1 difference\n")


def test_what_nvidias_spec_gives_under_other_names(nvidia: Installation, tmp_path: Path) -> None:
    """A file and a variable of the spec on the node that are not named after the driver."""
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
        config["mounts"].append(own)  # a volume of the pod's
        config["process"]["env"].append("EXTRA=1")

    with by_cdi(nvidia, tmp_path, plant) as live:
        found = differences(live)
    assert found_in(found) == [
        ("mount", path, "only-there"),
        ("variable", "EXTRA", "only-there"),
    ]


def test_a_name_that_the_loader_cache_alone_has(nvidia: Installation, tmp_path: Path) -> None:
    """The cache entry of a library that gpuhook mounts, under a name that it does not enter."""
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
        found = differences(live)
    assert found_in(found) == [("library", "libextra.so.5", "only-there")]


@pytest.mark.parametrize("kind", ["debian", "lib64", "musl"])
def test_links_of_the_image_are_nobodys_difference(
    kind: str, nvidia: Installation, tmp_path: Path
) -> None:
    """The image has them under gpuhook too; they lead nowhere until the driver is mounted."""

    def plant(config: dict[str, Any]) -> None:
        directory = Path(config["root"]["path"]) / "usr/lib/x86_64-linux-gnu"
        directory.mkdir(parents=True, exist_ok=True)
        version = nvidia.node.node.driver.version
        (directory / "libextra.so.5").symlink_to(f"libcuda.so.{version}")
        time.sleep(0.1)  # older than the process, whose start /proc reports to 0.01 s

    with by_cdi(nvidia, tmp_path, plant, kind=kind) as live:
        unchanged(live, "nvidia-cdi")


def test_a_loader_that_was_told_nothing(nvidia: Installation, tmp_path: Path) -> None:
    def plant(config: dict[str, Any]) -> None:
        stage = config["hooks"]["createContainer"]
        stage[:] = [hook for hook in stage if "update-ldcache" not in hook["args"]]

    with by_cdi(nvidia, tmp_path, plant, kind="lib64") as live:
        found = differences(live)
    assert "libcuda.so.1" in {i["name"] for i in found if i["kind"] == "library"}
    assert {i["kind"] for i in found} <= {"library", "link"}


@pytest.mark.parametrize("kind", ["debian", "lib64"])
@pytest.mark.parametrize("capabilities", [None, "utility,compute,video,graphics"])
def test_nothing_but_known_differences_in_the_legacy_mode(
    capabilities: str | None, kind: str, nvidia: Installation, tmp_path: Path
) -> None:
    with by_legacy(nvidia, tmp_path, kind=kind, capabilities=capabilities) as live:
        one = unchanged(live, "nvidia-legacy")
    known = {(i["kind"], i["name"]) for i in one["items"] if i["reason"]}
    assert ("variable", "NVIDIA_VISIBLE_DEVICES") in known


class PlantedInLegacy(Mistakes):
    """Mistakes in what the legacy hook does."""

    def missing_node(self, plan: dict[str, Any]) -> Found:
        plan["nodes"] = [node for node in plan["nodes"] if node["target"] != self.path]
        plan["rules"].remove(f"c 195:{self.minor} rw")
        return "node", self.path, "only-gpuhook"

    def node_of_another_gpu(self, plan: dict[str, Any]) -> Found:
        path, minor = _number(self.installation, 5)
        plan["nodes"].append({"source": self.installation.node.dev_root + path, "target": path})
        plan["rules"].append(f"c 195:{minor} rw")
        return "node", path, "only-there"

    def missing_rule(self, plan: dict[str, Any]) -> Found:
        plan["rules"].remove(f"c 195:{self.minor} rw")
        return "access", self.path, "differs"

    def library_of_another_version(self, plan: dict[str, Any]) -> Found:
        (mount,) = [m for m in plan["mounts"] if "/libcuda.so." in m["target"]]
        self._replace(mount, "libcuda.so.999.10")
        return "mount", mount["target"], "differs"

    def missing_program(self, plan: dict[str, Any]) -> Found:
        plan["mounts"] = [m for m in plan["mounts"] if not m["target"].endswith("/nvidia-smi")]
        return "mount", "/usr/bin/nvidia-smi", "only-gpuhook"

    def extra_mount(self, plan: dict[str, Any]) -> Found:
        target = "/usr/bin/nvidia-extra"
        plan["mounts"].append({"source": self._extra(), "target": target, "ro": True})
        return "mount", target, "only-there"

    def extra_link(self, plan: dict[str, Any]) -> Found:
        (directory,) = plan["folders"]
        path = f"{directory}/libcuda_extra.so"
        plan["links"].append(("libcuda.so.1", path))
        return "link", path, "only-there"

    def link_to_another_library(self, plan: dict[str, Any]) -> Found:
        (directory,) = plan["folders"]
        path = f"{directory}/libcuda.so"
        plan["links"] = [("libnvidia-ml.so.1", path)]
        return "link", path, "differs"


PLANTED_IN_LEGACY = sorted(name for name in vars(PlantedInLegacy) if not name.startswith("_"))


@pytest.mark.parametrize("name", PLANTED_IN_LEGACY)
def test_what_is_planted_in_the_legacy_mode_is_found_and_nothing_else(
    name: str, nvidia: Installation, tmp_path: Path
) -> None:
    planted: list[Found] = []
    plant = getattr(PlantedInLegacy(nvidia, tmp_path), name)
    with by_legacy(nvidia, tmp_path, lambda plan: planted.append(plant(plan))) as live:
        found = differences(live)
    assert found_in(found) == planted, found


def test_a_container_of_gpuhooks_own(apart: Installation, tmp_path: Path) -> None:
    """By the specs of this node nothing differs from what the wrapper has given."""
    made = sleeping(tmp_path, env=asks(str(GPU)))
    with wrapped(made, apart) as live:
        told = document(live, rc=0)
    assert told["node"]["by"] == str(apart.spec)
    (one,) = told["containers"]
    assert (one["givenBy"], one["counts"]["known"]) == ("gpuhook", 0)


def test_what_the_prestart_hook_cannot_set_is_known(apart: Installation, tmp_path: Path) -> None:
    """A container that exists already has its variables."""
    hook = {"prestart": [apart.hooks["hook"]]}
    made = sleeping(tmp_path, env=asks(str(GPU)), hooks=hook)
    with started(made, apart) as live:
        (one,) = document(live, rc=0)["containers"]
    known = {i["name"]: i["reason"] for i in one["items"] if i["kind"] == "variable"}
    assert set(known) == {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_CTK_LIBCUDA_DIR"}
    assert all("a variable cannot be added" in reason for reason in known.values())


def test_what_attach_and_detach_changed_is_known(apart: Installation, tmp_path: Path) -> None:
    made = sleeping(tmp_path, env=asks(str(GPU)))
    with wrapped(made, apart) as live:
        live.attach("5")
        live.detach(str(GPU))
        (one,) = document(live, rc=0)["containers"]
    known = {i["name"]: i["reason"] for i in one["items"] if i["reason"] and i["kind"] == "node"}
    assert "attach" in known[apart.device(5)]
    assert "detach" in known[apart.device(GPU)]


def test_gpus_that_config_json_asks_for_nowhere(nvidia: Installation, tmp_path: Path) -> None:
    """An engine that gets devices from the kubelet leaves them out: these are the request."""
    with by_cdi(nvidia, tmp_path, env=[]) as live:
        (one,) = document(live, rc=0)["containers"]
    assert one["request"]["names"] == [f"nvidia.com/gpu={GPU}"]
    assert "device nodes" in one["request"]["where"]


def test_a_request_that_gpuhook_would_refuse(nvidia: Installation, tmp_path: Path) -> None:
    with by_cdi(nvidia, tmp_path, env=asks("GPU-nobody")) as live:
        (found,) = differences(live)
    assert (found["kind"], found["name"]) == ("request", "NVIDIA_VISIBLE_DEVICES")
    assert "GH1102" in found["gpuhook"]


def test_a_container_without_gpus(nvidia: Installation, tmp_path: Path) -> None:
    with started(sleeping(tmp_path), nvidia) as live:
        assert document(live, rc=0)["containers"] == []


def test_a_privileged_container_has_what_its_engine_gives(
    nvidia: Installation, tmp_path: Path
) -> None:
    """All nodes of the host, for every caller: that says nothing about a vendor's stack."""
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
