# SPDX-License-Identifier: Apache-2.0
"""gpuhook-runtime: the output of its program, and its launcher in each shell."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import static_program

from gpuhook.entry import cold_command, runtime
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import settings

CHECKOUT = Path(__file__).parents[3]
SHELLS = [
    [path, *arguments]
    for name, arguments in (("dash", []), ("busybox", ["sh"]), ("bash", ["--posix"]))
    if (path := shutil.which(name))
]
LAUNCH = ["gpuhook-launch"]  # built by built_launch()
if shutil.which("gcc"):
    SHELLS.append(LAUNCH)
MAIN = "import sys; sys.path[:0] = [{!r}]; from gpuhook.entry.runtime import main; main()"
GPU = {"process": {"env": ["NVIDIA_VISIBLE_DEVICES=all"]}}


@cache
def built_launch() -> str:
    """Return the path of the program that runs the launcher in an installation."""
    path = Path(mkdtemp(prefix="gpuhook-launch-"))
    atexit.register(shutil.rmtree, path)
    static_program.build(static_program.LAUNCH, str(path / "launch"))
    return str(path / "launch")


class Place:
    """A separate node: state, settings, runtimes that print their arguments."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.log = path / "log"
        self.bundle = path / "bundle"
        self.bundle.mkdir()
        self.env = {
            "PATH": f"{path}/bin:/usr/bin:/bin",
            "GPUHOOK_STATE_DIR": str(path / "state"),
            "GPUHOOK_HOST_ROOT": str(path),  # without a loaded driver
            "GPUHOOK_CONFIG": str(self.config),
        }
        for name in ("runc", "crun"):
            self.program(name, f'echo {name} "$@"')

    def program(self, name: str, text: str) -> str:
        path = self.path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def write(self, spec: object) -> None:
        text = spec if isinstance(spec, str) else json.dumps(spec)
        (self.bundle / "config.json").write_text(text)

    def call(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Call the program as the launcher does."""
        program = MAIN.format(env.pop("CHECKOUT", str(CHECKOUT)))
        command = [sys.executable, "-IS", "-c", program, f"{self.path}/launcher"]
        return self.run([*command, "--log", str(self.log), *words], env)

    def create(self, **env: str) -> subprocess.CompletedProcess[str]:
        return self.call("create", "--bundle", str(self.bundle), "id", **env)

    def launch(
        self,
        shell: list[str],
        *words: str,
        python: str = "/bin/false",
        library: str = "/nowhere",
        **env: str,
    ) -> subprocess.CompletedProcess[str]:
        """Call the launcher in `shell`, with an interpreter that fails unless another one
        is named.
        """
        text = (CHECKOUT / "packaging/gpuhook-runtime.sh").read_text()
        launcher = self.path / "launcher"
        for word, value in {"PYTHON": python, "LIB": library, "VERSION": "1.2.3"}.items():
            text = text.replace(f"@{word}@", value)
        launcher.write_text(text)
        low = {
            "GPUHOOK_LOW_LEVEL_RUNTIME": f"{self.path}/bin/runc"
        }  # a runtime other than the recorded one
        shell = [built_launch()] if shell == LAUNCH else shell
        return self.run([*shell, str(launcher), *words], {**low, **env})

    def run(self, command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env={**self.env, **env},
            cwd=self.path,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_output_is_the_path_of_the_runtime(place: Place) -> None:
    """It is the first existing runtime, and is recorded for the launcher."""
    done = place.call("state", "x")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{place.path}/bin/runc\n", "")
    record = place.path / "state/low-level-runtime"
    assert record.read_text() == done.stdout
    assert record.stat().st_mode & 0o7777 == 0o644
    assert not place.log.exists()


def test_runtime_of_the_environment(place: Place) -> None:
    """A runtime in the engine's environment applies to that call only."""
    done = place.call("state", "x", GPUHOOK_LOW_LEVEL_RUNTIME="crun")
    assert done.stdout == f"{place.path}/bin/crun\n"
    assert not (place.path / "state").exists()


@pytest.mark.parametrize("kind", ["directory", "huge", "no directory"])
def test_unwritable_record_is_ignored(kind: str, place: Place) -> None:
    """A broken state directory stops no container."""
    if kind == "no directory":
        (place.path / "state").write_text("")
    else:
        (place.path / "state").mkdir()
        record = place.path / "state/low-level-runtime"
        record.mkdir() if kind == "directory" else record.write_text("x" * 10000)
    place.write({})
    for done in (place.call("state", "x"), place.create()):
        assert (done.returncode, done.stdout) == (0, f"{place.path}/bin/runc\n")
        assert done.stderr == ""


def spoilt(place: Place, kind: str) -> None:
    """Make the settings unusable in one of many ways."""
    if kind == "loop":
        place.config.symlink_to(place.config)
    elif kind == "no directory":
        (place.path / "file").write_text("")
        place.env["GPUHOOK_CONFIG"] = str(place.path / "file/config.yaml")
    elif kind == "too long":
        place.env["GPUHOOK_CONFIG"] = "/" + "x" * 300
    else:
        place.config.write_text("runtime: {}\n")
        programs = {"compiler fails": "exit 1", "compiler does nothing": "exit 0"}
        place.program("gpuhook", programs.get(kind, ""))
        if kind == "compiler is no program":
            (place.path / "bin/gpuhook").write_bytes(b"\x7fELF")
        shutil.copy(place.path / "bin/gpuhook", place.path / "gpuhook")


SPOILT = [
    "loop",
    "no directory",
    "too long",
    "compiler fails",
    "compiler does nothing",
    "compiler is no program",
]


@pytest.mark.parametrize("kind", SPOILT)
def test_broken_settings_refuse_only_requests_for_gpus(kind: str, place: Place) -> None:
    """A container that requests no GPU starts."""
    spoilt(place, kind)
    place.write({"process": {"env": ["A=1"]}})
    done = place.create()
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{place.path}/bin/runc\n", "")
    place.write({"process": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}})
    assert place.create().returncode == 0
    place.write(GPU)
    done = place.create()
    assert (done.returncode, done.stdout) == (runtime.REFUSED, "")
    assert "error GH1" in done.stderr
    assert place.log.read_text().count("\n") == 1


