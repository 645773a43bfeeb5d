# SPDX-License-Identifier: Apache-2.0
"""Files that `gpuhook uninstall` removes in addition to the tree, and files that it keeps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click.testing
import pytest
import yaml

import gpuhook
from gpuhook.cdi import spec_file
from gpuhook.cli import main
from gpuhook.install import installation, leftovers, tree_copy
from gpuhook.vendors.spec.spec_choices import SPEC_VERSIONS
from tests.simulated import amd_tree
from tests.unit.install.test_install_command import called, small  # noqa: F401 # a fixture

HOOK = "/opt/gpuhook/bin/gpuhook-hook"
FEATURES = "etc/kubernetes/node-feature-discovery/features.d/gfd"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    made = tmp_path / "host"
    for name in ("etc/cdi", "run/cdi", os.path.dirname(FEATURES), "opt/gpuhook"):
        (made / name).mkdir(parents=True)
    return made


def generated(hook: str, fmt: str) -> str:
    """Return a spec of generate-cdi whose hook is at `hook`."""
    words = ["generate-cdi", "--inventory", "t4", "--format", fmt, "--hook-path", hook]
    done = click.testing.CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return done.stdout


def kind(text: str) -> str:
    """Return the spec as the device plugin names it."""
    document = json.loads(text)
    document["kind"] = "k8s.device-plugin.nvidia.com/gpu"
    return spec_file.document(document, "json")


def removed(host: Path) -> list[str]:
    """Uninstall, after a dry run, and return the removed files outside the tree."""
    before = {path for path in host.rglob("*") if path.is_file()}
    planned = called("uninstall", host, "--dry-run")
    assert {path for path in host.rglob("*") if path.is_file()} == before
    document = called("uninstall", host)
    assert document["removed"] == planned["removed"]
    assert not any((host / path[1:]).exists() for path in document["removed"])
    found: list[str] = document["removed"]
    return found


def test_specs_that_call_the_removed_hook_are_removed(host: Path) -> None:
    """An engine with CDI starts no container with a spec whose hook is missing."""
    (host / "run/cdi/nvidia.yaml").write_text(generated(HOOK, "yaml"), encoding="utf-8")
    (host / "etc/cdi/nvidia.json").write_text(generated(HOOK, "json"), encoding="utf-8")
    name = "k8s.device-plugin.nvidia.com-gpu.json"
    (host / "run/cdi" / name).write_text(kind(generated(HOOK, "json")), encoding="utf-8")
    assert removed(host) == ["/etc/cdi/nvidia.json", f"/run/cdi/{name}", "/run/cdi/nvidia.yaml"]


def other_specs() -> dict[str, str]:
    """Return specs that must be kept."""
    ours = generated(HOOK, "yaml")
    document: dict[str, Any] = yaml.safe_load(ours)
    hook = {"hookName": "createContainer", "path": HOOK, "args": ["gpuhook-hook", "other"]}
    document["containerEdits"]["hooks"] = [hook]
    return {
        "packages.yaml": generated("/usr/bin/gpuhook-hook", "yaml"),
        "edited.yaml": ours + "# by hand\n",
        "reordered.json": json.dumps(yaml.safe_load(ours)),
        "other-verb.yaml": spec_file.document(document, "yaml"),  # type: ignore[arg-type]
        "broken.yaml": ours.replace("cdiVersion", "version"),
        "not-a-spec.json": f'["{HOOK}"]',
        "empty.json": "",
        "text.conf": ours,
        "beside.yaml": generated("/opt/gpuhook-other/bin/gpuhook-hook", "yaml"),
    }


def test_other_specs_are_kept(host: Path) -> None:
    """A note names those that call the removed hook and do not look like gpuhook's."""
    for name, text in other_specs().items():
        (host / "run/cdi" / name).write_text(text, encoding="utf-8")
    (host / "ours.yaml").write_text(generated(HOOK, "yaml"), encoding="utf-8")
    (host / "run/cdi/link.yaml").symlink_to("/ours.yaml")
    document = called("uninstall", host)
    assert document["removed"] == []
    assert sorted(note.split()[0].rpartition("/")[2] for note in document["notes"]) == [
        "broken.yaml", "edited.yaml", "not-a-spec.json", "other-verb.yaml", "reordered.json",
    ]  # fmt: skip
    assert len(list((host / "run/cdi").iterdir())) == len(other_specs()) + 1


