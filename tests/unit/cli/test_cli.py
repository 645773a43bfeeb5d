# SPDX-License-Identifier: Apache-2.0
"""The command group, its options and messages, and `gpuhook inventory`."""

from __future__ import annotations

import errno
import importlib
import json
import os
import subprocess
import sys

import click
import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from gpuhook import __version__
from gpuhook.cdi import spec_file
from gpuhook.cli import COMMANDS, main
from gpuhook.cli.options import command_sections
from gpuhook.errors import GpuhookError
from gpuhook.host.error_text import worded
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.simulated import stub_events, time_slices
from tests.simulated.node import make_node
from tests.unit.other_user import AS_ROOT, other_user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def gpuhook(*arguments: str, **env: str) -> Result:
    """Run the command line in this process with `env` added to the environment."""
    return CliRunner().invoke(main, arguments, prog_name="gpuhook", env=env)


def test_version_has_name_and_number() -> None:
    assert gpuhook("--version").stdout == f"gpuhook, version {__version__}\n"


def test_help_lists_the_commands() -> None:
    """`--help` has a line for each command."""
    shown = gpuhook("--help")
    assert shown.exit_code == 0
    assert " inventory Show the driver" in " ".join(shown.stdout.split())


def test_help_lines_equal_those_of_the_commands() -> None:
    """Lines that are listed without an import equal those of the imported commands."""
    ctx = click.Context(main, info_name="gpuhook")
    lines, listed = click.HelpFormatter(width=200), click.HelpFormatter(width=200)
    main.format_commands(ctx, lines)
    for title, names in command_sections.SECTIONS.items():
        found = [(name, main.get_command(ctx, name)) for name in names]
        rows = [
            (name, one.get_short_help_str(command_sections.LONGEST)) for name, one in found if one
        ]
        command_sections.write(listed, title, rows)
    assert lines.getvalue() == listed.getvalue()


@pytest.mark.parametrize("incomplete", ["", "in", "--q", "x"])
def test_completion_equals_that_of_click(incomplete: str) -> None:
    """Names, options and their help equal those that click finds by importing every command."""
    ctx = click.Context(main, info_name="gpuhook")
    ours = main.shell_complete(ctx, incomplete)
    all_of_them = click.Group.shell_complete(main, ctx, incomplete)
    assert [vars(one) for one in ours] == [vars(one) for one in all_of_them]


def test_help_has_each_command_in_one_section() -> None:
    names = [name for section in command_sections.SECTIONS.values() for name in section]
    assert sorted(names) == main.list_commands(click.Context(main))
    shown = gpuhook("--help").stdout
    assert all(f"\n{title}:\n" in shown for title in command_sections.SECTIONS)


@pytest.mark.parametrize("words", ["device-plugin", "generate-cdi", "inspect", "limits show"])
def test_help_has_each_option_in_one_section(words: str) -> None:
    """Options without a section come first, and no section names an unknown option."""
    command: click.Command = main
    ctx = click.Context(main, info_name="gpuhook")
    for name in words.split():
        assert isinstance(command, click.Group)
        below = command.get_command(ctx, name)
        assert below is not None
        command, ctx = below, click.Context(below, info_name=name, parent=ctx)
    assert isinstance(command, command_sections.SectionedCommand)
    params = [one for one in command.get_params(ctx) if isinstance(one, click.Option)]
    visible = [one for one in params if one.get_help_record(ctx) is not None]
    known = {opt for one in params for opt in one.opts}
    named = {f"--{name}" for names in command.sections.values() for name in names}
    lines = gpuhook(*words.split(), "--help").stdout.splitlines()
    shown = [line for line in lines if line.startswith("  -")]
    assert len(shown) == len(visible)
    shared = (*command_sections.OUTPUT_OPTIONS, *command_sections.NODE_OPTIONS)
    assert named <= known | {f"--{name}" for name in shared}
    titles = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
    ends = [title for title in titles if title not in ("Options", "Other options")]
    assert ends == list(command.sections)
    assert ends[-1] == "Node options"


@pytest.mark.parametrize("group", ["", "cdi", "config", "health", "limits"])
def test_help_cuts_no_sentence(group: str) -> None:
    """The description of a command is its whole first sentence, in lines that fit."""
    shown = gpuhook(*filter(None, [group]), "--help").stdout
    _, *lines = shown.splitlines()
    assert not [line for line in lines if line.endswith("...") or len(line) > 80]


