# SPDX-License-Identifier: Apache-2.0
"""Packages as they are made: what is in each, by which rules, and that two builds are the same."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import bundle
import pytest
from packages import modules
from packages.release import sorted_first

from gpuhook import __version__
from tests.contract import package_builds, pythons
from tests.contract.build_cache import CHECKOUT
from tests.contract.runtimes import run_command

LIBRARY = f"usr/lib/gpuhook/{__version__}"
OTHER_PLACE = {"TZ": "Asia/Seoul", "LC_ALL": "C", "HOME": "/nonexistent", "LOGNAME": "somebody"}
IMPORTED = """
import os, sys
sys.path[:0] = [sys.argv[1]]
for line in open(sys.argv[1] + "/gpuhook-runtime.modules"):
    name = line.strip()[:-3].replace("/", ".")
    __import__(name[: -len(".__init__")] if name.endswith(".__init__") else name)
"""


def packages(kind: str = "deb") -> dict[str, Path]:
    """Return the packages of this checkout by their names."""
    found = sorted(package_builds.built().glob(f"*.{kind}"))
    cut = "_" if kind == "deb" else f"-{__version__}"
    return {path.name.partition(cut)[0]: path for path in found}


def unpacked(name: str, place: Path) -> Path:
    """Unpack a Debian package and return the directory."""
    subprocess.run(["dpkg-deb", "--extract", packages()[name], str(place)], check=True)
    return place


def bill(kind: str) -> dict[str, Any]:
    """Return the bill of materials of the packages of a kind."""
    (path,) = package_builds.built().glob(f"*-{kind}.spdx.json")
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def asked(*words: str) -> str:
    """Return what a question to rpm about a package's file is answered with."""
    command = ["rpm", "-qp", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def field(name: str, wanted: str) -> str:
    """Return a field of a Debian package."""
    command = ["dpkg-deb", "--field", str(packages()[name]), wanted]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.thorough
def test_two_builds_are_the_same(tmp_path: Path) -> None:
    """Another directory, time zone, language, user and mask: the same bytes."""
    checkout = package_builds.copied(tmp_path / "elsewhere")
    for path in checkout.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(0o600)
    package_builds.make(checkout, package_builds.KINDS, tmp_path / "made", OTHER_PLACE)
    first = package_builds.built()
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in (tmp_path / "made").iterdir())
    assert len(names) == 10
    for name in names:
        assert (first / name).read_bytes() == (tmp_path / "made" / name).read_bytes(), name


@pytest.mark.thorough
def test_lintian_has_nothing_to_say() -> None:
    """Not even pedantically, but for what is overridden with a reason."""
    command = ["lintian", "--allow-root", "--pedantic", "--info", "--tag-display-limit", "0"]
    command += ["--fail-on", "error,warning,info,pedantic", *map(str, packages().values())]
    done = run_command(command)
    said = [line for line in done.stdout.splitlines() if line[:2] in ("E:", "W:", "I:", "P:")]
    assert said == []
    assert done.rc == 0, done.stderr


def test_each_module_is_in_one_package() -> None:
    """And none is left out."""
    shared = modules.shared_out(CHECKOUT, list(bundle.ENTRIES))
    files = modules.module_files(CHECKOUT)
    assert sum(len(found) for found in shared.values()) == len(files)
    assert set().union(*shared.values()) == set(files)
    assert all(shared.values())


def test_nothing_that_a_start_imports_is_imported_by_a_name_made_at_run_time() -> None:
    """The list of the runtime's modules is made of import statements."""
    files = modules.module_files(CHECKOUT)
    for name in modules.shared_out(CHECKOUT, list(bundle.ENTRIES))["gpuhook-runtime"]:
        words = {
            getattr(node, "id", getattr(node, "attr", ""))
            for node in ast.walk(ast.parse(files[name].read_bytes()))
        }
        assert not words & {"import_module", "__import__"}, name


