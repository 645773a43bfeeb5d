# SPDX-License-Identifier: Apache-2.0
"""An installation: its launchers, and the hot path in bundles of byte code."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import static_program
from install import CLI_MODULES, PLUGIN_MODULES, build_launch

INSTALL = Path(__file__).parents[3] / "packaging/install.py"
SYSTEM = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
BUNDLES = ("gpuhook.entry.runtime", "gpuhook.entry.create", "gpuhook.entry.hooks.hook")

MODULES = """
import sys
sys.path[:0] = [sys.argv[1]]
if sys.argv[2] == "bundled":
    import gpuhook_bundle
    gpuhook_bundle.load(sys.argv[3])
__import__(sys.argv[3])
found = {n: m for n, m in sys.modules.items() if n.partition(".")[0] == "gpuhook"}
left_out = {"annotations", "errno", "stat"}
for name in sorted(found):
    module = found[name]
    public = sorted(n for n in vars(module) if not n.startswith("_") and n not in left_out)
    print(name, module.__package__, hasattr(module, "__path__"), public)
"""


def install(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, INSTALL, *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the prefix of an installation for the system's Python."""
    place = tmp_path_factory.mktemp("install") / "prefix"
    done = install("--prefix", str(place), "--python", SYSTEM, "--cli-python", sys.executable)
    assert done.returncode == 0, done.stderr
    names = ("gpuhook-runtime", "gpuhook-hook", "gpuhook-prestart", "gpuhook", "kubectl-gpuhook")
    assert done.stdout.split() == [str(place / "bin" / name) for name in names]
    return place


def modules(prefix: Path, how: str, entry: str) -> list[str]:
    """Return a line for each module of gpuhook that `entry` loads, with its public names."""
    command = [SYSTEM, "-IS", "-c", MODULES, str(prefix / "lib/gpuhook"), how, entry]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize("entry", ["gpuhook.entry.runtime", "gpuhook.entry.hooks.hook"])
def test_bundle_has_the_modules_of_an_import(entry: str, prefix: Path) -> None:
    """With the same names, except for modules whose constants are in the byte code."""
    bundled, imported = modules(prefix, "bundled", entry), modules(prefix, "imported", entry)
    assert len(bundled) > 5
    assert bundled == imported


