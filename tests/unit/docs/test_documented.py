# SPDX-License-Identifier: Apache-2.0
"""The YAML examples of README and docs are valid and cause no warning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from gpuhook.cli import main
from gpuhook.device_plugin.config.config_reader import read
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS
from gpuhook.errors.catalogue import explanations, retired_codes
from gpuhook.node import settings_file

ROOT = Path(__file__).parents[3]
# The pages with configurations and objects for gpuhook itself.
PAGES = (
    "README.md",
    "README.ko.md",
    "docs/reference/configuration.md",
    "docs/reference/memory.md",
    "docs/reference/plugin.md",
    "docs/how-to/share-a-gpu.md",
    "docs/reference/device-plugin.md",
)
ALL = tuple(sorted({*PAGES, *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))}))
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"GH\d{4}")
MANIFEST = ROOT / "packaging/kubernetes/gpuhook.yaml"
SECTIONS = settings_file.SECTIONS
NVIDIA = re.compile(r"nvidia\.com/[a-z0-9.-]+")


def blocks() -> Iterator[tuple[str, str]]:
    """Yield page and text of each YAML block; the first lines identify the kind."""
    for page in PAGES:
        for text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
            yield page, text


EXAMPLES = list(blocks())


@pytest.mark.parametrize(("page", "text"), EXAMPLES)
def test_examples_are_valid(page: str, text: str, tmp_path: Path) -> None:
    """A configuration has no finding, a settings file is valid, a pod requests whole numbers."""
    (found,) = yaml.safe_load_all(text)
    if "apiVersion" in found:
        check_object(found)
    elif found.keys() == {"hostPID", "containers"}:
        check_part_of_the_daemon_set(found)
    elif found.keys() <= SECTIONS:
        path = tmp_path / "config.yaml"
        path.write_text(text, encoding="utf-8")
        assert check_settings(path)
    else:
        assert found.keys() <= {"version", "flags", "resources", "sharing", "imex", "gpuhook"}
        assert read(text.encode(), page).findings == ()


def check_object(found: dict[str, Any]) -> None:
    """Fail unless a Kubernetes object is a RuntimeClass, or a pod that requests GPUs."""
    if found["kind"] == "RuntimeClass":
        assert found["handler"] == "nvidia"
        return
    assert found["kind"] == "Pod"
    for container in found["spec"]["containers"]:
        limits = container["resources"]["limits"]
        assert limits
        assert all(NVIDIA.fullmatch(name) and type(n) is int for name, n in limits.items())


def check_part_of_the_daemon_set(found: dict[str, Any]) -> None:
    """Fail unless it adds capabilities to the shipped DaemonSet and is equal in all else."""
    (shipped,) = [
        one for one in yaml.safe_load_all(MANIFEST.read_text("utf-8")) if one["kind"] == "DaemonSet"
    ]
    pod = shipped["spec"]["template"]["spec"]
    (mine,), (own,) = found["containers"], pod["containers"]
    assert (found["hostPID"], mine["name"]) == (pod["hostPID"], own["name"])
    mine, own = mine["securityContext"], own["securityContext"]
    assert mine.pop("capabilities") == {**own.pop("capabilities"), "add": ["KILL"]}
    assert mine == own


@pytest.mark.parametrize(
    "text", [text for page, text in EXAMPLES if page == "docs/how-to/share-a-gpu.md"]
)
def test_first_line_of_a_block_names_its_file_or_object(text: str) -> None:
    """The content is of that kind."""
    found = yaml.safe_load(text)
    is_settings = found.keys() <= SECTIONS
    kinds = {
        "# the plugin's configuration": "version" in found,
        "# a pod": found.get("kind") == "Pod",
        "# part of the DaemonSet: below spec.template.spec": "containers" in found,
        "# /etc/gpuhook/config.yaml on each node": is_settings,
    }
    assert kinds[text.splitlines()[0]]


def check_settings(path: Path) -> bool:
    """Return whether `gpuhook config validate` accepts the file."""
    return not (settings_file.problem(str(path)) or settings_file.unknown_keys(str(path)))


def test_all_ways_of_sharing_are_documented() -> None:
    """The page on sharing has a configuration for each way, and a limit of each kind."""
    own = [(page, text) for page, text in EXAMPLES if "share-a-gpu" in page]
    shown = [read(text.encode(), page).configuration for page, text in own]
    sharing = [one.sharing for one in shown if one is not None]
    assert {one.strategy for one in sharing} >= {"time-slicing", "mps", MEMORY_UNITS}
    entries = [entry for one in sharing for entry in one.resources]
    assert {type(entry.memory) for entry in entries} == {str, int, type(None)}
    assert any(entry.oversubscribe for entry in entries)
    assert any(entry.replica_memory for entry in entries)
    assert all(any(getattr(e, name) for e in entries) for name in ("hints", "interposer"))
    assert any(entry.time_slice for entry in entries)


def test_documented_codes_exist() -> None:
    """A code on a page is one that gpuhook reports."""
    said = {code for page in ALL for code in CODE.findall((ROOT / page).read_text("utf-8"))}
    assert len(said) > 50
    assert said - set(explanations()) - set(retired_codes()) == set()


def test_commands_with_exit_status_1_for_findings_are_documented() -> None:
    """The exit statuses in --help are those on the command-line page."""
    root = click.Context(main, info_name="gpuhook")
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    rows = [row for row in page.splitlines() if row.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`([a-z -]+)`", row.split("|")[1])}
    told = set(ending_with_1(root, main))
    assert told >= {"cdi validate", "doctor", "ps"}
    assert told <= listed


def ending_with_1(ctx: click.Context, command: click.Command) -> Iterator[str]:
    """Yield the names of commands whose --help has an exit status 1."""
    for name in command.list_commands(ctx) if isinstance(command, click.Group) else ():
        one = command.get_command(ctx, name) if isinstance(command, click.Group) else None
        assert one is not None
        below = click.Context(one, info_name=name, parent=ctx)
        yield from ending_with_1(below, one)
        text = " ".join((one.help or "").split()).lower()
        if re.search(r"exit status (is )?(also )?1\b", text):
            yield below.command_path.removeprefix("gpuhook ")


@pytest.mark.parametrize("page", ["docs/concepts/security.md", "docs/support.md"])
def test_documented_tests_exist(page: str) -> None:
    """The file is below tests, and contains the function if one is named."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:contract|unit|property)/\w+\.py)(?:::(\w+))?`", text)
    assert len(named) > 10
    for path, function in named:
        content = (ROOT / "tests" / path).read_text(encoding="utf-8")
        assert not function or f"def {function}(" in content, (path, function)


