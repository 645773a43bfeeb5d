# SPDX-License-Identifier: Apache-2.0
"""Options of generate-cdi: their effects inside containers of real engines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpuhook.loader import ld_cache_entries, loader_paths
from tests.contract import integrations, roots
from tests.contract.bundles import Bundles, bundle
from tests.contract.installation import LIBRARIES, Installation, asks
from tests.contract.integrations import Integrations
from tests.contract.live import sleeping, started
from tests.contract.roots import Roots, with_ldconfig
from tests.contract.runtimes import ENGINES
from tests.contract.test_integrations import (
    CACHE,
    LINKS,
    LOOKED_UP,
    assert_cached,
    assert_found,
)
from tests.contract.test_user_namespace import let_through, mapped
from tests.contract.views import View, questions
from tests.simulated import elf_maker

LDCONFIG = "/sbin/ldconfig"
ROUTES = pytest.mark.parametrize("integration", ["runc", "crun", "runc-prestart", "podman-cdi"])
PROFILE = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"
EVERYTHING = ["NVIDIA_DRIVER_CAPABILITIES=all"]
FORGED = "include /etc/ld.so.conf.d/*.conf\n/opt/own\n"
VERSIONED = f"{LIBRARIES}/libcuda.so.1"


def container_view(
    integration: str,
    installation: Installation,
    place: Path,
    root: Path,
    args: list[str],
    env: list[str],
) -> View:
    """Return the view of a container with GPU 2 by this integration.

    Hooks of a wrapped container have this installation's state directory, as podman's have.
    """
    if integration not in integrations.RUNTIMES:
        enter = Integrations(installation, place)
        return enter.through(integration, root, args, "2", env=env).view
    made = bundle(place / "bundle", root, args, [*asks("2"), *env])
    return installation.run_with_state(made, integration).view


def first_cached_paths(root: Path) -> dict[str, str]:
    """Return the path that the image's loader cache finds first for each name."""
    paths: dict[str, str] = {}
    for entry in ld_cache_entries.parse((root / "etc/ld.so.cache").read_bytes()):
        paths.setdefault(os.fsdecode(entry.soname), os.fsdecode(entry.path))
    return paths


