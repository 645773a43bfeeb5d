# SPDX-License-Identifier: Apache-2.0
"""The rules of all commands: help, the options of files and formats, wrong usage."""

from __future__ import annotations

import json
import os

import click
import pytest
from click.testing import CliRunner, Result

from gpuhook.cli import main
from gpuhook.cli.options import command_sections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def gpuhook(*arguments: str, **env: str) -> Result:
    """Run the command line in this process with `env` added to the environment."""
    return CliRunner().invoke(main, arguments, prog_name="gpuhook", env=env)


def commands(ctx: click.Context) -> Iterator[tuple[tuple[str, ...], click.Context]]:
    """Yield the words and the context of each command that --help lists."""
    yield tuple(ctx.command_path.split()[1:]), ctx
    for name, command in command_sections.listed_commands(ctx.command, ctx):
        yield from commands(click.Context(command, info_name=name, parent=ctx))


ALL = list(commands(click.Context(main, info_name="gpuhook", auto_envvar_prefix="GPUHOOK")))


@pytest.mark.parametrize(
    ("words", "ctx"), ALL, ids=lambda one: " ".join(one) if isinstance(one, tuple) else ""
)
def test_help_of_every_command(words: tuple[str, ...], ctx: click.Context) -> None:
    """-h, --help and `gpuhook help` print the same; each option has a sentence."""
    shown = gpuhook(*words, "-h")
    assert shown.exit_code == 0
    assert shown.stdout == gpuhook(*words, "--help").stdout == gpuhook("help", *words).stdout
    assert "[env var: " not in " ".join(shown.stdout.split())
    for option in ctx.command.get_params(ctx):
        assert not isinstance(option, click.Option) or option.hidden or option.help
    if "--help-all" in shown.stdout:
        assert "[env var: " in " ".join(gpuhook(*words, "--help-all").stdout.split())


