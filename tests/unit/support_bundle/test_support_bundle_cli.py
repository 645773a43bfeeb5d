# SPDX-License-Identifier: Apache-2.0
"""`gpuhook support-bundle`, and `gpuhook doctor --from` its output."""

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

import gpuhook
from gpuhook.cli import main
from gpuhook.support_bundle import bundle_archive
from tests.simulated.node import make_node

SCHEMAS = Path(gpuhook.__file__).parent / "schemas"
CONFIG = """\
version = 2
[plugins."io.containerd.grpc.v1.cri".registry.configs."r".auth]
  password = "hunter2"
"""


def _validated(document: Any, name: str) -> Any:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    return document


def _run(*words: str) -> Result:
    return CliRunner().invoke(main, words, prog_name="gpuhook")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Yield the tree of a node in a cluster, with a secret in its files."""
    root = tmp_path / "node"
    make_node(root, "t4", real_nodes=False)
    (root / "etc/containerd").mkdir(parents=True)
    (root / "etc/containerd/config.toml").write_text(CONFIG, encoding="utf-8")
    (root / "var/lib/kubelet/device-plugins").mkdir(parents=True)
    (root / "var/log").mkdir(parents=True)
    own = "timestamp=2026-01-01T00:00:00Z level=info event=offered token=abcdef"
    (root / "var/log/gpuhook.log").write_text(f"one\n{own}\n", encoding="utf-8")
    other = root / "var/log/nvidia-container-toolkit.log"
    other.write_text("using token=abcdef\n", encoding="utf-8")
    return root


def test_file_is_private_and_removed_values_are_listed(node: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    shown = _run("support-bundle", "--root", str(node), "--file", str(path), "-o", "json")
    assert shown.exit_code == 0, shown.output
    report = _validated(json.loads(shown.stdout), "support-bundle-report")
    assert report["bytes"] == path.stat().st_size
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    members = bundle_archive.read(str(path))
    assert list(members) == report["members"]
    manifest = _validated(json.loads(members["manifest.json"]), "support-bundle")
    assert manifest["removed"] == report["removed"]
    places = {(one["where"], one["what"]) for one in report["removed"]}
    assert ("files/etc/containerd/config.toml", "registry") in places
    assert not any(b"hunter2" in content or b"abcdef" in content for content in members.values())
    assert [name for name in members if name.startswith("logs/")] == ["logs/var/log/gpuhook.log"]
    (line,) = members["logs/var/log/gpuhook.log"].splitlines()
    assert json.loads(line).keys() == {"timestamp", "level", "event"}
    results = json.loads(members["doctor.json"])["results"]
    assert all(one["id"] and one["status"] and one["said"] == "left out" for one in results)
    assert all(one["title"] != "left out" for one in results)


def test_doctor_has_the_same_findings_for_bundle_and_node(node: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "b.tar.gz")
    assert _run("support-bundle", "--root", str(node), "--file", path).exit_code == 0
    here = _run("doctor", "--root", str(node), "-o", "json")
    there = _run("doctor", "--from", path, "-o", "json")
    assert there.exit_code == here.exit_code
    found, again = json.loads(here.stdout), _validated(json.loads(there.stdout), "doctor")
    assert again["root"] == path
    assert not again["live"]
    assert again["results"] == found["results"]


def test_output_name_is_the_path_alone(node: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "b.tar.gz")
    words = ("support-bundle", "--root", str(node), "--file", path)
    shown = _run("--quiet", *words, "-o", "name")
    assert shown.stdout == f"{path}\n"
    assert not shown.stderr
    assert yaml.safe_load(_run(*words, "-o", "yaml").stdout)["file"] == path
    told = _run(*words, "--no-logs", "--no-headers", "-o", "table").stdout
    assert ["1", "registry", "files/etc/containerd/config.toml"] in [
        line.split() for line in told.splitlines()
    ]


def test_summary_is_short_and_names_the_whole_list(node: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    words = ("support-bundle", "--root", str(node), "--file", str(path))
    shown = _run(*words)
    file, values, missing, doctor = shown.stdout.splitlines()
    report = json.loads(_run(*words, "-o", "json").stdout)
    assert file.startswith(f"{path}: {len(report['members'])} files, ")
    removed = sum(one["count"] for one in report["removed"])
    assert values == f"values left out: {removed} (-o table lists their keys)"
    others = len(report["left_out"]) - 3
    assert missing.startswith(f"not in the bundle: {report['left_out'][0]['what']}, ")
    assert missing.endswith(f" and {others} more (-o table has the reasons)")
    assert doctor.startswith(f"doctor: {len(report['failed'])} failed, ")
    assert not shown.stderr


def test_dry_run_lists_files_and_keys_and_writes_nothing(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    words = ("support-bundle", "--root", str(node), "--dry-run")
    shown = _run(*words)
    assert shown.exit_code == 0, shown.output
    assert "nothing was written" in shown.stderr
    (line,) = [one for one in shown.stdout.splitlines() if "containerd/config.toml" in one]
    name, size, *keys = line.split()
    assert (name, int(size) > 0) == ("files/etc/containerd/config.toml", True)
    assert keys == ["io.containerd.grpc.v1.cri,", "plugins,", "version", "registry"]
    assert "hunter2" not in shown.output
    report = _validated(json.loads(_run(*words, "-o", "json").stdout), "support-bundle-report")
    assert (report["file"], report["bytes"]) == (None, None)
    assert list(report["sizes"]) == report["members"]
    assert sorted(tmp_path.iterdir()) == before


def test_files_of_users_are_not_in_a_bundle(node: Path, tmp_path: Path) -> None:
    (node / "etc/passwd").write_text("ada:x:1000:1000:Ada Lovelace:/home/ada:/bin/sh\n", "utf-8")
    (node / "etc/subuid").write_text("ada:100000:65536\n", "utf-8")
    (node / "home/ada/.config/docker").mkdir(parents=True)
    (node / "home/ada/.config/docker/daemon.json").write_text("{}", "utf-8")
    path = tmp_path / "b.tar.gz"
    assert _run("support-bundle", "--root", str(node), "--file", str(path)).exit_code == 0
    content = b"".join(bundle_archive.read(str(path)).values())
    assert [
        word for word in (b"Lovelace", b"ada:", b"/home/ada", b'"ada"') if word in content
    ] == []


def test_default_name_has_node_and_time(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = _run("support-bundle", "--root", str(node), "-o", "name").stdout.strip()
    assert name.startswith("gpuhook-bundle-")
    assert (tmp_path / name).is_file()


def test_running_node_adds_its_inventory(node: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    roots = [f"--{name}-root={node}" for name in ("host", "driver", "dev")]
    shown = _run("support-bundle", *roots, "--file", str(path), "--no-logs")
    assert shown.exit_code == 0, shown.output
    members = bundle_archive.read(str(path))
    taken = json.loads(members["readings.json"])
    assert taken["inventory"]["document"]["gpus"][0]["name"] == "Tesla T4"
    assert "ps.json" in members or "ps.json" in shown.stderr


def test_unwritable_path_is_a_failure(node: Path, tmp_path: Path) -> None:
    shown = _run("support-bundle", "--root", str(node), "--file", str(tmp_path / "no/b.tar.gz"))
    assert shown.exit_code == 1
    assert f"{tmp_path}/no/b.tar.gz: No such file" in shown.stderr


def test_from_refuses_fix_and_root(node: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "b.tar.gz")
    assert _run("support-bundle", "--root", str(node), "--file", path).exit_code == 0
    shown = _run("doctor", "--from", path, "--fix")
    assert shown.exit_code == 2
    assert "GH1903" in shown.stderr
    assert _run("doctor", "--from", path, "--root", str(node)).exit_code == 2
    broken = tmp_path / "broken"
    broken.write_bytes(b"nothing")
    told = _run("doctor", "--from", str(broken)).stderr
    assert f"GH1906: {broken} is not a support bundle: it is not a valid gzip file\n" in told


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of others")
def test_files_of_users_and_special_files_are_not_opened(node: Path, tmp_path: Path) -> None:
    (node / "etc/shadow").write_text("root:SHADOWED:1\n", encoding="utf-8")
    home = node / "home/u"
    (home / ".config/docker").mkdir(parents=True)
    os.chown(home, 1000, 1000)
    (home / ".config/docker/daemon.json").symlink_to("/etc/shadow")
    (node / "etc/cdi").mkdir(parents=True, exist_ok=True)
    os.mkfifo(node / "etc/cdi/fifo.yaml")
    (node / "etc/cdi/loop.yaml").symlink_to("loop.yaml")
    with (node / "etc/cdi/huge.json").open("wb") as file:
        file.truncate(3 << 30)
    path = tmp_path / "b.tar.gz"
    assert _run("support-bundle", "--root", str(node), "--file", str(path)).exit_code == 0
    assert not any(b"SHADOWED" in content for content in bundle_archive.read(str(path)).values())
    there = _run("doctor", "--root", str(node))
    assert "met something" not in there.output
    # Files of users are not in a bundle, so that checks of their engines differ.
    words = ("doctor", "--checks", "driver,devices,specs", "-o", "name")
    here = _run(*words, "--root", str(node))
    assert here.stdout
    assert _run(*words, "--from", str(path)).stdout == here.stdout