def test_broken_settings_keep_the_recorded_runtime(place: Place) -> None:
    """If the containers of a node are crun's, an error in the settings does not change that."""
    place.call("state", "x")
    record = place.path / "state/low-level-runtime"
    record.write_text(f"{place.path}/bin/crun\n")
    spoilt(place, "compiler fails")
    assert place.call("state", "x").stdout == f"{place.path}/bin/crun\n"
    assert record.read_text() == f"{place.path}/bin/crun\n"
    os.unlink(place.path / "bin/crun")
    assert place.call("state", "x").stdout == f"{place.path}/bin/runc\n"


@pytest.mark.parametrize(
    "spec",
    [
        '{"process":{"env":5},"a":"NVIDIA_VISIBLE_DEVICES"}',
        '{"process":{"env":{"NVIDIA_VISIBLE_DEVICES=all":1}}}',
        '{"mounts":true,"a":"nvidia-container-devices"}',
        '{"hooks":{"createContainer":5},"a":"gpuhook-hook"}',
        '{"annotations":7,"a":"io.gpuhook.record"}',
        '{"process":null,"a":"NVIDIA_VISIBLE_DEVICES","linux":false}',
    ],
)
def test_malformed_config_without_a_request_is_passed_through(spec: str, place: Place) -> None:
    """The runtime reports what is wrong with it."""
    place.write(spec)
    done = place.create()
    assert (done.returncode, done.stderr) == (0, "")
    assert (place.bundle / "config.json").read_text() == spec


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        (GPU, runtime.UNDECIDED),
        ({"annotations": {"cdi.k8s.io/x": "nvidia.com/gpu=0"}}, runtime.REFUSED),
        ({}, 0),
    ],
)
def test_internal_error_is_one_line(spec: dict[str, object], status: int, place: Place) -> None:
    """It has the place of the exception; the launcher continues if it can."""
    shutil.copytree(CHECKOUT / "gpuhook", place.path / "broken/gpuhook")
    broken = place.path / "broken/gpuhook/request/policy.py"
    broken.write_text("def judge(sources, spec, settings):\n    return {}['oops']\n")
    place.write(spec)
    done = place.create(CHECKOUT=str(place.path / "broken"))
    assert done.returncode == status
    if status:
        assert done.stdout == ""
        line = f"error GH1491: internal error of gpuhook, KeyError at {broken}:2: 'oops'"
        assert line in done.stderr
        assert "GH1491" in place.log.read_text()


