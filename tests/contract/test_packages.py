# SPDX-License-Identifier: Apache-2.0
"""The built packages: their contents, their metadata, and that builds are reproducible."""

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
OTHER_ENVIRONMENT = {
    "TZ": "Asia/Seoul",
    "LC_ALL": "C",
    "HOME": "/nonexistent",
    "LOGNAME": "somebody",
}
IMPORT_ALL = """
import os, sys
sys.path[:0] = [sys.argv[1]]
for line in open(sys.argv[1] + "/gpuhook-runtime.modules"):
    name = line.strip()[:-3].replace("/", ".")
    __import__(name[: -len(".__init__")] if name.endswith(".__init__") else name)
"""


def packages(kind: str = "deb") -> dict[str, Path]:
    """Return the packages of this checkout, by name."""
    paths = sorted(package_builds.built().glob(f"*.{kind}"))
    separator = "_" if kind == "deb" else f"-{__version__}"
    return {path.name.partition(separator)[0]: path for path in paths}


def unpack(name: str, place: Path) -> Path:
    """Unpack a Debian package, and return the directory."""
    subprocess.run(["dpkg-deb", "--extract", packages()[name], str(place)], check=True)
    return place


def bill_of_materials(kind: str) -> dict[str, Any]:
    """Return the bill of materials of the packages of a kind."""
    (path,) = package_builds.built().glob(f"*-{kind}.spdx.json")
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def rpm_query(*words: str) -> str:
    """Return rpm's answer to a query about a package file."""
    command = ["rpm", "-qp", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def field(name: str, wanted: str) -> str:
    """Return a field of a Debian package."""
    command = ["dpkg-deb", "--field", str(packages()[name]), wanted]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.thorough
def test_builds_are_reproducible(tmp_path: Path) -> None:
    """Another directory, time zone, language, user and umask: the same bytes."""
    checkout = package_builds.copy_sources(tmp_path / "elsewhere")
    for path in checkout.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(0o600)
    package_builds.make(checkout, package_builds.KINDS, tmp_path / "made", OTHER_ENVIRONMENT)
    first = package_builds.built()
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in (tmp_path / "made").iterdir())
    assert len(names) == 10
    for name in names:
        assert (first / name).read_bytes() == (tmp_path / "made" / name).read_bytes(), name


@pytest.mark.thorough
def test_lintian_reports_nothing() -> None:
    """This includes pedantic tags; each override has a reason."""
    command = ["lintian", "--allow-root", "--pedantic", "--info", "--tag-display-limit", "0"]
    command += ["--fail-on", "error,warning,info,pedantic", *map(str, packages().values())]
    done = run_command(command)
    tags = [line for line in done.stdout.splitlines() if line[:2] in ("E:", "W:", "I:", "P:")]
    assert tags == []
    assert done.rc == 0, done.stderr


def test_each_module_is_in_one_package() -> None:
    shared = modules.shared_out(CHECKOUT, list(bundle.ENTRIES))
    files = modules.module_files(CHECKOUT)
    assert sum(len(names) for names in shared.values()) == len(files)
    assert set().union(*shared.values()) == set(files)
    assert all(shared.values())


def test_runtime_package_has_no_dynamic_imports() -> None:
    """The list of the package's modules is built from import statements."""
    files = modules.module_files(CHECKOUT)
    for name in modules.shared_out(CHECKOUT, list(bundle.ENTRIES))["gpuhook-runtime"]:
        words = {
            getattr(node, "id", getattr(node, "attr", ""))
            for node in ast.walk(ast.parse(files[name].read_bytes()))
        }
        assert not words & {"import_module", "__import__"}, name


def test_runtime_package_needs_python_only(tmp_path: Path) -> None:
    """Python 3.9 with its standard library can import each module of the package."""
    root = unpack("gpuhook-runtime", tmp_path)
    library = str(root / LIBRARY)
    command = [str(pythons.interpreter("3.9")), "-ISB", "-c", IMPORT_ALL, library]
    done = run_command(command)
    assert done.rc == 0, done.stderr
    assert field("gpuhook-runtime", "Depends") == "python3 (>= 3.9)"
    assert not (root / LIBRARY / "gpuhook/cli").exists()


def test_programs_are_after_their_modules_in_the_archive() -> None:
    """dpkg unpacks files in the order of the archive."""
    command = ["dpkg-deb", "--fsys-tarfile", str(packages()["gpuhook-runtime"])]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    listed = subprocess.run(["tar", "-t"], input=archive, check=True, capture_output=True).stdout
    names = listed.decode().split()
    programs = [names.index(f"./usr/bin/{name}") for name in ("gpuhook-runtime", "gpuhook-hook")]
    assert min(programs) > max(n for n, name in enumerate(names) if name.startswith("./usr/lib/"))