@pytest.mark.parametrize("word", ["-q", "--quiet"])
def test_common_options_may_be_anywhere(word: str) -> None:
    """They may be before or after the command; after `--` a word is an argument."""
    for words in ((word, "health", "show"), ("health", word, "show"), ("health", "show", word)):
        assert gpuhook(*words).stderr == ""
    assert gpuhook("health", "show").stderr != ""
    assert gpuhook("inspect", "--", "--quiet").exit_code == 1
    assert "Traceback" in gpuhook("inventory", "--inventory", "t5", "--debug").stderr


def test_unknown_command_is_a_usage_error() -> None:
    """Exit status 2, and nothing on standard output."""
    failed = gpuhook("inventroy")
    assert failed.exit_code == 2
    assert failed.stdout == ""


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_start_imports_no_command(option: str) -> None:
    """`gpuhook --version` and `--help` import no command, no YAML, no NVML."""
    program = (
        f"import sys; from gpuhook.cli import main; main(['{option}'], standalone_mode="
        "False); print(sorted({'yaml', 'pynvml', 'structlog', 'jsonschema'} & set(sys.modules)),"
        "[name for name in sys.modules if name in sys.argv[1:]])"
    )
    modules = [target.partition(":")[0] for target in COMMANDS.values()]
    shown = subprocess.run(
        [sys.executable, "-c", program, *modules], check=True, capture_output=True, text=True
    )
    assert shown.stdout.splitlines()[-1] == "[] []"


def test_commands_name_their_modules() -> None:
    """The target of each name is the command with that name, in a module of the command line."""
    for name, target in COMMANDS.items():
        module, _, attribute = target.partition(":")
        assert module.startswith("gpuhook.cli.")
        assert getattr(importlib.import_module(module), attribute).name == name


def test_fault_is_two_lines() -> None:
    """A line with code and message, a line with the hint, status 1, no data."""
    failed = gpuhook("inventory", "--inventory", "t5")
    assert failed.exit_code == 2
    assert failed.stdout == ""
    message, hint = failed.stderr.splitlines()
    assert message == "Error GH1500: t5: neither a file nor a known profile"
    assert hint.startswith("hint: set --inventory to a file")
    assert "h100x8, lost-gpu, mi300x-cpx, mi300x8, mixed, radeon, t4" in hint


def test_system_error_has_no_traceback(tmp_path: Path) -> None:
    """A file that cannot be read is named with the reason."""
    failed = gpuhook("inventory", "--inventory", str(tmp_path))
    assert failed.exit_code == 1
    assert failed.stderr.startswith(f"Error GH1590: {tmp_path}: Is a directory\nhint: ")


@AS_ROOT
def test_missing_permission_needs_root(tmp_path: Path) -> None:
    """The hint for a user says so, also that of a spec that the user may not write."""
    denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path))
    tmp_path.chmod(0o755)
    with other_user(lambda: spec_file.document({}, "yaml")):
        hint = worded(denied).hint
        with pytest.raises(GpuhookError) as refused:
            spec_file.write({}, str(tmp_path / "nvidia.yaml"), "yaml")
    assert hint == "become root (sudo), and run the command again"
    assert refused.value.code == "GH1111"
    assert refused.value.hint.startswith("run the command as root (sudo), or choose a path")
    assert worded(denied).hint == "correct that path, and run the command again"


def test_debug_prints_the_traceback() -> None:
    """With --debug the traceback is printed before the message."""
    failed = gpuhook("--debug", "inventory", "--inventory", "t5")
    assert failed.exit_code == 2
    assert "inventory_file.py" in failed.stderr
    assert failed.stderr.splitlines()[-2].startswith("Error GH1500: ")


