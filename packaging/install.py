# SPDX-License-Identifier: Apache-2.0
"""Install gpuhook below a prefix: the package, its byte code, launchers, manual, completions.

    python3 packaging/install.py --prefix /usr/local [--destdir DIR] [--python /usr/bin/python3]
                                 [--cli-python PATH] [--device-plugin] [--nvidia-hook]
                                 [--nvidia-compat]

`--python` runs the wrapper and the hook, and needs only the standard library (3.9 or newer).
`--cli-python` runs `gpuhook`, and needs the package's dependencies. Without it, they are installed
into a virtual environment in PREFIX/lib/gpuhook-cli; with --destdir, `gpuhook` is skipped.
`--device-plugin` also requires, or installs, the dependencies of `gpuhook device-plugin`.
`--nvidia-hook` installs the prestart hook also under the name that Docker calls. `--nvidia-compat`
installs all names that configurations, CDI specs and scripts for NVIDIA's toolkit call.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import string
import subprocess
import sys

import static_program

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(os.path.dirname(HERE), "gpuhook")
# Paths are written into the first line of a script, and between quotes.
_LONGEST = 120  # bytes of the first line of a script: kernels before 5.1 accept 127
PATH_CHARACTERS = frozenset(string.ascii_letters + string.digits + "/._-+~,:=%@")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of renameat2(2)
PRESTART = "gpuhook-prestart.sh"
RUNTIME = "gpuhook-runtime.sh"
LAUNCH = "libexec/gpuhook-launch"  # the interpreter of the runtime's launcher, if it can be built
LAUNCHERS = {
    "gpuhook-runtime": RUNTIME,
    "gpuhook-hook": "gpuhook-hook.py",
    "gpuhook-prestart": PRESTART,
}
CLI_LAUNCHERS = {"gpuhook": "gpuhook.sh", "kubectl-gpuhook": "kubectl-gpuhook.sh"}
NVIDIA_HOOK = "nvidia-container-runtime-hook"
# What the command needs: the package by the module that it contains.
CLI_MODULES = {"click": "click", "jsonschema": "jsonschema", "yaml": "pyyaml"}
PLUGIN_MODULES = {"grpc": "grpcio", "google.protobuf": "protobuf"}
COMPAT = "compat"  # the directory of NVIDIA's names
COMPAT_CLI = ("nvidia-ctk",)  # names that need the gpuhook command
# Files for engines, systemd, SELinux and AppArmor, which an administrator copies to their places.
SHARED = {
    "apparmor/abstractions/gpuhook-gpu": "apparmor/abstractions/gpuhook-gpu",
    "apparmor/gpuhook-device-plugin": "apparmor/gpuhook-device-plugin",
    "containerd/base-spec": "containerd/base-spec.py",
    "containerd/nvidia.toml": "containerd/nvidia.toml",
    "hooks.d/gpuhook-prestart.json": "hooks.d/gpuhook-prestart.json",
    "selinux/gpuhook.fc": "selinux/gpuhook.fc",
    "selinux/gpuhook.te": "selinux/gpuhook.te",
    "systemd/90-gpuhook.preset": "systemd/90-gpuhook.preset",
    "systemd/gpuhook-devices.service": "systemd/gpuhook-devices.service",
    "systemd/gpuhook-nri.service": "systemd/gpuhook-nri.service",
    "systemd/gpuhook-refresh.path": "systemd/gpuhook-refresh.path",
    "systemd/gpuhook-refresh.service": "systemd/gpuhook-refresh.service",
    "systemd/gpuhook-refresh.timer": "systemd/gpuhook-refresh.timer",
    "udev/71-gpuhook.rules": "udev/71-gpuhook.rules",
}


def version() -> str:
    """Return the version of this checkout."""
    with open(os.path.join(PACKAGE, "__init__.py"), encoding="utf-8") as file:
        (found,) = re.findall(r'^__version__ = "(.*)"$', file.read(), re.MULTILINE)
    return str(found)


def compat(*, has_cli: bool) -> dict[str, str]:
    """Return the launchers with names of NVIDIA's toolkit."""
    names = sorted(os.listdir(os.path.join(HERE, COMPAT)))
    return {name: f"{COMPAT}/{name}" for name in names if has_cli or name not in COMPAT_CLI}