def test_both_readmes_have_the_same_commands() -> None:
    """Block by block, except for comments; both have the same tables, sections and links."""
    shown, linked, sizes = [], [], []
    for page in ("README.md", "README.ko.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```(?:sh|yaml)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        shown.append([re.sub(r" +# .*", "", block) for block in blocks])
        linked.append(
            set(re.findall(r"\]\((docs/[a-z/-]+\.(?:md|svg))", text)) - {"docs/ko/kubernetes.md"}
        )
        sizes.append((text.count("\n## "), text.count("\n| "), text.count("\n- ")))
        assert len(text.splitlines()) <= 150
    assert sizes[0] == sizes[1]
    assert shown[0] == shown[1]
    assert linked[0] == linked[1]


def test_both_guides_have_the_same_commands_and_files() -> None:
    """The Korean guide has each command and file of the English one."""
    guide = ROOT / "docs/how-to/kubernetes.md"
    blocks = re.compile(r"^```(?:sh|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    shown = blocks.findall(guide.read_text(encoding="utf-8"))
    korean = (ROOT / "docs/ko/kubernetes.md").read_text(encoding="utf-8")
    assert len(shown) > 10
    assert [block for block in shown if block not in korean] == []


def test_index_links_every_page_once() -> None:
    """A long page has a table of contents."""
    index = ROOT / "docs/README.md"
    listed = index.read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert page == index or listed.count(f"]({page.relative_to(index.parent)})") == 1, page
        text = page.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400 or "\n- [" in text.partition("\n## ")[0], page


def test_invalid_example_is_detected(tmp_path: Path) -> None:
    """An unknown key is a finding in a configuration, and an error in settings."""
    assert read(b"version: v1\nsharing: {timeslicing: {}}\n", "x").findings
    path = tmp_path / "config.yaml"
    path.write_text("limit: {onFailure: auto}\n", encoding="utf-8")
    assert not check_settings(path)
