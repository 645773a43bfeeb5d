# SPDX-License-Identifier: Apache-2.0
"""Every YAML that README and docs show is what it is said to be: it is read without a word."""

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
# The pages with configurations and objects as they are written for gpuhook itself.
PAGES = (
    "README.md",
    "README.ko.md",
    "docs/configuration.md",
    "docs/memory.md",
    "docs/plugin.md",
    "docs/sharing.md",
    "docs/device-plugin.md",
)
ALL = tuple(sorted({*PAGES, *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))}))
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"GH\d{4}")
MANIFEST = ROOT / "packaging/kubernetes/gpuhook.yaml"
SECTIONS = settings_file.SECTIONS
NVIDIA = re.compile(r"nvidia\.com/[a-z0-9.-]+")


def blocks() -> Iterator[tuple[str, str]]:
    """Yield page and text of each YAML block; the first lines tell them apart."""
    for page in PAGES:
        for text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
            yield page, text


EXAMPLES = list(blocks())


@pytest.mark.parametrize(("page", "text"), EXAMPLES)
def test_an_example_is_taken(page: str, text: str, tmp_path: Path) -> None:
    """A configuration has no finding, a settings file is valid, a pod asks for whole numbers."""
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
    """Fail unless an object of Kubernetes is a RuntimeClass, or a pod that asks for GPUs."""
    if found["kind"] == "RuntimeClass":
        assert found["handler"] == "nvidia"
        return
    assert found["kind"] == "Pod"
    for container in found["spec"]["containers"]:
        limits = container["resources"]["limits"]
        assert limits
        assert all(NVIDIA.fullmatch(name) and type(n) is int for name, n in limits.items())


def check_part_of_the_daemon_set(found: dict[str, Any]) -> None:
    """Fail unless it has more capabilities than the DaemonSet that ships, and all else of it."""
    (shipped,) = [
        one for one in yaml.safe_load_all(MANIFEST.read_text("utf-8")) if one["kind"] == "DaemonSet"
    ]
    pod = shipped["spec"]["template"]["spec"]
    (mine,), (own,) = found["containers"], pod["containers"]
    assert (found["hostPID"], mine["name"]) == (pod["hostPID"], own["name"])
    mine, own = mine["securityContext"], own["securityContext"]
    assert mine.pop("capabilities") == {**own.pop("capabilities"), "add": ["KILL"]}
    assert mine == own


@pytest.mark.parametrize("text", [text for page, text in EXAMPLES if page == "docs/sharing.md"])
def test_a_block_says_where_it_goes(text: str) -> None:
    """Its first line names the file or the object, and that is what it is."""
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
    """Return whether `gpuhook config validate` would take the file."""
    return not (settings_file.problem(str(path)) or settings_file.unknown_keys(str(path)))


def test_all_ways_are_shown() -> None:
    """The page on sharing has a configuration of each way, and a limit of each kind."""
    shown = [read(text.encode(), page).configuration for page, text in EXAMPLES if "docs/s" in page]
    sharing = [one.sharing for one in shown if one is not None]
    assert {one.strategy for one in sharing} >= {"time-slicing", "mps", MEMORY_UNITS}
    entries = [entry for one in sharing for entry in one.resources]
    assert {type(entry.memory) for entry in entries} == {str, int, type(None)}
    assert any(entry.oversubscribe for entry in entries)
    assert any(entry.replica_memory for entry in entries)
    assert all(any(getattr(e, name) for e in entries) for name in ("hints", "interposer"))
    assert any(entry.time_slice for entry in entries)


def test_codes_are_those_of_faults() -> None:
    """A code that a page explains is one that gpuhook reports."""
    said = {code for page in ALL for code in CODE.findall((ROOT / page).read_text("utf-8"))}
    assert len(said) > 50
    assert said - set(explanations()) - set(retired_codes()) == set()


def test_commands_that_end_with_1_for_what_they_find_are_listed() -> None:
    """What --help says of exit statuses, the page on the command line says of each command."""
    root = click.Context(main, info_name="gpuhook")
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    rows = [row for row in page.splitlines() if row.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`([a-z -]+)`", row.split("|")[1])}
    told = set(ending_with_1(root, main))
    assert told >= {"cdi validate", "doctor", "ps"}
    assert told <= listed


def ending_with_1(ctx: click.Context, command: click.Command) -> Iterator[str]:
    """Yield the names of commands whose --help says when they end with 1."""
    for name in command.list_commands(ctx) if isinstance(command, click.Group) else ():
        one = command.get_command(ctx, name) if isinstance(command, click.Group) else None
        assert one is not None
        below = click.Context(one, info_name=name, parent=ctx)
        yield from ending_with_1(below, one)
        text = " ".join((one.help or "").split()).lower()
        if re.search(r"exit status (is )?(also )?1\b", text):
            yield below.command_path.removeprefix("gpuhook ")


def test_links_lead_somewhere() -> None:
    """A link to a heading or a file of this project has one there."""
    for page in ALL:
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in target:
                continue
            path, _, heading = target.partition("#")
            aimed = (ROOT / page).parent / path if path else ROOT / page
            assert aimed.exists(), (page, target)
            if heading:
                assert heading in headings(aimed.read_text(encoding="utf-8")), (page, target)


@pytest.mark.parametrize("page", ["docs/security.md", "docs/support.md"])
def test_what_a_page_names_as_its_test_is_one(page: str) -> None:
    """A file below tests, and a function in it where one is named."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:contract|unit|property)/\w+\.py)(?:::(\w+))?`", text)
    assert len(named) > 10
    for path, function in named:
        content = (ROOT / "tests" / path).read_text(encoding="utf-8")
        assert not function or f"def {function}(" in content, (path, function)


def test_both_languages_of_the_readme_have_the_same_commands() -> None:
    """Block by block, but for the comments; and both link to the same pages."""
    shown, linked = [], []
    for page in ("README.md", "README.ko.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```(?:sh|yaml)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        shown.append([re.sub(r" +# .*", "", block) for block in blocks])
        linked.append(set(re.findall(r"\]\((docs/[a-z-]+\.md)", text)))
    assert shown[0] == shown[1]
    assert linked[0] == linked[1]


def test_both_languages_of_the_guide_have_the_same_commands_and_files() -> None:
    """What the English guide has people run or write, the Korean one has too."""
    guide = ROOT / "docs/kubernetes.md"
    blocks = re.compile(r"^```(?:sh|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    shown = blocks.findall(guide.read_text(encoding="utf-8"))
    korean = (ROOT / "docs/ko/kubernetes.md").read_text(encoding="utf-8")
    assert len(shown) > 10
    assert [block for block in shown if block not in korean] == []


def test_the_readme_leads_to_every_page() -> None:
    """Each page of docs is linked, and one of some length has a list of its contents."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert f"]({page.relative_to(ROOT)})" in readme, page
        text = page.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400 or "\n- [" in text.partition("\n## ")[0], page


def headings(text: str) -> set[str]:
    """Return the anchors that a renderer makes of headings."""
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in outside.splitlines() if line.startswith("#")]
    words = [re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()) for line in lines]
    return {line.replace(" ", "-") for line in words}


def test_an_example_that_is_wrong_is_found(tmp_path: Path) -> None:
    """A key that there is not is a finding of a configuration, and no setting."""
    assert read(b"version: v1\nsharing: {timeslicing: {}}\n", "x").findings
    path = tmp_path / "config.yaml"
    path.write_text("limit: {onFailure: auto}\n", encoding="utf-8")
    assert not check_settings(path)