def test_missing_driver(place: Place) -> None:
    """A container whose image sets `all` starts, byte for byte, with a warning."""
    place.write(GPU)
    done = place.create()
    assert (done.returncode, done.stderr) == (0, "")
    assert "GH1008" in place.log.read_text()
    assert json.loads((place.bundle / "config.json").read_text()) == GPU


def test_restart_after_the_driver_is_removed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle that had GPUs starts without them, and gets its first config.json again."""
    version = place.path / "sys/module/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("550.54.15\n")
    nodes = {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/null"}]}
    spec = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "all", "containerEdits": nodes}],
    }
    (place.path / "cdi").mkdir()
    (place.path / "cdi/nvidia.json").write_text(json.dumps(spec))
    place.config.write_text("compiled beforehand")
    monkeypatch.setenv("GPUHOOK_STATE_DIR", place.env["GPUHOOK_STATE_DIR"])
    document: dict[str, object] = {"cdi": {"specDirs": [str(place.path / "cdi")]}}
    settings.store(str(place.config), place.config.stat(), document)
    place.write(GPU)
    assert place.create().returncode == 0
    config = place.bundle / "config.json"
    assert [d["path"] for d in json.loads(config.read_text())["linux"]["devices"]] == [
        "/dev/nvidia0"
    ]
    version.unlink()
    done = place.create()
    assert (done.returncode, done.stderr) == (0, "")
    assert "GH1008" in place.log.read_text()
    found = json.loads(config.read_text())
    assert found["process"] == GPU["process"]
    assert found["linux"]["devices"] == found["linux"]["resources"]["devices"] == []
    assert "annotations" not in found


def test_missing_config_json_is_a_fault(place: Place) -> None:
    """A bundle without config.json is refused with its path."""
    done = place.create()
    assert done.returncode == runtime.REFUSED
    assert f"error GH1300: {place.bundle}/config.json" in done.stderr


def test_missing_runtime_is_a_fault(place: Place) -> None:
    """The error has the names and the searched directories."""
    done = place.call("state", "x", GPUHOOK_LOW_LEVEL_RUNTIME="nothing-like-it")
    assert done.returncode == runtime.REFUSED
    assert "GH1401" in done.stderr
    assert "nothing-like-it" in done.stderr
    assert f"{place.path}/bin" in done.stderr


def test_search_of_the_runtime(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one that is a program and is not gpuhook applies; names are searched in PATH."""
    monkeypatch.setenv("PATH", f"{place.path}/bin::relative")
    monkeypatch.delenv("GPUHOOK_LOW_LEVEL_RUNTIME", raising=False)
    ours = place.program("gpuhook-runtime", "")
    (place.path / "bin/our-link").symlink_to("gpuhook-runtime")
    (place.path / "bin/directory").mkdir()
    (place.path / "bin/data").write_text("")
    names = ["missing", "directory", "data", "our-link", ours, "/nowhere/runc", "crun", "runc"]
    assert runtime.find_low_level(names, ours) == f"{place.path}/bin/crun"
    assert runtime.find_low_level([f"{place.path}/bin/../bin/runc"], ours) == (
        f"{place.path}/bin/runc"
    )
    with pytest.raises(GpuhookError) as caught:
        runtime.find_low_level(names[:5], ours)
    assert caught.value.code == "GH1401"