@ROUTES
def test_ldconfig_writes_the_loader_cache(
    integration: str, apart: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """With --ldconfig-path the host's ldconfig indexes the image again: the cache has the driver
    and the image's own libraries, and no other file remains.
    """
    apart.generate("--ldconfig-path", LDCONFIG)
    root = with_ldconfig(root_of("debian"))
    own = root / "opt/own"
    own.mkdir(parents=True)
    elf_maker.write(own / "libown.so.1", "libown.so.1")
    (root / "etc/ld.so.conf").write_text(FORGED)
    before = first_cached_paths(root)
    command = ["/probe", *questions(*LINKS, runs=[LOOKED_UP, CACHE])]
    view = container_view(integration, apart, tmp_path, root, command, [])
    assert_found(view.runs[0], str(apart.node.node.driver.version))
    assert_cached(view.runs[1])
    assert "libown.so.1" not in before
    assert first_cached_paths(root)["libown.so.1"] == "/opt/own/libown.so.1"
    assert sorted(path.name for path in (root / "etc/ld.so.conf.d").glob("*gpuhook*")) == [
        Path(loader_paths.FIRST).name
    ]
    other_files = [
        path for path in root.rglob("*gpuhook.c*") if path.name != Path(loader_paths.FIRST).name
    ]
    assert other_files == []


def test_second_start_with_ldconfig_changes_nothing(
    apart: Installation, root_of: Roots, bundle_of: Bundles
) -> None:
    apart.generate("--ldconfig-path", LDCONFIG)
    root = root_of("debian")
    made = bundle_of(root, ["/probe"], asks("1"))
    listings = []
    for _ in range(2):
        assert apart.run_with_state(made).rc == 0
        listings.append(roots.listing(root))
    assert listings[0] == listings[1]


def test_ldconfig_follows_no_link_out_of_the_image(
    apart: Installation, root_of: Roots, bundle_of: Bundles
) -> None:
    """Links that lead out of the image, by .. or by /proc, do not lead ldconfig there."""
    apart.generate("--ldconfig-path", LDCONFIG)
    root = root_of("debian")
    outside = apart.place / "outside"
    outside.mkdir()
    elf_maker.write(outside / "libsecret.so.1", "libsecret.so.1")
    (root / "opt").mkdir(exist_ok=True)
    (root / "opt/absolute").symlink_to(outside)
    (root / "opt/relative").symlink_to("../" * 30 + str(outside).lstrip("/"))
    (root / "opt/magic").symlink_to(f"/proc/1/root{outside}")
    lines = ["/opt/absolute", "/opt/relative", "/opt/magic", f"/proc/1/root{outside}"]
    (root / "etc/ld.so.conf").write_text("".join(f"{line}\n" for line in lines))
    made = bundle_of(root, ["/probe", *questions(runs=[LOOKED_UP])], asks("1"))
    view = apart.run_with_state(made).view
    assert_found(view.runs[0], str(apart.node.node.driver.version))
    assert "libsecret.so.1" not in (root / "etc/ld.so.cache").read_bytes().decode("latin-1")


@pytest.mark.parametrize("kind", ["distroless", "musl", "lib64"])
def test_ldconfig_in_other_images(kind: str, apart: Installation, bundle_of: Bundles) -> None:
    """An image needs no ldconfig; an image with musl gets the file that musl reads."""
    apart.generate("--ldconfig-path", LDCONFIG)
    made = bundle_of(kind, ["/probe", *questions(runs=[LOOKED_UP])], asks("1"))
    view = apart.run_with_state(made).view
    assert_found(view.runs[0], str(apart.node.node.driver.version))


def test_dynamic_ldconfig_is_refused(apart: Installation, bundle_of: Bundles) -> None:
    """A dynamic ldconfig would run the image's loader: it is not called, and the create fails."""
    apart.generate("--ldconfig-path", LDCONFIG)
    text = apart.spec.read_text()
    apart.spec.write_text(text.replace(f"- {LDCONFIG}", "- /bin/true"))
    made = bundle_of("debian", ["/probe"], asks("1"))
    result = apart.run_with_state(made)
    assert result.rc != 0
    assert "GH1517: cannot run the host's ldconfig /bin/true" in result.stderr


def test_attach_runs_ldconfig(apart: Installation, tmp_path: Path) -> None:
    """attach runs the host's ldconfig, as --dry-run announces; a second attach has no steps."""
    apart.generate("--ldconfig-path", LDCONFIG)
    made = sleeping(tmp_path)
    with_ldconfig(made.root)
    with started(made, apart) as live:
        planned = live.report("attach", "--device", "2", "--dry-run")
        done = live.attach("2")
        assert done["steps"] == planned["steps"]
        assert live.attach("2")["steps"] == []
        view = live.view(questions(*LINKS, runs=[LOOKED_UP, CACHE]))
        assert_found(view.runs[0], str(apart.node.node.driver.version))
        assert_cached(view.runs[1])
        assert live.detach("2")["steps"] != []


@ROUTES
@pytest.mark.parametrize(
    ("disabled", "has_link", "has_cache", "has_profile"),
    [
        ("create-symlinks", False, True, True),
        ("update-ldcache", True, False, True),
        ("update-application-profile", True, True, False),
        ("create-symlinks,update-ldcache", False, False, True),
        ("enable-cuda-compat,disable-device-node-modification", True, True, True),
    ],
)
def test_disabled_hook_is_disabled_by_each_integration(
    integration: str,
    disabled: str,
    has_link: bool,
    has_cache: bool,
    has_profile: bool,
    apart: Installation,
    tmp_path: Path,
    root_of: Roots,
) -> None:
    """The effects of a disabled hook are missing, those of the other hooks exist."""
    apart.generate("--disable-hook", disabled)
    root = root_of("debian")
    link = f"{LIBRARIES}/libcuda.so"
    command = ["/probe", *questions(link, VERSIONED, PROFILE)]
    view = container_view(integration, apart, tmp_path, root, command, EVERYTHING)
    assert (view.paths[link].kind == "link") is has_link
    # The loader's own name of a library belongs to its cache, and is a link as well.
    assert (view.paths[VERSIONED].kind == "link") is (has_link or has_cache)
    assert ("libcuda.so.1" in first_cached_paths(root)) is has_cache
    assert (root / PROFILE.lstrip("/")).exists() is has_profile


def test_spec_without_hooks_mounts_the_driver(
    apart: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """Without hooks the driver's files are mounted, and the loader cache does not change."""
    apart.generate("--disable-hook", "all")
    root = root_of("debian")
    before = roots.listing(root)
    view = Integrations(apart, tmp_path).through("podman-cdi", root, ["/probe"], "2").view
    assert apart.device(2) in view.gpus()
    assert "/usr/bin/nvidia-smi" in view.mounts
    assert roots.listing(root)["etc/ld.so.cache"] == before["etc/ld.so.cache"]


def test_chmod_hook_is_disabled_by_default(apart: Installation, bundle_of: Bundles) -> None:
    """The hook chmod gives a directory of the runtime the mode 0755."""
    device = [{"path": "/dev/dri/card0", "type": "c", "major": 226, "minor": 0}]
    modes = []
    for options in ([], ["--enable-hook", "chmod"]):
        apart.generate(*options)
        command = ["/probe", *questions("/dev/dri")]
        made = bundle_of("debian", command, asks("1"), linux={"devices": device})
        config = made.config()
        config.setdefault("hooks", {})["createContainer"] = [
            {"path": "/bin/chmod", "args": ["chmod", "0700", f"{made.root}/dev/dri"]}
        ]
        made.write(config)
        modes.append(apart.run_with_state(made).view.paths["/dev/dri"].mode)
    assert [mode & 0o777 for mode in modes] == [0o700, 0o755]


@pytest.mark.parametrize("integration", ["runc", "podman-cdi"])
def test_management_device_has_all_nodes(
    integration: str, apart: Installation, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """The management device has all GPUs, the control nodes and the driver."""
    apart.generate("--mode", "management", output=apart.specs / "management.yaml")
    name = "management.nvidia.com/gpu=all"
    command = ["/probe", *questions(*LINKS, runs=[LOOKED_UP])]
    if integration == "runc":
        made = bundle_of("debian", command, annotations={"cdi.k8s.io/own": name})
        view = apart.run(made).view
    else:
        enter = Integrations(apart, tmp_path)
        view = enter.by_podman(root_of("debian"), command, ["--device", name], "runc").view
    gpus = {apart.device(index) for index in range(len(apart.node.node.gpus))}
    driver_nodes = {
        node.path for node in apart.node.node.device_nodes if "nvswitch" not in node.path
    }
    assert gpus < set(view.gpus())
    assert set(view.gpus()) == driver_nodes
    assert all(node.allowed for node in view.gpus().values())
    assert_found(view.runs[0], str(apart.node.node.driver.version))


def test_management_spec_needs_no_nvml(apart: Installation) -> None:
    """--mode management describes a driver whose NVML cannot be loaded."""
    broken = apart.place / "nvml.so"
    broken.write_text("no library")
    result = apart.gpuhook(
        "generate-cdi",
        *apart.node.options,
        "--mode",
        "management",
        "--format",
        "json",
        "--nvml-library",
        str(broken),
    )
    assert result.rc == 0, result.stderr
    document = json.loads(result.stdout)
    assert [device["name"] for device in document["devices"]] == ["all"]
    common_nodes = {node["path"] for node in document["containerEdits"]["deviceNodes"]}
    gpu_nodes = {node["path"] for node in document["devices"][0]["containerEdits"]["deviceNodes"]}
    assert "/dev/nvidiactl" in common_nodes
    assert not common_nodes & gpu_nodes


@ENGINES
def test_ldconfig_works_in_a_user_namespace(
    engine: str, apart: Installation, bundle_of: Bundles
) -> None:
    """In a user namespace ldconfig runs below the hook's root directory."""
    apart.generate("--ldconfig-path", LDCONFIG)
    let_through(Path(apart.node.driver_root) / "any")
    let_through(apart.bindir / "any")
    let_through(apart.state / "any")
    command = ["/probe", *questions("/etc/ld.so.cache", runs=[LOOKED_UP])]
    made = mapped(bundle_of("debian", command, asks("2")))
    view = apart.run_with_state(made, engine).view
    assert_found(view.runs[0], str(apart.node.node.driver.version))