@pytest.mark.parametrize(
    "words",
    [
        ("generate-cdi", "--inventory", "t4"),
        ("cdi", "generate", "--inventory", "t4"),
        ("cdi", "transform", "root", "--from", "/", "--to", "/x", "--input", "SPEC"),
        ("cdi", "transform", "driver", "--target-driver-root", "/x", "--input", "SPEC"),
        ("config", "import", "TOML"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("form", ["two words", "one word"])
def test_former_option_of_files(words: tuple[str, ...], form: str, tmp_path: Path) -> None:
    """--output FILE writes the file of --output-file FILE, and names the new option."""
    (tmp_path / "SPEC").write_text(gpuhook("generate-cdi", "--inventory", "t4").stdout)
    (tmp_path / "TOML").write_text("disable-require = true\n")
    called = [str(tmp_path / word) if word in ("SPEC", "TOML") else word for word in words]
    new, old = tmp_path / "new.yaml", tmp_path / "old.yaml"
    assert gpuhook(*called, "--output-file", str(new)).exit_code == 0
    option = [f"--output={old}"] if form == "one word" else ["--output", str(old)]
    done = gpuhook(*called, *option)
    assert done.exit_code == 0
    assert f"use --output-file {old}" in done.stderr
    assert old.read_text() == new.read_text()
    assert gpuhook("-q", *called, *option).stderr == ""


def test_format_of_a_spec() -> None:
    """-o, --output and --format are the format; another word of -o is wrong usage."""
    printed = gpuhook("generate-cdi", "--inventory", "t4", "-o", "json").stdout
    assert json.loads(printed)["kind"] == "nvidia.com/gpu"
    for option in (["--output=json"], ["--format", "json"]):
        assert gpuhook("generate-cdi", "--inventory", "t4", *option).stdout == printed
    assert gpuhook("generate-cdi", "--inventory", "t4", "-o", "x.yaml").exit_code == 2


def test_version_is_that_of_the_option() -> None:
    found = json.loads(gpuhook("version", "-o", "json").stdout)
    assert gpuhook("--version").stdout.split()[-1] == found["version"]
    assert gpuhook("version").stdout.startswith(f"gpuhook {found['version']}\n")


def test_help_of_an_unknown_command() -> None:
    assert gpuhook("help", "cdi", "lst").exit_code == 2
    assert "'cdi lst'" in gpuhook("help", "cdi", "lst").stderr
    assert gpuhook("help", "doctor", "x").exit_code == 2


# Its variables of NVIDIA's chart may be empty, as its options may.
_EMPTY_IS_ABSENT = (("device-plugin",), ("labels",), ("dra", "run"))
_MISSING = "/nowhere/file"


def wrong_values() -> Iterator[tuple[str, ...]]:
    """Yield command lines with one option whose value no command accepts."""
    for words, ctx in ALL:
        options = [one for one in ctx.command.get_params(ctx) if isinstance(one, click.Option)]
        arguments = [one for one in ctx.command.params if isinstance(one, click.Argument)]
        rest = [
            "docker" if words[-1:] == ("undo",) else "x"
            for one in arguments
            if one.required or one.name == "container"
        ]
        if words == ("completion",):
            rest = ["bash"]
        for option in options:
            if option.is_flag or option.hidden or isinstance(ctx.command, click.Group):
                continue
            others = [
                f"{max(one.opts, key=len)}=/" for one in options if one.required and one != option
            ]
            for value in wrong_values_of(option, words):
                yield (*words, f"{max(option.opts, key=len)}={value}", *others, *rest)


def wrong_values_of(option: click.Option, words: tuple[str, ...]) -> Iterator[str]:
    """Yield values that an option does not accept, by its type."""
    if words not in _EMPTY_IS_ABSENT:
        yield ""
    if isinstance(option.type, click.Choice):
        yield "no-such-word"
    if isinstance(option.type, (click.types.IntParamType, click.types.FloatParamType)):
        yield from ("x", "-1", "1e99")
    if isinstance(option.type, click.Path):
        yield from [_MISSING] * option.type.exists
        yield from ["/"] * (not option.type.dir_okay)
        yield from ["/etc/passwd"] * (not option.type.file_okay)


@pytest.mark.parametrize("words", list(wrong_values()), ids=" ".join)
def test_wrong_value_is_wrong_usage(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is 2, the error names the option, standard output is empty; no file is written."""
    monkeypatch.chdir(tmp_path)
    done = gpuhook(
        *words, GPUHOOK_STATE_DIR=str(tmp_path), GPUHOOK_CONFIG=str(tmp_path / "none.yaml")
    )
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    assert any(word.partition("=")[0] in done.stderr for word in words if word.startswith("--"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("device-plugin --mig-strategy foo", "GH1803"),
        ("labels --mig-strategy foo --inventory t4", "GH1803"),
        ("inventory --inventory no-such-profile", "GH1500"),
        ("generate-cdi --inventory t4 --output-file x.yml", "GH1514"),
        ("generate-cdi --inventory t4 --vendor nvidia_com_", "GH1510"),
        ("generate-cdi --inventory t4 --hook-path relative", "GH1515"),
        ("doctor --fix --root /", "GH1903"),
    ],
)
def test_wrong_value_with_a_code(words: str, code: str) -> None:
    done = gpuhook(*words.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error {code}: ")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("limits list", "limits show"),
        ("limits ls", "limits show"),
        ("health get", "health show"),
        ("configure list", "configure show"),
        ("config ls", "config show"),
        ("cdi ls", "cdi list"),
    ],
)
def test_name_by_habit(words: str, meant: str) -> None:
    """It is the command that lists, and --help does not list it."""
    shown, expected = gpuhook(*words.split(), "-h"), gpuhook(*meant.split(), "-h")
    assert shown.exit_code == 0
    assert shown.stdout.replace(words, meant).split() == expected.stdout.split()
    group, alias = words.split()
    assert f"\n  {alias} " not in gpuhook(group, "-h").stdout or group == "cdi"