def test_debug_logs_json_lines() -> None:
    """With --debug and --log-format json each step is a JSON line on standard error."""
    shown = gpuhook("--debug", "--log-format", "json", "inventory", "--inventory", "t4")
    lines = [json.loads(line) for line in shown.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["node read"]
    assert (lines[0]["source"], lines[0]["gpus"]) == ("t4", 1)


def test_inventory_table() -> None:
    """The driver is on top, headers are capitals, and each GPU has a line."""
    driver, empty, header, *rows = gpuhook("inventory", "--inventory", "h100x8").stdout.splitlines()
    assert driver == "Driver 580.95.05, kernel module 580.95.05, CUDA 13.0"
    assert empty == ""
    assert header == header.upper()
    names = "INDEX NAME UUID MINOR BUS-ID ARCH CC MEMORY NUMA MIG MODE SLICE STATE"
    assert " ".join(header.split()) == names
    assert len(rows) == 8
    place = header.index("MINOR")
    assert [row[place] for row in rows] == list("01324576")
    assert all(row[place - 2 : place] == "  " for row in (header, *rows))


def test_inventory_has_compute_mode_and_time_slice(tmp_path: Path) -> None:
    """Table and dump have the values that the driver reports."""
    node = make_node(tmp_path / "node", "t4", real_nodes=False)
    uuid = str(node.node.gpus[0].uuid)
    stub_events.say(node, uuid, "compute_mode 3")
    time_slices.install(node).put(0, "short")
    row = gpuhook("inventory", *node.options).stdout.splitlines()[3].split()
    assert row[-3:] == ["exclusive-process", "short", "ok"]
    shown = gpuhook("inventory", *node.options, "-o", "yaml").stdout
    gpu = dump_file.parse(shown.encode(), "shown").gpus[0]
    assert (gpu.compute_mode, gpu.time_slice) == ("exclusive-process", "short")


def test_driver_without_compute_policy_leaves_the_time_slice_unknown(tmp_path: Path) -> None:
    node = make_node(tmp_path / "node", "t4", real_nodes=False)
    time_slices.install(node).mood("old")
    shown = gpuhook("inventory", *node.options)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[3].split()[-3:] == ["default", "unknown", "ok"]
    assert "time_slice" not in gpuhook("inventory", *node.options, "-o", "json").stdout


def test_inventory_table_marks_a_lost_gpu() -> None:
    """A lost GPU is listed as LOST with the reason, with a warning on standard error."""
    shown = gpuhook("inventory", "--inventory", "lost-gpu")
    states = [line.rpartition("  ")[2] for line in shown.stdout.splitlines()[3:]]
    assert states == ["ok", "ok", "LOST: fallen off the bus or otherwise inaccessible", "ok"]
    assert shown.stderr.startswith("warning: GPU 2 is lost: ")


def test_inventory_table_lists_mig_instances(tmp_path: Path) -> None:
    """They have their own table below that of the GPUs, with the trouble of an instance."""
    shown = gpuhook("inventory", "--inventory", "a100-mig").stdout.split("\n\n")
    assert len(shown) == 3
    header, *rows = (line.split("  ") for line in shown[2].splitlines())
    names = ["MIG", "PROFILE", "UUID", "GI", "CI", "MEMORY", "SMS", "CAPS", "STATE"]
    assert [word.strip() for word in header if word] == names
    assert len(rows) == 11
    (row,) = (line for line in shown[2].splitlines() if line.startswith("1:2 "))
    uuid = dump_file.load("a100-mig").gpus[1].instances[2].uuid
    assert row.split() == [
        "1:2", "1c.2g.10gb", uuid, "3", "1", "9984", "MiB", "14", "300,302", "ok",
    ]  # fmt: skip
    document = yaml.safe_load(dump_file.text(dump_file.load("a100-mig"), "yaml"))
    document["gpus"][0]["instances"][0] |= {"trouble": "no node", "gpu_instance_minor": "unknown"}
    dumped = tmp_path / "broken.json"
    dumped.write_text(json.dumps(document), encoding="utf-8")
    table = gpuhook("inventory", "--inventory", str(dumped)).stdout
    (row,) = (line for line in table.splitlines() if line.startswith("0:0 "))
    assert row.endswith("  unknown,67  BROKEN: no node")


def test_inventory_without_gpus(tmp_path: Path) -> None:
    """The output says that there are none."""
    document = yaml.safe_load(dump_file.text(dump_file.load("t4"), "yaml")) | {"gpus": []}
    dumped = tmp_path / "none.json"
    dumped.write_text(json.dumps(document), encoding="utf-8")
    assert gpuhook("inventory", "--inventory", str(dumped)).stdout.endswith("\nNo GPUs.\n")


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_dump_can_be_given_to_inventory(tmp_path: Path, form: str) -> None:
    """The output of `-o` is accepted by --inventory, and gives the same output."""
    dumped = tmp_path / "node"
    dumped.write_text(gpuhook("inventory", "--inventory", "h100x8", "-o", form).stdout, "utf-8")
    assert dump_file.load(str(dumped)) == dump_file.load("h100x8")
    again = gpuhook("inventory", "--inventory", str(dumped))
    assert again.stdout == gpuhook("inventory", "--inventory", "h100x8").stdout


def test_node_options_have_variables() -> None:
    """Every node option has one variable for all commands; the option takes precedence."""
    assert "Tesla T4" in gpuhook("inventory", GPUHOOK_INVENTORY="t4").stdout
    both = gpuhook("inventory", "--inventory", "h100x8", GPUHOOK_INVENTORY="t4")
    assert "H100" in both.stdout
    shown = gpuhook("inventory", "--help-all").stdout
    for name in ("DRIVER_ROOT", "DEV_ROOT", "HOST_ROOT", "NVML_LIBRARY", "LIBRARY_SEARCH_PATH"):
        assert "GPUHOOK_" + name in " ".join(shown.split())


def test_driver_root_without_a_driver_is_a_fault(tmp_path: Path) -> None:
    """The fault names the searched directories."""
    failed = gpuhook("inventory", f"--driver-root={tmp_path}", f"--host-root={tmp_path}")
    assert failed.exit_code == 1
    assert failed.stderr.startswith("Error GH1200: no libnvidia-ml.so.1 below the driver root")


def test_closed_pipe_is_not_an_error() -> None:
    """`gpuhook inventory | head -0` ends without a traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    program = "from gpuhook.cli import main; main(prog_name='gpuhook')"
    command = [sys.executable, "-c", program, "inventory", "--inventory", "t4"]
    ended = subprocess.run(command, check=False, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert "Traceback" not in ended.stderr


PROGRAM = "from gpuhook.cli import main; main(prog_name='gpuhook')"


def written(target: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with its standard output redirected by a shell."""
    script = f'"$@" {target}'
    command = ["sh", "-c", script, "sh", sys.executable, "-c", PROGRAM, *words]
    return subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    "words",
    [
        ["inventory", "--inventory", "h100x8", "-o", "json"],
        ["inventory", "--inventory", "t4"],
        ["config", "path"],
        ["--version"],
        ["--help"],
        ["attach", "--help"],
    ],
)
@pytest.mark.parametrize(
    ("target", "reason"), [(">/dev/full", "No space left on device"), (">&-", "it is closed")]
)
def test_output_that_cannot_be_written_is_an_error(
    target: str, reason: str, words: list[str]
) -> None:
    """One message with the reason, and status 1."""
    ended = written(target, *words)
    assert ended.returncode == 1
    message, hint = ended.stderr.splitlines()
    assert message == f"Error GH1591: standard output: {reason}"
    assert hint.startswith("hint: check where the output goes")


