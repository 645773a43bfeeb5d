#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Replaces a driver's nvidia-smi for `compute-policy`.

Beside it are its files: nvidia-smi.gpus, a line "<uuid> <value>" for each GPU by index, value
Default, Short, Medium, Long, or "-" for a GPU without a time slice; nvidia-smi.calls, which gets a
line of arguments and LD_PRELOAD for each call; nvidia-smi.mood, which may be "old" (before driver
455), "forbidden", "broken" or "hanging". The words are those of nvidia-smi 535.261.
"""

import os
import sys
import time

BESIDE = os.path.abspath(sys.argv[0])
VALUES = ("Default", "Short", "Medium", "Long")
LINE = "+-------------------------------------+"


def _read(name: str) -> str:
    try:
        with open(f"{BESIDE}.{name}", encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _is_administrator() -> bool:
    """Return whether this process has CAP_SYS_ADMIN, which the kernel module requires."""
    with open("/proc/self/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return bool(int(fields["CapEff"], 16) >> 21 & 1)


def _write(gpus: list[list[str]]) -> None:
    with open(f"{BESIDE}.new", "w", encoding="ascii") as file:
        file.writelines(f"{uuid} {value}\n" for uuid, value in gpus)
    os.rename(f"{BESIDE}.new", f"{BESIDE}.gpus")


def _list(gpus: list[list[str]], meant: list[int]) -> int:
    for index in meant:
        if gpus[index][1] == "-":
            print(f"Failed to get compute policies for GPU {index} : Not Supported")
            print("Failed to retrieve compute policies for requested devices : Not Supported")
            return 3
    print(LINE)
    print("| GPU compute policies:               |")
    print("| GPU     Name           Value        |")
    print("|=====================================|")
    for index in meant:
        print(f"| {index:3}     {'Timeslice':14} {gpus[index][1]:12} |")
    print(LINE)
    return 0


def _set(gpus: list[list[str]], meant: list[int], value: str, mood: str) -> int:
    for index in meant:
        reason = "Not Supported" if gpus[index][1] == "-" else ""
        is_refused = mood == "forbidden" or not _is_administrator()
        reason = "Insufficient Permissions" if is_refused else reason
        if reason:
            print(f"Failed to set timeslice policy with value {value} for GPU {index} : {reason}")
            print(f"Failed to set timeslice for requested devices : {reason}")
            return 3
        gpus[index][1] = value
        print(f"Successfully set timeslice policy with value {value} for GPU {index}")
    _write(gpus)
    return 0


def main() -> int:
    """Do what the arguments request; return the exit status."""
    arguments, mood = sys.argv[1:], _read("mood").strip()
    with open(f"{BESIDE}.calls", "a", encoding="utf-8") as calls:
        calls.write(f"{' '.join(arguments)} LD_PRELOAD={os.environ.get('LD_PRELOAD', '')}\n")
    if mood == "hanging":
        time.sleep(60)
    if mood == "broken":
        print("Unable to determine the device handle for GPU0: Unknown Error")
        return 255
    if mood == "old" or arguments[:1] != ["compute-policy"]:
        print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.")
        return 1
    gpus = [line.split() for line in _read("gpus").splitlines()]
    meant, arguments = list(range(len(gpus))), arguments[1:]
    if arguments[:1] == ["-i"]:
        meant = [index for index, gpu in enumerate(gpus) if gpu[0] == arguments[1]]
        arguments = arguments[2:]
        if not meant:
            print("Failed to find any matching devices")
            return 6
    if arguments == ["--list"]:
        return _list(gpus, meant)
    return _set(gpus, meant, VALUES[int(arguments[1])], mood)


if __name__ == "__main__":
    sys.exit(main())