def of_amd(tmp_path: Path, version: str) -> str:
    """Return the spec of this node's AMD GPUs for readers of this version of CDI."""
    tree = amd_tree.build(tmp_path / "amd", "mixed", real_nodes=True)
    words = ["generate-cdi", "--vendor", "amd", "--host-root", str(tree.root)]
    done = click.testing.CliRunner().invoke(main, [*words, "--cdi-version", version])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("version", SPEC_VERSIONS)
def test_specs_of_device_nodes(host: Path, tmp_path: Path, version: str) -> None:
    """Nothing refreshes them now, and an index may mean another device later; others are kept."""
    ours = of_amd(tmp_path, version)
    document = yaml.safe_load(ours)
    document.pop("annotations", None)
    document["containerEdits"].pop("env", None)
    theirs = {
        "amd.json": json.dumps(document),
        "edited.yaml": ours + "# by hand\n",
        "without-notes.yaml": spec_file.document(document, "yaml"),
    }
    for name, text in theirs.items():
        (host / "etc/cdi" / name).write_text(text, encoding="utf-8")
    (host / "run/cdi/amd.yaml").write_text(ours, encoding="utf-8")
    assert removed(host) == ["/run/cdi/amd.yaml"]
    assert {path.name for path in (host / "etc/cdi").iterdir()} == set(theirs)


def test_specs_are_kept_with_the_tree(host: Path) -> None:
    (host / "run/cdi/nvidia.yaml").write_text(generated(HOOK, "yaml"), encoding="utf-8")
    version = host / "opt/gpuhook/versions/1.0-a"
    version.mkdir(parents=True)
    (version / "tree.json").touch()
    (host / "opt/gpuhook/state-directories.json").write_text("{", encoding="utf-8")
    assert called("uninstall", host)["kept"] == ["1.0-a"]
    assert (host / "run/cdi/nvidia.yaml").exists()
    called("uninstall", host, "--force")
    assert not (host / "run/cdi/nvidia.yaml").exists()


@pytest.mark.parametrize("domain", ["nvidia.com", "amd.com"])
def test_state_and_feature_labels_are_removed(host: Path, domain: str) -> None:
    """The records of the GPUs are kept: their settings outlive the plugin and the DRA driver."""
    for name in ("containers", "health", "health-dra"):
        (host / "run/gpuhook" / name).mkdir(parents=True)
    kept = ["dra-policies.json", "policies.json"]
    for name in ("node.json", "containers/c.json", *kept):
        (host / "run/gpuhook" / name).touch()
    text = f"{domain}/gpu.count=1\n{domain}/gpu.replica-memory=4096\n"
    (host / FEATURES).write_text(text, encoding="utf-8")
    expected = [f"/{FEATURES}", "/run/gpuhook/containers", "/run/gpuhook/node.json"]
    assert removed(host) == expected
    assert sorted(os.listdir(host / "run/gpuhook")) == [kept[0], "health", "health-dra", kept[1]]


def test_empty_state_directory_is_removed(host: Path) -> None:
    (host / "run/gpuhook/containers").mkdir(parents=True)
    assert removed(host) == ["/run/gpuhook/containers"]
    assert not (host / "run/gpuhook").exists()


def test_feature_labels_of_nvidia_are_kept(host: Path) -> None:
    (host / FEATURES).write_text("nvidia.com/gpu.count=1\n", encoding="utf-8")
    assert f"/{FEATURES}" not in removed(host)