def test_closed_standard_output_is_ignored_without_output(tmp_path: Path) -> None:
    """A closed standard output is no error for a command that prints nothing to it."""
    file = tmp_path / "settings.yaml"
    file.touch()
    ended = written(">&-", "config", "compile", str(file))
    assert (ended.returncode, "GH1591" in ended.stderr) == (0, False)


def test_closed_standard_error_is_ignored() -> None:
    """The command works; its messages are lost."""
    shown = [sys.executable, "-c", PROGRAM, "ps"]
    command = ["sh", "-c", '"$@" 2>&-', "sh", *shown]
    ended = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    plain = subprocess.run(shown, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (plain.returncode, plain.stdout)


def test_closing_pipe_prints_no_message() -> None:
    """A closed pipe is not reported."""
    ended = written("| true", "inventory", "--inventory", "t4")
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("docter", "doctor"),
        ("configure dockr", "docker"),
        ("configure undo dockr", "docker"),
        ("setup --engine podmn", "podman"),
    ],
)
def test_misspelt_word_has_a_suggestion(words: str, meant: str) -> None:
    result = gpuhook(*words.split())
    assert result.exit_code == 2
    assert f" Did you mean {meant!r}?" in result.stderr
    assert "Did you mean" not in gpuhook(*words.split()[:-1], "qqqq").stderr


@pytest.mark.parametrize(
    ("words", "incomplete", "told"),
    [
        (["doctor", "--checks"], "driver.mod", ["driver.module"]),
        (["doctor", "--checks"], "driver,devices.uvm-", ["driver,devices.uvm-tools"]),
        (["map", "--inventory"], "h1", ["h100x8"]),
        (["map", "--inventory"], "node", ["node"]),
    ],
)
def test_completion_has_values_of_options(
    words: list[str], incomplete: str, told: list[str]
) -> None:
    completed = ShellComplete(main, {}, "gpuhook", "_GPUHOOK_COMPLETE")
    assert [one.value for one in completed.get_completions(words, incomplete)] == told


@pytest.mark.parametrize(
    "words",
    [
        "explain WHAT",
        "map --svg",
        "map --html",
        "map --inventory",
        "cdi validate PATH",
        "cdi resolve NAME",
        "cdi resolve x --oci",
        "cdi show NAME",
        "cdi list --spec-dir",
        "cdi transform driver --input",
        "cdi transform driver --output",
        "config import FILE",
        "config import x --output",
        "config validate FILE",
        "generate-cdi --output",
        "generate-cdi --vendor",
        "generate-cdi --class",
    ],
)
def test_empty_name_is_wrong_usage(words: str) -> None:
    """The message names the argument or the option."""
    *given, last = words.split()
    done = gpuhook(*given, *([last] if last.startswith("-") else []), "")
    assert done.exit_code == 2
    assert last in done.stderr.replace("-NAME", "NAME")
    assert done.stderr.endswith(": it is empty\n")