def test_settings_file_is_a_conffile() -> None:
    command = ["dpkg-deb", "--info", str(packages()["gpuhook"]), "conffiles"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "/etc/gpuhook/config.yaml\n"


def test_bill_of_materials_lists_each_file(tmp_path: Path) -> None:
    """Its checksums are those of the packaged files; NVML's bindings have their licence."""
    document = bill_of_materials("deb")
    ids = {one["SPDXID"] for one in [*document["packages"], *document["files"]]}
    known_ids = {"SPDXRef-DOCUMENT", *ids}
    for relation in document["relationships"]:
        assert {relation["spdxElementId"], relation["relatedSpdxElement"]} <= known_ids
    sums = {p.name: p for p in packages().values()}
    for package in document["packages"]:
        if "packageFileName" in package:
            digest = hashlib.sha256(sums.pop(package["packageFileName"]).read_bytes()).hexdigest()
            assert package["checksums"][0]["checksumValue"] == digest
    assert sums == {}
    known = {one["fileName"]: one for one in document["files"]}
    root = unpack("gpuhook", tmp_path)
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
def test_bill_of_materials_follows_spdx(kind: str) -> None:
    """Identifiers and relations are unique; only analyzed packages have files."""
    document = bill_of_materials(kind)
    ids = [one["SPDXID"] for one in [*document["packages"], *document["files"]]]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", one) for one in ids)
    relations = [tuple(one.values()) for one in document["relationships"]]
    assert len(relations) == len(set(relations))
    files = {one["SPDXID"] for one in document["files"]}
    has_files = {one for one, kind, other in relations if kind == "CONTAINS" and other in files}
    analyzed = [one for one in document["packages"] if one["filesAnalyzed"]]
    assert has_files == {one["SPDXID"] for one in analyzed}
    assert all("packageVerificationCode" in one for one in analyzed)
    form = r"https://spdx\.org/spdxdocs/gpuhook-[\w.]+-(deb|rpm)-[0-9a-f-]{36}"
    assert re.fullmatch(form, document["documentNamespace"])


@pytest.mark.parametrize(
    ("version", "packaged"),
    [("1.2.3", "1.2.3"), ("1.2.3rc1", "1.2.3~rc1"), ("1.2.3.dev4", "1.2.3~dev4")],
)
def test_prerelease_sorts_before_its_release(version: str, packaged: str) -> None:
    assert sorted_first(version) == packaged


@pytest.fixture(scope="module")
def red_hat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty root directory for rpm."""
    root = tmp_path_factory.mktemp("rpm")
    for name in ("dev", "tmp"):
        (root / name).mkdir()
    return root


def test_rpm_install_and_erase(red_hat: Path) -> None:
    """The installed programs run; erase removes all files and keeps changed settings."""
    paths = packages("rpm")
    rpm = ["rpm", "--root", str(red_hat), "--dbpath", "/var/lib/rpm"]
    add = [*rpm, "--install", "--nodeps", "--noscripts", "--ignoreos", "--ignorearch"]
    subprocess.run([*add, *map(str, paths.values())], check=True)
    library = red_hat / LIBRARY
    program = f"import sys; sys.path[:0] = ['{library}']; from gpuhook.entry.hooks.hook import main"
    command = ["/usr/bin/python3", "-ISBc", f"{program}; main()", "--version"]
    done = run_command(command)
    assert done.stdout == f"gpuhook-hook {__version__}\n", done.stderr
    verified = subprocess.run(
        [*rpm, "--verify", "--nodeps", "--noscripts", *paths], capture_output=True, check=False
    )
    assert verified.stdout == b""
    assert verified.returncode == 0
    settings = red_hat / "etc/gpuhook/config.yaml"
    settings.write_text("# mine\n")
    subprocess.run([*rpm, "--erase", "--noscripts", *paths], check=True)
    remaining = [path for path in red_hat.rglob("*") if "gpuhook" in path.name and path.is_file()]
    assert remaining == []
    saved = settings.with_name("config.yaml.rpmsave")
    assert saved.read_text() == "# mine\n"
    assert not (red_hat / "usr/lib/gpuhook").exists()


def test_rpm_metadata() -> None:
    paths = {name: str(path) for name, path in packages("rpm").items()}
    answer = rpm_query("--requires", paths["gpuhook"])
    assert f"gpuhook-runtime = {__version__}-1" in answer
    assert "python3-tomlkit >= 0.11.7" in answer
    assert "findutils" in answer
    assert "bundled(python3dist(nvidia-ml-py)) = " in rpm_query("--provides", paths["gpuhook"])
    assert "LICENSE.pynvml" in rpm_query("--licensefiles", paths["gpuhook"])
    answer = rpm_query("--triggers", paths["gpuhook-runtime"])
    assert "python3" in answer
    assert "maintain byte-code" in answer


def test_compat_rpm_conflicts_and_does_not_obsolete() -> None:
    """An upgrade of a node with NVIDIA's packages does not install it."""
    package = str(packages("rpm")["gpuhook-nvidia-compat"])
    assert "nvidia-container-toolkit\n" in rpm_query("--conflicts", package)
    assert rpm_query("--obsoletes", package) == ""


def test_maintainer_and_homepage_of_packages(tmp_path: Path) -> None:
    """Variables of the build set them; the default is an invalid address and no home page."""
    assert field("gpuhook", "Maintainer").endswith(".invalid>")
    assert field("gpuhook", "Homepage") == ""
    env = {"DEBFULLNAME": "A Site", "DEBEMAIL": "a@site.test", "GPUHOOK_HOMEPAGE": "https://a.test"}
    place = tmp_path / "made"
    package_builds.make(CHECKOUT, ["rpm"], place, env)
    (path,) = place.glob(f"gpuhook-{__version__}-*.rpm")
    answer = rpm_query("--qf", "%{PACKAGER} %{URL} %{CHANGELOGNAME}", str(path))
    assert answer == f"A Site <a@site.test> https://a.test A Site <a@site.test> - {__version__}-1"