def test_cold_command_is_that_of_the_installation(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gpuhook` next to the launcher runs, without variables that load foreign code."""
    program = 'echo talk; env >"$0.env"; echo "$@" >"$0.args"'
    (place.path / "bin/launcher").parent.mkdir(exist_ok=True)
    (place.path / "bin/launcher").write_text("")
    beside = place.program("gpuhook", program)
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME"):
        monkeypatch.setenv(name, "/evil")
    monkeypatch.setenv("KEPT", "1")
    (place.path / "link").symlink_to("bin/launcher")
    cold_command.Compiler(f"{place.path}/link").compile_spec("/a b.yaml")
    seen = Path(beside + ".env").read_text()
    assert "/evil" not in seen
    assert "KEPT=1\n" in seen
    assert Path(beside + ".args").read_text() == "cdi compile /a b.yaml\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("exit 3", "it exited with status 3"),
        ("kill -9 $$", "it was killed by signal 9"),
        ("echo first; echo no yaml >&2; exit 1", "no yaml"),
        ("echo 'Error GH1529: bad' >&2; echo hint >&2; exit 1", "GH1529: bad"),
    ],
)
def test_failing_cold_command_is_a_fault(
    text: str, reason: str, place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    """GH1403 has the file, the command and the reason; the container's streams get nothing."""
    place.program("gpuhook", text)
    with pytest.raises(GpuhookError) as caught:
        cold_command.Compiler(f"{place.path}/bin/launcher").compile_settings("/c.yaml")
    assert caught.value.code == "GH1403"
    command = f"`{place.path}/bin/gpuhook config compile /c.yaml`"
    assert caught.value.message.endswith(f"{command} failed: {reason}")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: Path(shell[0]).name)
class TestLauncher:
    """The launcher alone, with an interpreter that does not start."""

    BUNDLE = ("--bundle", "--bundle=", "-b", "-b=", "-bundle=", "-b/")

    @pytest.mark.parametrize("option", BUNDLE)
    def test_container_with_a_request_is_refused(
        self, option: str, shell: list[str], place: Place
    ) -> None:
        """However the bundle is named, with one message."""
        place.write(GPU)
        done = place.launch(shell, "create", *self._bundle(option, place), "id")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("gpuhook-runtime: error GH1404: /bin/false ")
        assert str(place.bundle) in done.stderr

    @pytest.mark.parametrize("option", BUNDLE)
    @pytest.mark.parametrize(
        "value", ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=", ""]
    )
    def test_container_without_a_request_starts(
        self, value: str, option: str, shell: list[str], place: Place
    ) -> None:
        """The runtime gets its arguments unchanged."""
        place.write({"process": {"env": [value]}})
        words = ["--log", "a b*", "create", *self._bundle(option, place), "--", "", "$id"]
        done = place.launch(shell, *words)
        assert (done.returncode, done.stdout) == (0, " ".join(["runc", *words]) + "\n")

    @pytest.mark.parametrize(
        "spec",
        [
            '{"env":["NVIDIA_VISIBLE_DEVICES=vendor.com/gpu=0"]}',
            '{\n  "env": [\n    "NVIDIA_VISIBLE_DEVICES=0"]}',
            '{"destination":"/var/run/nvidia-container-devices/0"}',
            '{"annotations":{"cdi.k8s.io/x":"nvidia.com/gpu=0"}}',
            '{"args":["gpuhook-hook","apply"]}',
            '{"io.gpuhook.record":{}}',
        ],
    )
    def test_requests_other_than_variables_are_refused(
        self, spec: str, shell: list[str], place: Place
    ) -> None:
        """A variable is not the only way to request a GPU."""
        place.write(spec)
        done = place.launch(shell, "run", "--bundle", str(place.bundle), "id")
        assert (done.returncode, done.stdout) == (1, "")

    @pytest.mark.parametrize("path", ["", "/nowhere"])
    def test_request_without_a_path_variable_is_refused(
        self, path: str, shell: list[str], place: Place
    ) -> None:
        """An environment without PATH lets no container start without its GPU."""
        words = ["create", "--bundle", str(place.bundle), "id"]
        place.write(GPU)
        done = place.launch(shell, *words, PATH=path)
        assert done.returncode == 1
        place.write({})
        done = place.launch(shell, *words, PATH=path)
        assert (done.returncode, done.stdout) == (0, f"runc create --bundle {place.bundle} id\n")

    def test_other_commands_are_passed_through(self, shell: list[str], place: Place) -> None:
        """They do not start Python, and the exit status is the runtime's."""
        low = place.program("low", 'echo "$#" "$@"; exit 7')
        words = ["exec", "--env", "A=b  c", "id", "sh", "-c", 'echo "$0" \\ *', ""]
        done = place.launch(shell, *words, python="/nowhere", GPUHOOK_LOW_LEVEL_RUNTIME=low)
        assert (done.returncode, done.stderr) == (7, "")
        assert done.stdout == " ".join([str(len(words)), *words]) + "\n"

    @pytest.mark.parametrize("words", [["state", "id"], ["create", "--bundle", "bundle", "id"]])
    def test_runtime_of_the_working_directory_is_not_run(
        self, words: list[str], shell: list[str], place: Place
    ) -> None:
        """A name in the engine's environment is searched in PATH, also if Python fails."""
        shutil.copy(place.program("low", "echo low"), place.path / "crun")
        place.write({})
        python = place.program("python", f"echo {place.path}/bin/crun")
        for interpreter in ("/bin/false", python):
            env = {"python": interpreter, "GPUHOOK_LOW_LEVEL_RUNTIME": "crun"}
            done = place.launch(shell, *words, **env)
            assert (done.returncode, done.stdout) == (0, f"crun {' '.join(words)}\n")

    @pytest.mark.parametrize(
        "words", [["--version"], ["-v"], ["--root", "/r", "--log=x", "--log-format", "json", "-V"]]
    )
    def test_version(self, words: list[str], shell: list[str], place: Place) -> None:
        """The runtime's lines, then gpuhook's, without a start of Python."""
        low = place.program("low", 'echo "runc version 1.1.5"; echo "args: $*"')
        done = place.launch(shell, *words, python="/nowhere", GPUHOOK_LOW_LEVEL_RUNTIME=low)
        printed = f"runc version 1.1.5\nargs: {' '.join(words)}\ngpuhook: 1.2.3\n"
        assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")

    @pytest.mark.parametrize(
        "words",
        [
            ["exec", "id", "app", "--version"],
            ["--debug", "exec", "id", "app", "-v"],
            ["exec", "id", "app", "", "--version"],
        ],
    )
    def test_version_of_a_program_in_the_container(
        self, words: list[str], shell: list[str], place: Place
    ) -> None:
        """The option of another command is not the runtime's."""
        done = place.launch(shell, *words, python="/nowhere")
        assert (done.returncode, done.stdout) == (0, " ".join(["runc", *words]) + "\n")

    def test_version_with_a_broken_runtime(self, shell: list[str], place: Place) -> None:
        """The error names it, the status is its own, and gpuhook's version is printed."""
        low = place.program("low", "echo 'no library' >&2; exit 127")
        done = place.launch(shell, "--version", GPUHOOK_LOW_LEVEL_RUNTIME=low)
        assert (done.returncode, done.stdout) == (127, "gpuhook: 1.2.3\n")
        first, second = done.stderr.splitlines()
        assert first == "no library"
        assert second.startswith(
            f"gpuhook-runtime: error GH1405: {low} --version failed with status 127: "
        )

    def test_version_without_a_runtime(self, shell: list[str], place: Place) -> None:
        """Python reports the missing runtime."""
        python = place.program("python", "echo 'error GH1401' >&2; exit 3")
        low = f"{place.path}/none"
        done = place.launch(shell, "--version", python=python, GPUHOOK_LOW_LEVEL_RUNTIME=low)
        assert (done.returncode, done.stdout) == (1, "gpuhook: 1.2.3\n")
        assert done.stderr == "error GH1401\n"

    def test_printed_runtime_is_run(self, shell: list[str], place: Place) -> None:
        """Also from a path with spaces; a refusal is status 1."""
        low = place.program("a low one", 'echo low "$@"')
        python = place.program("python", f'echo "{low}"')
        done = place.launch(shell, "create", "x  y", python=python)
        assert (done.returncode, done.stdout) == (0, "low create x  y\n")
        python = place.program("python", "echo because >&2; exit 3")
        done = place.launch(shell, "create", "id", python=python)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "because\n")

    def test_log_of_the_engine(self, shell: list[str], place: Place) -> None:
        """It is JSON, and stderr is one line, whatever characters the message has."""
        module = place.path / "gpuhook_bundle.py"
        module.write_text("raise ImportError('a\\tb\\r\\n\\x1b[2J\"\\\\c')\n")
        place.write(GPU)
        words = ["--log", str(place.log), "create", "--bundle", str(place.bundle), "id"]
        done = place.launch(shell, *words, python=sys.executable, library=str(place.path))
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.isprintable()
        assert json.loads(place.log.read_text())["msg"] == line

    def _bundle(self, option: str, place: Place) -> list[str]:
        path = str(place.bundle)
        if option == "-b/":
            return ["-b" + path]
        return [option + path] if option.endswith("=") else [option, path]


@pytest.mark.skipif(LAUNCH not in SHELLS, reason="no compiler")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('echo "$P/bin/runc"', (0, "runc create a  b\n", "")),
        ("echo because >&2; exit 3", (1, "", "because\n")),
        ("exit 1", (7, "", "1:\n")),
        ("echo reason; exit 4", (7, "", "4:reason\n")),
        ("kill -9 $$", (7, "", "137:\n")),
        ("echo runc", (7, "", "0:runc\n")),
    ],
)
def test_launch_program_calls_python_once(
    answer: str, expected: tuple[int, str, str], place: Place
) -> None:
    """The script does not run after a usual answer; after another one, it gets that answer."""
    place.env["P"] = str(place.path)
    python = place.program("python", f'echo "$@" >>"$P/calls"; {answer}')
    script = place.path / "script"
    given = '"$GPUHOOK_PYTHON_STATUS:$GPUHOOK_PYTHON_ANSWER"'
    call = f"""found=$("{python}" -x 'some text' "$0" "$@")"""
    script.write_text(f"#!/bin/sh\necho {given} >&2\nexit 7\n{call}\n")
    done = place.run([built_launch(), str(script), "create", "a  b"], {})
    assert (done.returncode, done.stdout, done.stderr) == expected
    assert (place.path / "calls").read_text() == f"-x some text {script} create a  b\n"


def test_upgrade_during_a_start(place: Place) -> None:
    """A launcher whose library a package upgrade removes meanwhile starts the new launcher."""
    place.write({"process": {"env": ["NVIDIA_VISIBLE_DEVICES=0"]}})
    upgrade = place.path / "python"
    upgrade.write_text(
        f"#!/bin/sh\nprintf '#!/bin/sh\\necho new $*\\n' >{place.path}/new\n"
        f"chmod +x {place.path}/new\nmv {place.path}/new {place.path}/launcher\nexit 1\n"
    )
    upgrade.chmod(0o755)
    words = ["create", "--bundle", str(place.bundle), "id"]
    done = place.launch(["sh"], *words, python=str(upgrade))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"new {' '.join(words)}\n", "")


def test_launcher_has_at_most_31_lines() -> None:
    text = (CHECKOUT / "packaging/gpuhook-runtime.sh").read_text()
    assert len(text.splitlines()) <= 31