def install(
    prefix: str, destdir: str, python: str, cli_python: str, more: dict[str, str]
) -> list[str]:
    """Install below `destdir` for use at `prefix`; returns the paths of the launchers.

    An existing installation is replaced at once: containers may be starting. Without `cli_python`,
    the `gpuhook` command is skipped; `more` are launchers under other names.
    """
    bindir = destdir + os.path.join(prefix, "bin")
    launchers = LAUNCHERS | (CLI_LAUNCHERS if cli_python else {}) | more
    library = os.path.join(prefix, "lib/gpuhook")
    target = destdir + library
    build_library(target + ".new", library, python)
    _replace_directory(target + ".new", target)
    values = {"PYTHON": python, "LIB": library, "CLI": cli_python, "VERSION": version()}
    values |= {"BIN": os.path.join(prefix, "bin"), "SHARE": os.path.join(prefix, "share/gpuhook")}
    for name, template in SHARED.items():
        _write_filled(template, destdir + os.path.join(values["SHARE"], name), values)
    shell = build_launch(prefix) if not destdir else ""
    for name, template in launchers.items():
        is_runtime = os.path.realpath(os.path.join(HERE, template)) == os.path.join(HERE, RUNTIME)
        _write_filled(template, os.path.join(bindir, name), values, shell if is_runtime else "")
    if cli_python:
        _write_documents(target, destdir + os.path.join(prefix, "share"), cli_python)
    return [os.path.join(bindir, name) for name in launchers]


def _replace_directory(new: str, path: str) -> None:
    """Rename the directory `new` to `path`, and remove what is there.

    The two change their names at once, if the kernel and the file system can do that.
    """
    old = path + ".old"
    if os.path.exists(path) and not _exchanged(new, path):
        shutil.rmtree(old, ignore_errors=True)
        os.rename(path, old)
    if not os.path.exists(path):
        os.rename(new, path)
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)


