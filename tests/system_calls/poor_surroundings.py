# SPDX-License-Identifier: Apache-2.0
"""Surroundings in which a command has little: no memory, no descriptors, no streams, no names."""

from __future__ import annotations

# Shell commands before `exec "$@"`, by what they take away.
SURROUNDINGS = {
    "stdin closed": "exec <&-",
    "stdout closed": "exec >&-",
    "stderr closed": "exec 2>&-",
    "all streams closed": "exec <&- >&- 2>&-",
    "stdout full": "exec >/dev/full",
    "stderr full": "exec 2>/dev/full",
    "stdout without a reader": (
        'mkfifo "$HOME/pipe"; exec 4<>"$HOME/pipe" >"$HOME/pipe" 4<&-; rm "$HOME/pipe"'
    ),
    "no process": (
        "exec strace -f -qq -o /dev/null -e inject=clone,clone3,fork,vfork:error=EAGAIN"
        ' -e trace=clone,clone3,fork,vfork "$@"'
    ),
    "few descriptors": "ulimit -n 8",
    "no descriptor": "ulimit -n 3",
    "little memory": "ulimit -v 40000",
    "little data": "ulimit -d 20000",
    "no file size": "ulimit -f 0",
    "umask 0777": "umask 0777",
    "umask 0": "umask 0",
    "no HOME": "unset HOME",
    "no PATH": "unset PATH",
    "no variables": 'exec env -i "$@"',
    "no temporary directory": "export TMPDIR=/nonexistent",
    "directory removed": 'mkdir -p "$HOME/gone" && cd "$HOME/gone" && rmdir "$HOME/gone"',
    "language C": "export LC_ALL=C LANG=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0",
    "unknown language": "export LC_ALL=xx_YY.latin9 LANG=xx",
    "no columns": "export COLUMNS=0",
    "absurd columns": "export COLUMNS=99999999999999999999",
    "no signal": "trap '' PIPE INT TERM",
}
# Without these limits, gpuhook cannot say anything: the interpreter does not start.
SILENT = ("no descriptor", "few descriptors", "little memory", "little data")
