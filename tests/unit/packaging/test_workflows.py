# SPDX-License-Identifier: Apache-2.0
"""The workflows and forms of GitHub: their schemas, their YAML, their shell, what they call."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted(one for one in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
EXPRESSION = re.compile(r"\$\{\{.*?\}\}")


def schema_errors(schema: str, *paths: Path) -> str:
    """Return what check-jsonschema reports; its schemas are part of it."""
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        schema,
        *map(str, paths),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def runs() -> Iterator[tuple[str, str]]:
    """Yield job and script of each `run:` block."""
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text("utf-8"))["jobs"].items():
            for step in job["steps"]:
                if "run" in step:
                    yield f"{path.stem}-{name}", step["run"]


RUNS = list(runs())


def test_files_have_the_forms_of_github(tmp_path: Path) -> None:
    assert len(WORKFLOWS) >= 3
    assert schema_errors("vendor.github-workflows", *WORKFLOWS) == ""
    assert schema_errors("vendor.dependabot", ROOT / ".github/dependabot.yml") == ""
    forms = [path for path in FORMS if path.stem != "config"]
    assert schema_errors("vendor.github-issue-forms", *forms) == ""
    config = ROOT / ".github/ISSUE_TEMPLATE/config.yml"
    assert schema_errors("vendor.github-issue-config", config) == ""
    broken = tmp_path / "ci.yml"
    broken.write_text("on: push\njobs: {a: {steps: []}}\n")
    assert "runs-on" in schema_errors("vendor.github-workflows", broken)


def test_bug_form_asks_for_a_support_bundle() -> None:
    (form,) = [path for path in FORMS if path.stem == "bug"]
    assert {"gpuhook support-bundle", "gpuhook version"} <= set(
        re.findall(r"gpuhook [a-z-]+", form.read_text("utf-8"))
    )


def test_yaml_is_clean() -> None:
    rules = "{extends: default, rules: {line-length: {max: 120}, document-start: disable, "
    rules += "truthy: {check-keys: false}, braces: {max-spaces-inside: 1}, comments: disable}}"
    files = [*WORKFLOWS, *FORMS, ROOT / ".github/dependabot.yml", ROOT / ".pre-commit-config.yaml"]
    command = [
        sys.executable,
        "-m",
        "yamllint",
        "--strict",
        "--config-data",
        rules,
        *map(str, files),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
@pytest.mark.parametrize(("job", "script"), RUNS)
def test_scripts_pass_shellcheck(job: str, script: str) -> None:
    """An expression of GitHub would be code: values come by variables."""
    assert not EXPRESSION.search(script), job
    command = ["shellcheck", "--shell", "bash", "-"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_called_targets_and_files_exist() -> None:
    scripts = "\n".join(script for _, script in RUNS)
    called = {
        word
        for line in re.findall(r"^\s*(?:sudo )?make ([^\n;&|]+)", scripts, re.MULTILINE)
        for word in targets(line)
    }
    called |= {"test-all", "test-engines"}  # a matrix of nightly.yml
    assert called <= TARGETS
    for path in re.findall(r"\bpackaging/[\w./-]+", scripts):
        assert (ROOT / path).exists(), path


def targets(line: str) -> list[str]:
    """Return the targets of a call of make, without options and variables."""
    words = re.sub(r'\w+=("[^"]*"|\S+)', "", line).split()
    return [word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)]


def all_workflows() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in WORKFLOWS:
        yield path.name, yaml.load(path.read_text("utf-8"), Loader=yaml.BaseLoader)


def test_jobs_have_the_least_rights() -> None:
    """No right by default; writes only where something is published; no job without an end."""
    for name, workflow in all_workflows():
        assert workflow["permissions"] == {}, name
        assert workflow["concurrency"]["group"]
        assert workflow["defaults"]["run"]["shell"] == "bash"  # with pipefail
        assert "pull_request_target" not in workflow["on"]
        for job in workflow["jobs"].values():
            assert int(job["timeout-minutes"]) <= 180
            writes = [right for right, value in job["permissions"].items() if value == "write"]
            assert not writes or name in ("docs.yml", "release.yml")


def test_actions_are_pinned() -> None:
    """An action is a commit, with the version in a comment; one action has one commit."""
    lines = [
        line.strip(" -") for path in WORKFLOWS for line in path.read_text("utf-8").splitlines()
    ]
    used = {line for line in lines if line.startswith("uses:")}
    assert len(used) > 10
    pins = [re.fullmatch(r"uses: ([\w/-]+)@[0-9a-f]{40} # v\d+\.\d+\.\d+", line) for line in used]
    names = [pin[1] for pin in pins if pin]
    assert len(names) == len(used), used
    assert len(set(names)) == len(names)


def test_jobs_with_an_identity_run_no_build() -> None:
    """A job that may sign or publish runs no `make` but the changelog's, which needs no package."""
    for name, workflow in all_workflows():
        for job in workflow["jobs"].values():
            if "id-token" in job["permissions"]:
                scripts = "\n".join(step.get("run", "") for step in job["steps"])
                called = set(re.findall(r"make ([^\n>]+)", scripts))
                assert {one.strip() for one in called} <= {"--silent release-notes"}, name


def test_release_publishes_on_pypi_last() -> None:
    """What cannot be published twice waits for all that can fail."""
    jobs = {name: workflow["jobs"] for name, workflow in all_workflows()}["release.yml"]
    assert set(jobs["pypi"]["needs"]) == jobs.keys() - {"check", "pypi", "notes"}
    assert {jobs[name]["needs"] for name in ("wheel", "packages", "image")} == {"check"}
    (version,) = re.findall(r"gpuhook/gpuhook:(.*)$", image_tags(jobs["image"]))
    assert version == "${{ needs.check.outputs.version }}"


def image_tags(job: dict[str, Any]) -> str:
    """Return the tags of the image: the chart's appVersion has no `v`."""
    (tags,) = [step["with"]["tags"] for step in job["steps"] if "tags" in step.get("with", {})]
    return str(tags)
