# SPDX-License-Identifier: Apache-2.0
"""What a site chooses with generate-cdi, seen from inside containers of real engines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpuhook.loader import ld_cache_entries, ld_so_conf
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


def seen(
    integration: str,
    installation: Installation,
    place: Path,
    root: Path,
    asked: list[str],
    env: list[str],
) -> View:
    """Return what a container with GPU 2 sees that came through this integration.

    Hooks of a wrapped container have this installation's state directory, as podman's have.
    """
    if integration not in integrations.RUNTIMES:
        enter = Integrations(installation, place)
        return enter.through(integration, root, asked, "2", env=env).view
    made = bundle(place / "bundle", root, asked, [*asks("2"), *env])
    return installation.run_secluded(made, integration).view


def cached(root: Path) -> dict[str, str]:
    """Return what the image's loader cache finds first for each name."""
    found: dict[str, str] = {}
    for entry in ld_cache_entries.parse((root / "etc/ld.so.cache").read_bytes()):
        found.setdefault(os.fsdecode(entry.soname), os.fsdecode(entry.path))
    return found


@ROUTES
def test_ldconfig_makes_the_cache(
    integration: str, apart: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """The host's ldconfig indexes the image again by each integration: also a library that its
    old cache does not know; and the driver is found, and nothing of it all is left behind."""
    apart.generate("--ldconfig-path", LDCONFIG)
    root = with_ldconfig(root_of("debian"))
    own = root / "opt/own"
    own.mkdir(parents=True)
    elf_maker.write(own / "libown.so.1", "libown.so.1")
    (root / "etc/ld.so.conf").write_text(FORGED)
    before = cached(root)
    asked = ["/probe", *questions(*LINKS, runs=[LOOKED_UP, CACHE])]
    view = seen(integration, apart, tmp_path, root, asked, [])
    assert_found(view.runs[0], str(apart.node.node.driver.version))
    assert_cached(view.runs[1])
    assert "libown.so.1" not in before
    assert cached(root)["libown.so.1"] == "/opt/own/libown.so.1"
    assert sorted(path.name for path in (root / "etc/ld.so.conf.d").glob("*gpuhook*")) == [
        Path(ld_so_conf.FIRST).name
    ]
    left = [path for path in root.rglob("*gpuhook.c*") if path.name != Path(ld_so_conf.FIRST).name]
    assert left == []


def test_a_second_start_changes_nothing(
    apart: Installation, root_of: Roots, bundle_of: Bundles
) -> None:
    """A container that starts again has the very files that its first start left."""
    apart.generate("--ldconfig-path", LDCONFIG)
    root = root_of("debian")
    made = bundle_of(root, ["/probe"], asks("1"))
    listings = []
    for _ in range(2):
        assert apart.run_secluded(made).rc == 0
        listings.append(roots.listing(root))
    assert listings[0] == listings[1]


def test_ldconfig_does_not_leave_the_image(
    apart: Installation, root_of: Roots, bundle_of: Bundles
) -> None:
    """Links that lead out of the image, by .. or by /proc, lead ldconfig nowhere else."""
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
    view = apart.run_secluded(made).view
    assert_found(view.runs[0], str(apart.node.node.driver.version))
    assert "libsecret.so.1" not in (root / "etc/ld.so.cache").read_bytes().decode("latin-1")


@pytest.mark.parametrize("kind", ["distroless", "musl", "lib64"])
def test_ldconfig_in_other_images(kind: str, apart: Installation, bundle_of: Bundles) -> None:
    """An image needs no ldconfig, and an image with musl gets the file that musl reads."""
    apart.generate("--ldconfig-path", LDCONFIG)
    made = bundle_of(kind, ["/probe", *questions(runs=[LOOKED_UP])], asks("1"))
    view = apart.run_secluded(made).view
    assert_found(view.runs[0], str(apart.node.node.driver.version))


def test_an_ldconfig_of_no_use_stops_the_container(apart: Installation, bundle_of: Bundles) -> None:
    """A dynamic program would run the image's loader: it is not run, and the container stops."""
    apart.generate("--ldconfig-path", LDCONFIG)
    text = apart.spec.read_text()
    apart.spec.write_text(text.replace(f"- {LDCONFIG}", "- /bin/true"))
    made = bundle_of("debian", ["/probe"], asks("1"))
    result = apart.run_secluded(made)
    assert result.rc != 0
    assert "GH1517: cannot run the host's ldconfig /bin/true" in result.stderr


def test_attach_runs_ldconfig_too(apart: Installation, tmp_path: Path) -> None:
    """A GPU attached to a running container: what is planned is what is made, and only once."""
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
def test_a_disabled_hook_is_disabled_on_every_route(
    integration: str,
    disabled: str,
    has_link: bool,
    has_cache: bool,
    has_profile: bool,
    apart: Installation,
    tmp_path: Path,
    root_of: Roots,
) -> None:
    """The effects of a disabled job are missing, those of the others exist, by any integration."""
    apart.generate("--disable-hook", disabled)
    root = root_of("debian")
    link = f"{LIBRARIES}/libcuda.so"
    asked = ["/probe", *questions(link, VERSIONED, PROFILE)]
    view = seen(integration, apart, tmp_path, root, asked, EVERYTHING)
    assert (view.paths[link].kind == "link") is has_link
    # The loader's own name of a library belongs to its cache, and is a link as well.
    assert (view.paths[VERSIONED].kind == "link") is (has_link or has_cache)
    assert ("libcuda.so.1" in cached(root)) is has_cache
    assert (root / PROFILE.lstrip("/")).exists() is has_profile


def test_all_hooks_disabled(apart: Installation, tmp_path: Path, root_of: Roots) -> None:
    """Without any hook the spec names no program of the host, and the files are mounted still."""
    apart.generate("--disable-hook", "all")
    root = root_of("debian")
    before = roots.listing(root)
    view = Integrations(apart, tmp_path).through("podman-cdi", root, ["/probe"], "2").view
    assert apart.device(2) in view.gpus()
    assert "/usr/bin/nvidia-smi" in view.mounts
    assert roots.listing(root)["etc/ld.so.cache"] == before["etc/ld.so.cache"]


def test_chmod_only_where_it_is_enabled(apart: Installation, bundle_of: Bundles) -> None:
    """chmod makes the directory that the runtime made one that everybody may enter."""
    device = [{"path": "/dev/dri/card0", "type": "c", "major": 226, "minor": 0}]
    modes = []
    for options in ([], ["--enable-hook", "chmod"]):
        apart.generate(*options)
        asked = ["/probe", *questions("/dev/dri")]
        made = bundle_of("debian", asked, asks("1"), linux={"devices": device})
        config = made.config()
        config.setdefault("hooks", {})["createContainer"] = [
            {"path": "/bin/chmod", "args": ["chmod", "0700", f"{made.root}/dev/dri"]}
        ]
        made.write(config)
        modes.append(apart.run_secluded(made).view.paths["/dev/dri"].mode)
    assert [mode & 0o777 for mode in modes] == [0o700, 0o755]


@pytest.mark.parametrize("integration", ["runc", "podman-cdi"])
def test_the_management_device(
    integration: str, apart: Installation, tmp_path: Path, root_of: Roots, bundle_of: Bundles
) -> None:
    """Its one device has all GPUs and control nodes, and the driver; NVML was not asked."""
    apart.generate("--mode", "management", output=apart.specs / "management.yaml")
    name = "management.nvidia.com/gpu=all"
    asked = ["/probe", *questions(*LINKS, runs=[LOOKED_UP])]
    if integration == "runc":
        made = bundle_of("debian", asked, annotations={"cdi.k8s.io/own": name})
        view = apart.run(made).view
    else:
        enter = Integrations(apart, tmp_path)
        view = enter.by_podman(root_of("debian"), asked, ["--device", name], "runc").view
    gpus = {apart.device(index) for index in range(len(apart.node.node.gpus))}
    there = {node.path for node in apart.node.node.device_nodes if "nvswitch" not in node.path}
    assert gpus < set(view.gpus())
    assert set(view.gpus()) == there
    assert all(node.allowed for node in view.gpus().values())
    assert_found(view.runs[0], str(apart.node.node.driver.version))


def test_management_without_nvml(apart: Installation) -> None:
    """A driver whose NVML cannot be loaded is described all the same."""
    broken = apart.place / "nvml.so"
    broken.write_text("no library")
    done = apart.gpuhook(
        "generate-cdi",
        *apart.node.options,
        "--mode",
        "management",
        "--format",
        "json",
        "--nvml-library",
        str(broken),
    )
    assert done.rc == 0, done.stderr
    document = json.loads(done.stdout)
    assert [device["name"] for device in document["devices"]] == ["all"]
    held = {node["path"] for node in document["containerEdits"]["deviceNodes"]}
    own = {node["path"] for node in document["devices"][0]["containerEdits"]["deviceNodes"]}
    assert "/dev/nvidiactl" in held
    assert not held & own


@ENGINES
def test_ldconfig_in_a_user_namespace(engine: str, apart: Installation, bundle_of: Bundles) -> None:
    """If the hook's root is not the host's, ldconfig is shut in by that root, and works."""
    apart.generate("--ldconfig-path", LDCONFIG)
    let_through(Path(apart.node.driver_root) / "any")
    let_through(apart.bindir / "any")
    let_through(apart.state / "any")
    asked = ["/probe", *questions("/etc/ld.so.cache", runs=[LOOKED_UP])]
    made = mapped(bundle_of("debian", asked, asks("2")))
    view = apart.run_secluded(made, engine).view
    assert_found(view.runs[0], str(apart.node.node.driver.version))
