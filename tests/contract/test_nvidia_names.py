# SPDX-License-Identifier: Apache-2.0
"""What was made for NVIDIA's toolkit works with gpuhook's programs under NVIDIA's names.

The CDI spec has the form of `nvidia-ctk cdi generate` 1.18: one hook for each task.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract import roots
from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import (
    ALL_CONTROL,
    DRIVER_LIBRARIES,
    LIBRARIES,
    Installation,
    asks,
    install_once,
)
from tests.contract.integrations import Integrations
from tests.contract.roots import Roots
from tests.contract.runtimes import Result, run, run_command
from tests.contract.views import questions

CDI_HOOK = "nvidia-cdi-hook"
COMPAT = "/usr/local/cuda/compat"
PROFILE = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf"
STAMP = "NVIDIA_CTK_DEBUG=false"


@pytest.fixture(scope="module")
def named_bindir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of an installation that has all of NVIDIA's names."""
    return install_once(tmp_path_factory, "nvidia-compat", "--nvidia-compat")


def hook(named_bindir: Path, installation: Installation, name: str, *args: str) -> dict[str, Any]:
    """Return a hook in the form of NVIDIA's tool, with the paths of this node."""
    own = [f"{key}={value}" for key, value in installation.env.items()]
    return {
        "hookName": "createContainer",
        "path": str(named_bindir / CDI_HOOK),
        "args": [CDI_HOOK, name, *args],
        "env": [STAMP, *own],
    }


def toolkit_hooks(
    named_bindir: Path, installation: Installation, libraries: list[str]
) -> list[dict[str, Any]]:
    """Return the spec-level hooks that NVIDIA's tool writes for these driver libraries."""
    (cuda,) = [path for path in libraries if "/libcuda.so." in path]
    version = cuda.partition(".so.")[2]
    links = [f"libcuda.so.1::{LIBRARIES}/libcuda.so"]
    links += [f"libnvidia-opticalflow.so.1::{LIBRARIES}/libnvidia-opticalflow.so"]
    folders = sorted({path.rpartition("/")[0] for path in libraries})
    each = [word for link in links for word in ("--link", link)]
    return [
        hook(named_bindir, installation, "create-symlinks", *each),
        hook(named_bindir, installation, "enable-cuda-compat", f"--host-driver-version={version}"),
        hook(named_bindir, installation, "update-ldcache", *(f"--folder={one}" for one in folders)),
        hook(named_bindir, installation, "update-application-profile"),
        hook(named_bindir, installation, "disable-device-node-modification"),
        hook(named_bindir, installation, "of-a-newer-toolkit", "--what", "ever"),
    ]


@pytest.fixture
def foreign(apart: Installation, named_bindir: Path) -> Installation:
    """Return a node whose only CDI spec has the form of NVIDIA's tool."""
    document = yaml.safe_load(apart.spec.read_text(encoding="utf-8"))
    edits = document["containerEdits"]
    mounted = [one["containerPath"] for one in edits["mounts"]]
    libraries = [path for path in mounted if ".so" in path and path.startswith(LIBRARIES)]
    edits["hooks"] = toolkit_hooks(named_bindir, apart, libraries)
    apart.spec.write_text(json.dumps(document), encoding="utf-8")
    for other in apart.specs.iterdir():
        if other != apart.spec:
            other.unlink()
    return apart


def probe_command(installation: Installation) -> list[str]:
    """Return the command of the probe: the devices to open, the libraries to load."""
    tries = [installation.number(1), installation.number(2)]
    runs = [["/dlprobe", *DRIVER_LIBRARIES, "libcuda.so"]]
    return ["/probe", *questions(tries=tries, runs=runs)]