@pytest.mark.parametrize(
    "user",
    [
        "usr/bin/gpuhook-runtime",
        "var/lib/kubelet/device-plugins/nvidia-gpu.sock",
        "var/lib/kubelet/device-plugins/amd-gpu.sock",
        "var/lib/kubelet/plugins_registry/gpu.nvidia.com-uid-reg.sock",
    ],
)
def test_files_of_another_program_are_kept(host: Path, tmp_path: Path, user: str) -> None:
    """A package of gpuhook, or a running device plugin or DRA driver."""
    (host / "run/cdi/amd.yaml").write_text(of_amd(tmp_path, "0.6.0"), encoding="utf-8")
    (host / "run/gpuhook/containers").mkdir(parents=True)
    (host / user).parent.mkdir(parents=True)
    (host / user).touch()
    (host / FEATURES).write_text("nvidia.com/gpu.replica-memory=1\n", encoding="utf-8")
    document = called("uninstall", host)
    assert document["removed"] == []
    assert f"/{user} exists" in document["notes"][0]
    assert document["notes"][0].startswith("/run/cdi/amd.yaml and /run/gpuhook and ")
    assert (host / "run/gpuhook/containers").exists()
    assert (host / "run/cdi/amd.yaml").exists()


def test_state_of_another_installation_is_kept(
    host: Path,
    small: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine calls the programs in another directory, as after a change of it."""
    monkeypatch.setattr(installation, "_require_running", lambda where, version: None)
    other = ("--install-dir", "/srv/gpuhook", "--engine", "docker", "--tree", str(small))
    called("install", host, *other)
    (host / "run/gpuhook/containers").mkdir(parents=True)
    document = called("uninstall", host)
    assert document["removed"] == []
    assert "/srv/gpuhook/bin/gpuhook-runtime exists" in document["notes"][0]
    assert (host / "run/gpuhook/containers").exists()
    document = called("uninstall", host, "--install-dir", "/srv/gpuhook")
    assert document["removed"] == ["/run/gpuhook/containers"]


def test_killed_uninstall_is_completed_by_the_next_run(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the tree, no run removes the state, as another installation may have it."""
    (host / "run/gpuhook/containers").mkdir(parents=True)
    (host / FEATURES).write_text("nvidia.com/gpu.replica-memory=1\n", encoding="utf-8")
    version = host / "opt/gpuhook/versions/1.0-a"
    version.mkdir(parents=True)
    (version / "tree.json").touch()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for module, name in ((tree_copy, "remove"), (leftovers, "remove")):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, killed)
            with pytest.raises(KeyboardInterrupt):
                installation.uninstall(installation.place(str(host)))
    installation.uninstall(installation.place(str(host)))
    remaining = ("opt/gpuhook", "run/gpuhook", FEATURES)
    assert not [name for name in remaining if (host / name).exists()]


def test_without_an_installation_nothing_is_removed(host: Path) -> None:
    """Another installation may have the state: only specs name their hook."""
    (host / "opt/gpuhook").rmdir()
    (host / "run/gpuhook/containers").mkdir(parents=True)
    assert removed(host) == []
    assert (host / "run/gpuhook/containers").exists()


def test_root_of_the_image_is_not_a_host(host: Path) -> None:
    """In the pod of the device plugin, the specs are the host's, and /opt/gpuhook is not."""
    (host / "opt/gpuhook/tree.json").touch()
    (host / "run/cdi/nvidia.yaml").write_text(generated(HOOK, "yaml"), encoding="utf-8")
    assert removed(host) == []
    assert (host / "run/cdi/nvidia.yaml").exists()


@pytest.mark.parametrize("output", ["text", "json", "yaml"])
def test_program_can_remove_its_own_tree(host: Path, output: str) -> None:
    """A module that it imports afterwards would be missing. A tree has no grpc."""
    version = host / "opt/gpuhook/versions/1.0-a"
    shutil.copytree(Path(gpuhook.__file__).parent, version / "gpuhook")
    (version / "tree.json").touch()
    (version / "grpc.py").write_text("raise ImportError", encoding="utf-8")
    (host / "run/cdi/nvidia.yaml").write_text(generated(HOOK, "yaml"), encoding="utf-8")
    (host / "run/gpuhook/containers").mkdir(parents=True)
    code = (
        f"import sys; sys.path[:0] = [{str(version)!r}]; import gpuhook; "
        f"assert gpuhook.__file__.startswith({str(version)!r}); "
        "from gpuhook.cli import main; main()"
    )
    words = ["uninstall", "--host-root", str(host), "-o", output]
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "/run/cdi/nvidia.yaml" in done.stdout
    assert not (host / "opt/gpuhook").exists()
    assert not list((host / "run/cdi").iterdir())