def _exchanged(one: str, other: str) -> bool:
    """Exchange the names of two directories; return whether that was possible."""
    try:
        import ctypes

        exchange = ctypes.CDLL(None).renameat2
    except (ImportError, OSError, AttributeError):
        return False
    names = (os.fsencode(one), os.fsencode(other))
    return bool(exchange(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def build_launch(prefix: str) -> str:
    """Return the path of the program that runs the runtime's launcher; "" for the shell."""
    path = os.path.join(prefix, LAUNCH)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if len(path) > _LONGEST or not static_program.has_built(static_program.LAUNCH, path + ".new"):
        return ""
    os.rename(path + ".new", path)  # containers may be starting
    return path


def _write_documents(library: str, share: str, python: str) -> None:
    """Write manual pages and completions, unless `python` does not run here."""
    script = os.path.join(HERE, "documents.py")
    try:
        done = subprocess.run([python, "-I", script, library, share], check=False)
    except OSError:
        done = None  # an interpreter of the target
    if done is None or done.returncode != 0:
        print(
            "no manual pages and completions: the interpreter cannot generate them", file=sys.stderr
        )


def build_library(target: str, library: str, python: str) -> None:
    """Create the directory `target`, for use at `library` with `python`."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(
        PACKAGE,
        os.path.join(target, "gpuhook"),
        ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
    )
    for module in ("gpuhook_bundle.py", "gpuhook_os.py"):
        shutil.copy(os.path.join(HERE, module), target)
    # Byte code that is not compared with its source: one stat(2) less per module.
    compiled = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    compiled += ["-s", target, "-p", library, target]
    subprocess.run([python, "-IS", *compiled], check=True)
    bundle = [os.path.join(HERE, "bundle.py"), target, library, python]
    subprocess.run([python, "-IS", "-X", "no_debug_ranges", *bundle], check=True)


def cli_environment(directory: str, python: str, *, with_plugin: bool) -> str:
    """Create a virtual environment with the dependencies; returns its interpreter.

    `with_plugin` adds those of the device plugin.
    """
    interpreter = os.path.join(directory, "bin/python")
    version = "import sys; sys.exit(sys.version_info < (3, 10))"
    if subprocess.run([python, "-c", version], check=False).returncode != 0:
        sys.exit(
            f"gpuhook needs Python 3.10, {python} is older: name another one with --cli-python"
        )
    try:
        subprocess.run([python, "-m", "venv", directory], check=True)
        pip = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        source = os.path.dirname(PACKAGE) + ("[plugin]" if with_plugin else "")
        subprocess.run([*pip, source], check=True)
    except subprocess.CalledProcessError:
        sys.exit(
            f"{directory} cannot be created: install python3-venv, or name an interpreter with the"
            " dependencies by --cli-python"
        )
    return interpreter


def _require_usable(python: str, modules: dict[str, str], of: str = "gpuhook") -> None:
    """Exit if an interpreter does not run, or lacks one of the modules, which `of` needs."""
    try:
        words = [python, "-c", f"import {', '.join(['os', *modules])}"]
        done = subprocess.run(words, check=False)
    except OSError as error:
        sys.exit(f"{python} cannot be run: {error.strerror}")
    if done.returncode != 0:
        sys.exit(f"{python} lacks the dependencies of {of}: {', '.join(modules.values())}")


def _require_ours(path: str, option: str) -> None:
    """Exit if the file at `path` is not gpuhook's."""
    if not os.path.lexists(path):
        return
    if not os.path.islink(path):
        with open(path, "rb") as file:
            if b"gpuhook" in file.read(4096):
                return
    variable = option.replace("-", "_").upper()
    sys.exit(f"{path} is not gpuhook's: remove it, or install without --{option} ({variable})")


def _write_filled(template: str, path: str, values: dict[str, str], shell: str = "") -> None:
    """Replace the file at `path`, which may be in use, by `template` with values for its @WORDS@.

    A file that begins with #! gets the mode 0755. `shell` is the program that runs it instead of
    /bin/sh.
    """
    with open(os.path.join(HERE, template), encoding="utf-8") as file:
        text = file.read()
    for word, value in values.items():
        text = text.replace(f"@{word}@", value)
    if shell:
        text = text.replace("#!/bin/sh\n", f"#!{shell}\n", 1)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(temporary, 0o755 if text.startswith("#!") else 0o644)
    os.rename(temporary, path)


def _cli_python(options: argparse.Namespace, destdir: str) -> str:
    """Return the interpreter of the command, "" to leave it out; exit if one is not usable."""
    given = str(options.cli_python)
    if destdir:
        if not given:
            print("no gpuhook command: --destdir needs --cli-python for it", file=sys.stderr)
        return given
    _require_usable(options.python, {})
    if not given:
        directory = os.path.join(options.prefix, "lib/gpuhook-cli")
        return cli_environment(directory, options.python, with_plugin=options.device_plugin)
    _require_usable(given, CLI_MODULES)
    if options.device_plugin:
        _require_usable(given, PLUGIN_MODULES, "gpuhook device-plugin")
    return given


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--prefix", default="/usr/local", help="the directory in which the files are used"
    )
    parser.add_argument("--destdir", default="", help="a directory before every path")
    parser.add_argument(
        "--python", default="/usr/bin/python3", help="the interpreter of the wrapper and the hook"
    )
    parser.add_argument("--cli-python", default="", help="the interpreter of the gpuhook command")
    parser.add_argument(
        "--device-plugin",
        action="store_true",
        help="install or require the dependencies of the device plugin, too",
    )
    parser.add_argument(
        "--nvidia-hook",
        action="store_true",
        help=f"install {NVIDIA_HOOK}, too, for Docker's --gpus",
    )
    parser.add_argument(
        "--nvidia-compat", action="store_true", help="install all names of NVIDIA's toolkit"
    )
    options = parser.parse_args()
    for word in ("prefix", "python", "cli_python"):
        value, option = getattr(options, word), word.replace("_", "-")
        is_unset = word == "cli_python" and not value
        if not (is_unset or (os.path.isabs(value) and PATH_CHARACTERS.issuperset(value))):
            parser.error(f"--{option} must be an absolute path without spaces and quotes: {value}")
    destdir = os.path.abspath(options.destdir) if options.destdir else ""
    more = {NVIDIA_HOOK: PRESTART} if options.nvidia_hook else {}
    if options.nvidia_compat:
        more = compat(has_cli=bool(options.cli_python or not destdir))
    for name in more:
        option = "nvidia-compat" if options.nvidia_compat else "nvidia-hook"
        _require_ours(destdir + os.path.join(options.prefix, "bin", name), option)
    cli_python = _cli_python(options, destdir)
    for path in install(options.prefix, destdir, options.python, cli_python, more):
        print(path)


if __name__ == "__main__":
    main()