def test_the_runtime_needs_nothing_but_python(tmp_path: Path) -> None:
    """Python 3.9, its standard library, this package: each of its modules can be imported."""
    root = unpacked("gpuhook-runtime", tmp_path)
    library = str(root / LIBRARY)
    command = [str(pythons.interpreter("3.9")), "-ISB", "-c", IMPORTED, library]
    done = run_command(command)
    assert done.rc == 0, done.stderr
    assert field("gpuhook-runtime", "Depends") == "python3 (>= 3.9)"
    assert not (root / LIBRARY / "gpuhook/cli").exists()


def test_programs_come_after_what_they_import() -> None:
    """dpkg puts files in their places in the order of the archive."""
    command = ["dpkg-deb", "--fsys-tarfile", str(packages()["gpuhook-runtime"])]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    listed = subprocess.run(["tar", "-t"], input=archive, check=True, capture_output=True).stdout
    names = listed.decode().split()
    programs = [names.index(f"./usr/bin/{name}") for name in ("gpuhook-runtime", "gpuhook-hook")]
    assert min(programs) > max(n for n, name in enumerate(names) if name.startswith("./usr/lib/"))


def test_settings_are_the_administrators() -> None:
    """They are a conffile, and the commented default."""
    command = ["dpkg-deb", "--info", str(packages()["gpuhook"]), "conffiles"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "/etc/gpuhook/config.yaml\n"


def test_the_bill_of_materials_names_each_file(tmp_path: Path) -> None:
    """By the checksums of what is really in the packages, NVML's bindings with their licence."""
    document = bill("deb")
    ids = {one["SPDXID"] for one in [*document["packages"], *document["files"]]}
    ends = {"SPDXRef-DOCUMENT", *ids}
    for relation in document["relationships"]:
        assert {relation["spdxElementId"], relation["relatedSpdxElement"]} <= ends
    sums = {p.name: p for p in packages().values()}
    for package in document["packages"]:
        if "packageFileName" in package:
            digest = hashlib.sha256(sums.pop(package["packageFileName"]).read_bytes()).hexdigest()
            assert package["checksums"][0]["checksumValue"] == digest
    assert sums == {}
    known = {one["fileName"]: one for one in document["files"]}
    root = unpacked("gpuhook", tmp_path)
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    for file in files:
        one = known[f"./{file.relative_to(root)}"]
        assert one["checksums"][1]["checksumValue"] == hashlib.sha256(file.read_bytes()).hexdigest()
    sha1 = sorted(hashlib.sha1(file.read_bytes()).hexdigest() for file in files)
    (package,) = [one for one in document["packages"] if one["name"] == "gpuhook"]
    code = hashlib.sha1("".join(sha1).encode()).hexdigest()
    assert package["packageVerificationCode"] == {"packageVerificationCodeValue": code}
    assert known[f"./{LIBRARY}/pynvml.py"]["licenseConcluded"] == "BSD-3-Clause"
    notice = (root / "usr/share/doc/gpuhook/copyright").read_text(encoding="utf-8")
    assert "NVIDIA Corporation" in notice
    assert "Neither the name of the NVIDIA Corporation" in notice


@pytest.mark.parametrize("kind", ["deb", "rpm"])
def test_the_bill_of_materials_is_one_as_spdx_has_it(kind: str) -> None:
    """No identifier and no relation twice; files only in packages that say they were looked at."""
    document = bill(kind)
    ids = [one["SPDXID"] for one in [*document["packages"], *document["files"]]]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", one) for one in ids)
    relations = [tuple(one.values()) for one in document["relationships"]]
    assert len(relations) == len(set(relations))
    files = {one["SPDXID"] for one in document["files"]}
    has_files = {one for one, kind, other in relations if kind == "CONTAINS" and other in files}
    looked_at = [one for one in document["packages"] if one["filesAnalyzed"]]
    assert has_files == {one["SPDXID"] for one in looked_at}
    assert all("packageVerificationCode" in one for one in looked_at)
    form = r"https://spdx\.org/spdxdocs/gpuhook-[\w.]+-(deb|rpm)-[0-9a-f-]{36}"
    assert re.fullmatch(form, document["documentNamespace"])


@pytest.mark.parametrize(
    ("version", "packaged"),
    [("1.2.3", "1.2.3"), ("1.2.3rc1", "1.2.3~rc1"), ("1.2.3.dev4", "1.2.3~dev4")],
)
def test_what_comes_before_a_release_sorts_before_it(version: str, packaged: str) -> None:
    assert sorted_first(version) == packaged


@pytest.fixture(scope="module")
def red_hat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory to which rpm can install, with a link to this machine's Python."""
    root = tmp_path_factory.mktemp("rpm")
    for name in ("dev", "tmp"):
        (root / name).mkdir()
    return root


def test_rpm_installs_and_removes_all_of_it(red_hat: Path) -> None:
    """In a separate directory: the programs there run, and nothing of them remains."""
    found = packages("rpm")
    rpm = ["rpm", "--root", str(red_hat), "--dbpath", "/var/lib/rpm"]
    add = [*rpm, "--install", "--nodeps", "--noscripts", "--ignoreos", "--ignorearch"]
    subprocess.run([*add, *map(str, found.values())], check=True)
    library = red_hat / LIBRARY
    program = f"import sys; sys.path[:0] = ['{library}']; from gpuhook.entry.hooks.hook import main"
    command = ["/usr/bin/python3", "-ISBc", f"{program}; main()", "--version"]
    done = run_command(command)
    assert done.stdout == f"gpuhook-hook {__version__}\n", done.stderr
    verified = subprocess.run(
        [*rpm, "--verify", "--nodeps", "--noscripts", *found], capture_output=True, check=False
    )
    assert verified.stdout == b""
    assert verified.returncode == 0
    settings = red_hat / "etc/gpuhook/config.yaml"
    settings.write_text("# mine\n")
    subprocess.run([*rpm, "--erase", "--noscripts", *found], check=True)
    left = [path for path in red_hat.rglob("*") if "gpuhook" in path.name and path.is_file()]
    assert left == []
    kept = settings.with_name("config.yaml.rpmsave")
    assert kept.read_text() == "# mine\n"
    assert not (red_hat / "usr/lib/gpuhook").exists()


def test_rpms_say_what_they_need() -> None:
    found = {name: str(path) for name, path in packages("rpm").items()}
    said = asked("--requires", found["gpuhook"])
    assert f"gpuhook-runtime = {__version__}-1" in said
    assert "python3-tomlkit >= 0.11.7" in said
    assert "findutils" in said
    assert "bundled(python3dist(nvidia-ml-py)) = " in asked("--provides", found["gpuhook"])
    assert "LICENSE.pynvml" in asked("--licensefiles", found["gpuhook"])
    said = asked("--triggers", found["gpuhook-runtime"])
    assert "python3" in said
    assert "maintain byte-code" in said


def test_no_rpm_comes_uninvited_for_one_of_nvidias() -> None:
    """It stands beside none of them, and an upgrade of a node that has them does not bring it."""
    package = str(packages("rpm")["gpuhook-nvidia-compat"])
    assert "nvidia-container-toolkit\n" in asked("--conflicts", package)
    assert asked("--obsoletes", package) == ""


def test_nobody_is_named_who_did_not_say_so(tmp_path: Path) -> None:
    """Without a word of who builds, the address is one that cannot be; no home page is made up."""
    assert field("gpuhook", "Maintainer").endswith(".invalid>")
    assert field("gpuhook", "Homepage") == ""
    env = {"DEBFULLNAME": "A Site", "DEBEMAIL": "a@site.test", "GPUHOOK_HOMEPAGE": "https://a.test"}
    place = tmp_path / "made"
    package_builds.make(CHECKOUT, ["rpm"], place, env)
    (path,) = place.glob(f"gpuhook-{__version__}-*.rpm")
    told = asked("--qf", "%{PACKAGER} %{URL} %{CHANGELOGNAME}", str(path))
    assert told == f"A Site <a@site.test> https://a.test A Site <a@site.test> - {__version__}-1"