@pytest.mark.parametrize(
    ("kind", "engine"), [("debian", "crun"), ("distroless", "runc"), ("musl", "runc")]
)
def test_nvidia_spec_by_podman(
    kind: str, engine: str, foreign: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """The container has its GPU, and its loader finds the driver."""
    result = Integrations(foreign, tmp_path).by_podman(
        root_of(kind),
        probe_command(foreign),
        ["--device", "nvidia.com/gpu=2"],
        f"/usr/bin/{engine}",
        engine,
    )
    view = result.view
    assert set(view.gpus()) == {*ALL_CONTROL, foreign.device(2)}
    assert view.tries[foreign.number(1)] == "EPERM"
    found = view.runs[0].found()
    assert [name for name, one in found.items() if "real" not in one] == []
    for one in found.values():
        assert {"ro", "nosuid", "nodev"} <= view.mounts[one["real"]].options


def write_other_spec(made: Installation, named_bindir: Path, name: str) -> None:
    """Write a spec of NVIDIA's form for another device, with a library and a loader hook."""
    (driver,) = Path(made.node.driver_root).rglob("libcuda.so.*.*")
    library = made.place / f"{name}.so.1.0"
    shutil.copy(driver, library)  # its SONAME is libcuda.so.1
    directory = f"/opt/{name}"
    mount = {"hostPath": str(library), "containerPath": f"{directory}/lib{name}.so.1.0"}
    edits = {
        "mounts": [{**mount, "options": ["ro", "nosuid", "nodev", "bind"]}],
        "hooks": [hook(named_bindir, made, "update-ldcache", "--folder", directory)],
    }
    spec = {
        "cdiVersion": "0.5.0",
        "kind": f"nvidia.com/{name}",
        "devices": [{"name": "a", "containerEdits": {"env": ["OTHER=1"]}}],
        "containerEdits": edits,
    }
    (made.specs / f"{name}.json").write_text(json.dumps(spec), encoding="utf-8")


@pytest.mark.parametrize("way", ["podman", "wrapper"])
def test_three_specs_share_the_loader_cache(
    way: str,
    apart: Installation,
    named_bindir: Path,
    tmp_path: Path,
    root_of: Roots,
    bundle_of: Bundles,
) -> None:
    """The loader finds the libraries of gpuhook's spec and of two specs of NVIDIA's form."""
    for name in ("one", "two"):
        write_other_spec(apart, named_bindir, name)
    command = ["/probe", *questions(runs=[["/ldconfig", "-p"]])]
    root = root_of("debian")
    shutil.copy(roots.ldconfig(), root / "ldconfig")
    kinds = ("nvidia.com/gpu=0", "nvidia.com/one=a", "nvidia.com/two=a")
    if way == "podman":
        devices = [word for kind in kinds for word in ("--device", kind)]
        integrations = Integrations(apart, tmp_path)
        view = integrations.by_podman(root, command, devices, "/usr/bin/runc", "runc").view
    else:
        made = bundle_of(root, command, asks(",".join(kinds)))
        view = apart.run_with_state(made).view
    (ran,) = view.runs
    ours = LIBRARIES.removeprefix("/usr")  # the path in the image's ldconfig output
    for directory in (ours, "/opt/one", "/opt/two"):
        assert f"=> {directory}/libcuda.so.1\n" in ran.output, ran.output
    assert f"=> {ours}/libcuda.so\n" in ran.output, ran.output


def test_cuda_compat_libraries_precede_the_driver(
    foreign: Installation, tmp_path: Path, root_of: Roots
) -> None:
    """With the hook enable-cuda-compat the image's newer libraries are loaded."""
    root = root_of("debian")
    compat = root / COMPAT[1:]
    compat.mkdir(parents=True)
    (driver,) = Path(foreign.node.driver_root).rglob("libcuda.so.*.*")
    shutil.copy(driver, compat / "libcuda.so.999.10.01")
    (compat / "libcuda.so.1").symlink_to("libcuda.so.999.10.01")
    result = Integrations(foreign, tmp_path).by_podman(
        root, probe_command(foreign), ["--device", "nvidia.com/gpu=2"], "/usr/bin/runc", "runc"
    )
    found = result.view.runs[0].found()
    assert found["libcuda.so.1"]["path"] == f"{COMPAT}/libcuda.so.1"
    assert found["libnvidia-ml.so.1"]["real"].startswith(LIBRARIES)


def state_of(made: Bundle) -> str:
    """Return the OCI state of a bundle's container, as a runtime passes it to hooks."""
    return json.dumps({"ociVersion": "1.0.2", "id": "x", "pid": 1, "bundle": str(made.path)})


def call(named_bindir: Path, installation: Installation, made: Bundle, *words: str) -> Result:
    """Run nvidia-cdi-hook as a runtime does."""
    return run_command(
        [str(named_bindir / CDI_HOOK), *words], {**installation.env}, stdin=state_of(made)
    )


def test_nvidia_cdi_hooks_are_idempotent(
    named_bindir: Path, apart: Installation, bundle_of: Bundles
) -> None:
    """A second run changes no file; an unknown flag is an error, an unknown hook is logged."""
    made = bundle_of("debian")
    link = ["create-symlinks", "--link", "libx.so.1::/usr/lib/libx.so"]
    every = [
        link,
        ["--quiet", *link],
        ["update-ldcache", "--ldconfig-path=/sbin/ldconfig", f"--folder={LIBRARIES}"],
        ["enable-cuda-compat", "--host-driver-version=550.54.15"],
        ["update-application-profile"],
        ["chmod", "--mode", "755", "--path", "/usr/lib"],
    ]
    listings = []
    for _ in range(2):
        for words in every:
            done = call(named_bindir, apart, made, *words)
            assert (done.rc, done.stderr) == (0, ""), words
        listings.append(roots.listing(made.root))
    assert listings[0] == listings[1]
    assert (made.root / "usr/lib/libx.so").readlink() == Path("libx.so.1")
    assert (made.root / PROFILE[1:]).is_file()
    done = call(named_bindir, apart, made, "apply-something-new", "--flag")
    assert (done.rc, done.stderr) == (0, "")
    assert "GH2141" in (apart.state / "hook.log").read_text(encoding="utf-8")
    done = call(named_bindir, apart, made, "create-symlinks", "--unknown=1")
    assert done.rc == 1
    assert "GH2140" in done.stderr
    version = subprocess.check_output([named_bindir / CDI_HOOK, "--version"], text=True)
    assert version.startswith("gpuhook-hook ")


def test_create_symlinks_stays_in_the_root(
    named_bindir: Path, apart: Installation, bundle_of: Bundles, root_of: Roots, tmp_path: Path
) -> None:
    """Links of the image do not lead the hook out of the root file system."""
    outside = tmp_path / "outside"
    outside.mkdir()
    root = root_of("debian")
    (root / "opt").mkdir(exist_ok=True)
    (root / "opt/out").symlink_to(outside)
    (root / "opt/up").symlink_to("../" * 20 + str(outside)[1:])
    made = bundle_of(root)
    for name in ("out", "up"):
        done = call(
            named_bindir, apart, made, "create-symlinks", "--link", f"/etc/passwd::/opt/{name}/link"
        )
        assert done.rc == 0, done.stderr
    assert list(outside.iterdir()) == []
    assert (root / str(outside)[1:] / "link").is_symlink()


def test_runtime_and_prestart_hook_by_nvidia_names(
    named_bindir: Path, apart: Installation, bundle_of: Bundles
) -> None:
    """nvidia-container-runtime of daemon.json, and nvidia-container-toolkit of hooks.d."""
    command = ["/probe", *questions(tries=[apart.number(0), apart.number(1)])]
    for name in ("", ".cdi", ".legacy"):
        made = bundle_of("distroless", command, asks("1"))
        runtime = str(named_bindir / ("nvidia-container-runtime" + name))
        view = run(made, [runtime], env=apart.on("runc")).view
        assert view.tries[apart.number(0)] == "EPERM"
        assert view.tries[apart.number(1)] != "EPERM"
    env = [f"{key}={value}" for key, value in apart.env.items()]
    name = "nvidia-container-toolkit"
    args = [name, "-config", "/etc/nvidia-container-runtime/config.toml", "prestart"]
    hooks = {"prestart": [{"path": str(named_bindir / name), "args": args, "env": env}]}
    made = bundle_of("distroless", command, asks("1"), hooks=hooks)
    view = run(made, ["runc"]).view
    assert view.tries[apart.number(0)] == "EPERM"
    assert view.tries[apart.number(1)] != "EPERM"


def test_runtime_does_not_execute_itself(
    named_bindir: Path, apart: Installation, bundle_of: Bundles
) -> None:
    """Settings imported from NVIDIA's may list the wrapper itself as low-level runtime."""
    made = bundle_of("distroless", ["/probe"], asks("1"))
    names = json.loads(apart.config.read_text(encoding="utf-8"))
    names["lowLevelRuntimes"] = [str(named_bindir / "nvidia-container-runtime"), "runc"]
    apart.config.write_text(json.dumps(names), encoding="utf-8")
    runtime = str(named_bindir / "nvidia-container-runtime")
    assert apart.device(1) in run(made, [runtime], env=apart.env).view.gpus()


def test_nvidia_ctk_commands(named_bindir: Path, apart: Installation, tmp_path: Path) -> None:
    """nvidia-ctk generates and lists a spec, and refuses other commands with a hint."""

    def ctk(*words: str) -> Result:
        command = [str(named_bindir / "nvidia-ctk"), *words]
        return run_command(command, apart.env)

    output = tmp_path / "specs/nvidia.yaml"
    output.parent.mkdir()
    done = ctk("cdi", "generate", f"--output={output}", *apart.node.options)
    assert done.rc == 0, done.stderr
    listed = ctk("cdi", "list", f"--spec-dir={output.parent}")
    assert "nvidia.com/gpu=0" in listed.stdout.split("\n")
    done = ctk("config", "--set", "x=y", "--in-place")
    assert (done.rc, done.stdout) == (1, "")
    assert done.stderr.startswith("Error GH2142: ")
    assert "gpuhook config import" in done.stderr
    done = ctk("hook", "of-a-newer-toolkit")
    assert (done.rc, done.stderr) == (0, "")
    assert "GH2141" in (apart.state / "hook.log").read_text(encoding="utf-8")
    done = ctk("--version")
    assert done.stdout.startswith("gpuhook, version ")