def test_second_bundle_completes_the_first(prefix: Path) -> None:
    """The modules that only a create needs are in their own bundle, and none is in both."""
    program = (
        "import sys; sys.path[:0] = [sys.argv[1]]; import gpuhook_bundle as b;"
        "b.load('gpuhook.entry.runtime'); first = dict(sys.modules);"
        "b.load('gpuhook.entry.create'); b.load('gpuhook.entry.create');"
        "assert all(sys.modules[n] is m for n, m in first.items());"
        "before = set(sys.modules); import gpuhook.entry.create;"
        "print(sorted(set(sys.modules) - before))"
    )
    command = [SYSTEM, "-IS", "-c", program, str(prefix / "lib/gpuhook")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def called(prefix: Path, spec: object, place: Path, **env: str) -> tuple[int, str, str, str]:
    """Create a container with the installed launcher; returns status, outputs and config.json."""
    place.mkdir(exist_ok=True)
    (place / "low").write_text('#!/bin/sh\necho "$@"\n')
    (place / "low").chmod(0o755)
    config = place / "config.json"
    config.write_text(json.dumps(spec))
    own = {
        "GPUHOOK_LOW_LEVEL_RUNTIME": str(place / "low"),
        "GPUHOOK_STATE_DIR": str(place / "state"),
        "GPUHOOK_CONFIG": str(place / "none"),
        "GPUHOOK_HOST_ROOT": str(place),
    }
    done = subprocess.run(
        [prefix / "bin/gpuhook-runtime", "create", "--bundle", place, "id"],
        env={**os.environ, **own, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr, config.read_text()


SPECS = [
    {"process": {"env": ["NVIDIA_VISIBLE_DEVICES=all"]}},
    {"process": {"env": ["NVIDIA_VISIBLE_DEVICES=0"]}},
    {"annotations": {"cdi.k8s.io/x": "example.com/x=y"}},
    {},
]


@pytest.mark.parametrize("spec", SPECS, ids=["image", "grant", "annotation", "nothing"])
@pytest.mark.parametrize("spoil", ["missing", "another interpreter's", "empty"])
def test_missing_bundle_is_replaced_by_imports(
    spec: object, spoil: str, prefix: Path, tmp_path: Path
) -> None:
    """A bundle that is missing, or belongs to another Python, only costs time."""
    expected = called(prefix, spec, tmp_path / "b")
    files = [prefix / f"lib/gpuhook/{entry}.bundle" for entry in BUNDLES]
    kept = [file.read_bytes() for file in files]
    try:
        for file, data in zip(files, kept, strict=True):
            if spoil == "missing":
                file.unlink()
            else:
                file.write_bytes(b"" if spoil == "empty" else b"\x00\x00\r\n" + data[4:])
        assert called(prefix, spec, tmp_path / "b") == expected
    finally:
        for file, data in zip(files, kept, strict=True):
            file.write_bytes(data)


def test_launchers_name_their_interpreter(prefix: Path) -> None:
    """No launcher searches its interpreter in PATH, or lets the environment change it."""
    runtime, hook, prestart, cli = [
        (prefix / "bin" / name).read_text()
        for name in ("gpuhook-runtime", "gpuhook-hook", "gpuhook-prestart", "gpuhook")
    ]
    launch = prefix / "libexec/gpuhook-launch"
    assert runtime.startswith(f"#!{launch}\n" if launch.exists() else "#!/bin/sh\n")
    assert f'"{SYSTEM}" -ISXutf8 -c ' in runtime
    assert hook.startswith(f"#!{SYSTEM} -IS\n")
    assert f'"{prefix}/bin/gpuhook-hook" prestart' in prestart
    assert f'exec "{sys.executable}" -I -c ' in cli
    assert not any("@" in text.replace('"$@"', "") for text in (runtime, hook, prestart, cli))


def test_launch_program_is_built_if_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a compiler or a program that runs, or at a long path, the shell is used."""
    place = tmp_path / "prefix"
    if shutil.which("gcc"):
        assert build_launch(str(place)) == f"{place}/libexec/gpuhook-launch"
        assert os.listdir(place / "libexec") == ["gpuhook-launch"]
        assert build_launch(str(place / ("x" * 120))) == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build_launch(str(place)) == ""
    kept = os.listdir(place / "libexec")
    built = 'while [ "$1" != -o ]; do shift; done; echo "#!/bin/sh\nkill -9 \\$\\$" >"$2"'
    # A compiler that fails, programs that the kernel does not run, and that it kills.
    for text in ("exit 1", built, f'{built}; /bin/chmod 755 "$2"'):
        (tmp_path / "gcc").write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        (tmp_path / "gcc").chmod(0o755)
        assert build_launch(str(place)) == "", text
        assert os.listdir(place / "libexec") == kept, text


@pytest.mark.parametrize("is_quiet", [False, True])
def test_compiler_says_why_a_program_cannot_be_built(
    is_quiet: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The build of a release shows the compiler's errors, an installation without it does not."""
    (tmp_path / "a.c").write_text("int main(void) { return wrong; }\n", "utf-8")
    with pytest.raises((OSError, subprocess.CalledProcessError)) as caught:
        static_program.build(f"{tmp_path}/a.c", f"{tmp_path}/a", is_quiet=is_quiet)
    if shutil.which("gcc"):
        assert ("wrong" in capfd.readouterr().err) is not is_quiet
        assert isinstance(caught.value, subprocess.CalledProcessError)


def test_files_for_engines(prefix: Path) -> None:
    """They name the installed hook, with an explicit environment."""
    share = prefix / "share/gpuhook"
    found = {str(path.relative_to(share)) for path in share.rglob("*") if path.is_file()}
    units = {name for name in found if name.startswith(("systemd/", "udev/"))}
    assert found - units == {
        "apparmor/abstractions/gpuhook-gpu",
        "apparmor/gpuhook-device-plugin",
        "containerd/base-spec",
        "containerd/nvidia.toml",
        "hooks.d/gpuhook-prestart.json",
        "selinux/gpuhook.fc",
        "selinux/gpuhook.te",
    }
    assert "systemd/gpuhook-refresh.service" in units
    unit = (share / "systemd/gpuhook-refresh.service").read_text(encoding="utf-8")
    assert f"ExecStart={prefix}/bin/gpuhook refresh\n" in unit
    document = json.loads((share / "hooks.d/gpuhook-prestart.json").read_text())
    assert document["version"] == "1.0.0"
    assert document["stages"] == ["prestart"]
    assert document["hook"]["path"] == f"{prefix}/bin/gpuhook-prestart"
    assert [entry.partition("=")[0] for entry in document["hook"]["env"]] == ["PATH"]
    assert f"{share}/containerd/base-spec" in (share / "containerd/nvidia.toml").read_text()


SPEC: dict[str, object] = {"ociVersion": "1.2.0", "process": {"cwd": "/"}, "later": 2**60}


def base_spec(prefix: Path) -> Path:
    """Return the installed base-spec."""
    return prefix / "share/gpuhook/containerd/base-spec"


def our_hook(prefix: Path) -> object:
    """Return the hook that it adds."""
    hooks = json.loads((prefix / "share/gpuhook/hooks.d/gpuhook-prestart.json").read_text())
    return hooks["hook"]


def based(prefix: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Call the installed base-spec with a spec on its standard input."""
    command = [str(base_spec(prefix)), *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def test_base_spec_adds_the_hook(prefix: Path) -> None:
    """After existing hooks; a second run changes nothing."""
    other = {"path": "/bin/other"}
    spec = {**SPEC, "hooks": {"prestart": [other], "poststop": []}}
    done = based(prefix, json.dumps(spec))
    made = json.loads(done.stdout)
    assert made == {**spec, "hooks": {"prestart": [other, our_hook(prefix)], "poststop": []}}
    assert based(prefix, done.stdout).stdout == done.stdout


@pytest.mark.parametrize("hooks", [None, {"prestart": None}])
def test_base_spec_with_null_hooks(hooks: object, prefix: Path) -> None:
    """null means absent."""
    made = json.loads(based(prefix, json.dumps({**SPEC, "hooks": hooks})).stdout)
    assert made == {**SPEC, "hooks": {"prestart": [our_hook(prefix)]}}


def spec_with(**members: object) -> str:
    return json.dumps({**SPEC, **members})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("{", "line 1"),
        ("[]", "the document must be an object, but is a list"),
        ("5", "the document must be an object, but is a number"),
        ("{}", ".ociVersion must be a string, but is nothing"),
        (spec_with(ociVersion=1.2), ".ociVersion must be a string, but is a number"),
        ('{"ociVersion": "1.0.2", "id": "x", "pid": 7}', ".process must be an object"),
        (spec_with(hooks=[]), ".hooks must be an object, but is a list"),
        (spec_with(hooks={"prestart": {}}), ".hooks.prestart must be a list, but is an object"),
        (
            spec_with(hooks={"prestart": [{}, "x"]}),
            ".hooks.prestart[1] must be an object, but is a string",
        ),
        (spec_with(hooks=False), ".hooks must be an object, but is true or false"),
        (f'{{"ociVersion": {"[" * 100000}', "it is nested too deeply"),
        (spec_with(later=float("nan")), "NaN"),
    ],
)
def test_base_spec_refuses_other_input(
    text: str, reason: str, prefix: Path, tmp_path: Path
) -> None:
    """The message is a sentence, and no usable output is written."""
    done = based(prefix, text)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("base-spec: standard input is not an OCI spec: ")
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
    file = tmp_path / "base.json"
    file.write_text("as it was")
    assert based(prefix, text, "--output", str(file)).returncode == 1
    assert file.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [file]


def test_base_spec_output_file(prefix: Path, tmp_path: Path) -> None:
    """--output replaces a whole file; a directory, or a file in a missing one, is refused."""
    text = spec_with()
    file = tmp_path / "base.json"
    for _ in range(2):
        assert based(prefix, text, "--output", str(file)).stdout == ""
        assert file.read_text() == based(prefix, text).stdout
        assert file.stat().st_mode & 0o777 == 0o644
    for path, reason in (
        (tmp_path, "is not a regular file"),
        (tmp_path / "no/base.json", "No such file or directory"),
        (Path("/dev/null"), "is not a regular file"),
    ):
        done = based(prefix, text, "--output", str(path))
        assert (done.returncode, done.stdout) == (1, "")
        assert str(path) in done.stderr
        assert reason in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("redirection", "reason"),
    [
        (">/dev/full", "standard output: No space left on device"),
        (">&-", "standard output: Bad file descriptor"),
        ("<&-", "standard input: Bad file descriptor"),
    ],
)
def test_base_spec_input_and_output_errors(redirection: str, reason: str, prefix: Path) -> None:
    """The message is a sentence, with an exit status."""
    command = ["/bin/sh", "-c", f"{base_spec(prefix)} {redirection}"]
    done = subprocess.run(command, input=spec_with(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, f"base-spec: {reason}\n")


def test_base_spec_usage(prefix: Path) -> None:
    """Help is printed without a spec, and an unknown option is a usage error."""
    done = based(prefix, "", "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: base-spec ")
    assert "--output FILE" in done.stdout
    assert based(prefix, spec_with(), "file").returncode == 2


def without_grpc(place: Path) -> Path:
    """Return an interpreter that has the dependencies of the command, and not gRPC."""
    python = place / "python"
    python.write_text(
        f'#!/bin/sh\ncase $2 in *grpc*) exit 1 ;; esac\nexec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    return python


# An interpreter that makes no byte code, for what is installed to be replaced.
HASTY = """#!/bin/sh
[ "$1" = -IS ] || exec "{python}" "$@"
"""


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the prefix of an installation over another, which had one more module.

    The first has the device plugin; the interpreter of the second has only what the command needs.
    """
    place = tmp_path_factory.mktemp("again") / "p"
    stale = place / "lib/gpuhook/gpuhook/stale.py"
    common = ("--prefix", str(place), "--nvidia-hook", "--cli-python")
    bare = without_grpc(place.parent)
    hasty = place.with_name("hasty")
    hasty.write_text(HASTY.format(python=SYSTEM), encoding="utf-8")
    hasty.chmod(0o755)
    for words in (
        (sys.executable, "--device-plugin", "--python", str(hasty)),
        (str(bare), "--python", SYSTEM),
    ):
        done = install(*common, *words)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[-1] == str(place / "bin/nvidia-container-runtime-hook")
        assert not stale.exists()
        stale.touch()
    stale.unlink()
    return place


def test_nvidia_hook_name_is_taken_on_request(again: Path) -> None:
    """Only with the option; a second installation replaces its own file."""
    path = again / "bin/nvidia-container-runtime-hook"
    assert path.read_text() == (again / "bin/gpuhook-prestart").read_text()


@pytest.mark.parametrize("kind", ["program", "link"])
def test_nvidia_hook_file_of_another_program_is_refused(kind: str, tmp_path: Path) -> None:
    """Nothing is installed."""
    (tmp_path / "usr/bin").mkdir(parents=True)
    path = tmp_path / "usr/bin/nvidia-container-runtime-hook"
    if kind == "link":
        path.symlink_to("gpuhook-prestart")
    else:
        path.write_bytes(b"\x7fELF")
    arguments = ("--prefix", "/usr", "--destdir", str(tmp_path), "--cli-python", sys.executable)
    done = install(*arguments, "--nvidia-hook")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"{path} is not gpuhook's: remove it, or install without --nvidia-hook (NVIDIA_HOOK)\n"
    )
    assert [found for found in tmp_path.rglob("*") if not found.is_dir()] == [path]


def test_environment_does_not_affect_python(prefix: Path, tmp_path: Path) -> None:
    """Variables and files in the working directory that configure a Python."""
    (tmp_path / "gc.py").write_text("raise SystemExit(9)")
    (tmp_path / "gpuhook").mkdir()
    (tmp_path / "gpuhook/__init__.py").write_text("raise SystemExit(9)")
    evil = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nowhere", "PYTHONSTARTUP": "/nowhere"}
    for words in (
        ["gpuhook-hook", "--help"],
        ["gpuhook-prestart", "--help"],
        ["gpuhook", "--version"],
    ):
        done = subprocess.run(
            [prefix / "bin" / words[0], *words[1:]],
            cwd=tmp_path,
            env={**os.environ, **evil},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "gpuhook" in done.stdout
    assert called(prefix, {}, tmp_path / "b", **evil)[0] == 0


def test_destdir_is_a_prefix_of_written_paths(tmp_path: Path) -> None:
    """Files are written below the directory, and contain the paths of their later use."""
    done = install(
        *("--prefix", "/opt/gpuhook", "--destdir", str(tmp_path)),
        *("--python", SYSTEM, "--cli-python", sys.executable),
    )
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"opt"}
    for name, named in {
        "gpuhook-runtime": "lib/gpuhook",
        "gpuhook-hook": "lib/gpuhook",
        "gpuhook-prestart": "bin/gpuhook-hook",
        "gpuhook": "lib/gpuhook",
    }.items():
        path = tmp_path / "opt/gpuhook/bin" / name
        assert os.access(path, os.X_OK)
        assert f'"/opt/gpuhook/{named}"' in path.read_text()
        assert str(tmp_path) not in path.read_text()
    for entry in BUNDLES:
        data = (tmp_path / f"opt/gpuhook/lib/gpuhook/{entry}.bundle").read_bytes()
        assert b"/opt/gpuhook/lib/gpuhook/gpuhook/" in data
        assert str(tmp_path).encode() not in data


def test_library_is_replaced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between two renames would leave launchers without it."""
    monkeypatch.syspath_prepend(INSTALL.parent)
    module = importlib.import_module("install")
    for name in ("lib", "lib.new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", None)
        module._replace_directory(str(tmp_path / "lib.new"), str(tmp_path / "lib"))
    assert os.listdir(tmp_path) == ["lib"]
    assert os.listdir(tmp_path / "lib") == ["lib.new"]


def test_second_installation_replaces_the_first(prefix: Path, again: Path) -> None:
    """The result is that of a single installation."""
    package = "lib/gpuhook/gpuhook"
    names = [sorted(p.name for p in (one / package).rglob("*.py")) for one in (prefix, again)]
    assert names[0] == names[1]
    assert {path.name for path in (again / "lib").iterdir()} == {"gpuhook"}


@pytest.mark.parametrize("option", ["--prefix", "--python", "--cli-python"])
@pytest.mark.parametrize("value", ["relative", "/with space", "/with'quote", '/with"quote', "/a$b"])
def test_invalid_paths_are_refused(option: str, value: str, tmp_path: Path) -> None:
    """A path that no launcher can contain is a usage error, and nothing is installed."""
    done = install("--destdir", str(tmp_path), option, value)
    assert done.returncode == 2
    assert f"{option} must be an absolute path" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--prefix", "--python"])
def test_an_empty_path(option: str, tmp_path: Path) -> None:
    """PREFIX= of make is not the working directory."""
    done = install("--destdir", str(tmp_path), option, "")
    assert done.returncode == 2
    assert f"{option} must be an absolute path" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_interpreter_that_does_not_run(tmp_path: Path) -> None:
    done = install("--prefix", str(tmp_path / "prefix"), "--python", "/no/such/python")
    assert (done.returncode, done.stderr) == (
        1,
        "/no/such/python cannot be run: No such file or directory\n",
    )
    assert not (tmp_path / "prefix").exists()


@pytest.mark.parametrize("python", ["/no/such/python", SYSTEM])
def test_interpreter_without_required_modules_is_refused(python: str, tmp_path: Path) -> None:
    """With a sentence, before anything is written."""
    bare = (
        subprocess.run([python, "-c", "import click"], check=False)
        if Path(python).exists()
        else None
    )
    if bare is not None and bare.returncode == 0:
        pytest.skip("this machine's own Python has the dependencies")
    done = install("--prefix", str(tmp_path / "prefix"), "--cli-python", python)
    assert done.returncode == 1
    assert python in done.stderr.splitlines()[-1]
    assert not (tmp_path / "prefix").exists()


def test_device_plugin_needs_its_dependencies(again: Path, tmp_path: Path) -> None:
    """An interpreter without them is refused with --device-plugin, and is good without it."""
    words = ["--prefix", str(tmp_path / "prefix"), "--cli-python", str(without_grpc(tmp_path))]
    done = install(*words, "--device-plugin")
    assert (done.returncode, done.stdout) == (1, "")
    lacking = "the dependencies of gpuhook device-plugin: grpcio, protobuf"
    assert done.stderr == f"{tmp_path}/python lacks {lacking}\n"
    assert not (tmp_path / "prefix").exists()
    assert f'exec "{again.parent}/python" -I' in (again / "bin/gpuhook").read_text()


# Makes an environment whose interpreter writes how pip is called, and no byte code.
VENV = """#!/bin/sh
[ "$1" != -IS ] || exit 0
[ "$1 $2" = "-m venv" ] || exec "{python}" "$@"
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "$@" >>"{calls}"\\n' >"$3/bin/python"
chmod +x "$3/bin/python"
"""


@pytest.mark.parametrize(("value", "extra"), [("", ""), ("1", "[plugin]")])
def test_device_plugin_of_make_install(value: str, extra: str, tmp_path: Path) -> None:
    """DEVICE_PLUGIN=1 puts the plugin's dependencies into the command's environment."""
    python, calls = tmp_path / "python", tmp_path / "calls"
    python.write_text(VENV.format(python=sys.executable, calls=calls))
    python.chmod(0o755)
    checkout = INSTALL.parents[1]
    words = [f"PREFIX={tmp_path}/prefix", f"PYTHON={python}", f"DEVICE_PLUGIN={value}"]
    subprocess.run(["make", "-C", checkout, "install", *words], check=True, capture_output=True)
    pip = next(line for line in calls.read_text().splitlines() if line.startswith("-m pip"))
    assert pip.endswith(f" {checkout}{extra}")


def test_dependencies_are_those_of_the_project() -> None:
    """The installer names the packages that pyproject.toml has."""
    project = (INSTALL.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    extra = re.search(r"^plugin = (\[.*\])$", project, re.MULTILINE)
    assert extra is not None
    assert re.findall(r'"([a-z-]+)>=', extra[1]) == list(PLUGIN_MODULES.values())
    assert all(f'  "{name}>=' in project for name in CLI_MODULES.values())


def test_manual_and_completions_are_installed(prefix: Path) -> None:
    """A page for each command, and a completion for each shell in its directory."""
    share = prefix / "share"
    assert (share / "man/man1/gpuhook-doctor.1").exists() == ("doctor" in _commands(prefix))
    assert (share / "man/man1/gpuhook-inventory.1").read_text().startswith(".TH")
    for path in ("bash-completion/completions/gpuhook", "zsh/site-functions/_gpuhook"):
        assert "_GPUHOOK_COMPLETE" in (share / path).read_text()
    assert (share / "fish/vendor_completions.d/gpuhook.fish").exists()


def _commands(prefix: Path) -> str:
    done = subprocess.run(
        [prefix / "bin/gpuhook", "--help"], check=True, capture_output=True, text=True
    )
    return done.stdout
