#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Replaces nvidia-cuda-mps-control: -d starts a daemon, else it reads commands.

The daemon listens in CUDA_MPS_PIPE_DIRECTORY and writes its input to `<that>/told`. A file
<log directory>/broken makes it refuse everything.
"""

import os
import socket
import sys

PIPE = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
LOG = os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps")
CONTROL = os.path.join(PIPE, "control")


def _address(directory: int) -> str:
    """Return a short name of the socket: a whole path may be longer than sun_path."""
    return f"/proc/self/fd/{directory}/control"


def _answer(state: dict[str, str], command: str) -> str:
    words = command.split()
    if os.path.exists(os.path.join(LOG, "broken")):
        return "!out of order"
    if words == ["get_default_active_thread_percentage"]:
        return state.get("percentage", "100.0")
    if words[:1] == ["set_default_active_thread_percentage"]:
        state["percentage"] = f"{float(words[1])}"
        return state["percentage"]
    if words[:1] in (["set_default_device_pinned_mem_limit"], ["quit"]):
        return ""
    return f"!unknown command {command}"


def _serve(listening: socket.socket) -> None:
    state: dict[str, str] = {}
    while True:
        client, _ = listening.accept()
        with client, client.makefile("rw", encoding="utf-8") as stream:
            command = stream.readline().strip()
            with open(os.path.join(PIPE, "told"), "a", encoding="utf-8") as log:
                log.write(command + "\n")
            stream.write(_answer(state, command) + "\n")
            stream.flush()
        if command == "quit":
            os.unlink(CONTROL)
            return


def _daemon() -> int:
    directory = os.open(PIPE, os.O_RDONLY | os.O_DIRECTORY)
    if os.path.exists(CONTROL):
        print("An instance of this daemon is already running", file=sys.stderr)
        return 1
    with open(os.path.join(PIPE, "devices"), "w", encoding="utf-8") as seen:
        seen.write(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(_address(directory))
    listening.listen()
    if os.fork():
        return 0
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    with open(os.path.join(PIPE, "nvidia-cuda-mps-control.pid"), "w", encoding="utf-8") as pid:
        pid.write(str(os.getpid()))
    _serve(listening)
    return 0


def _client() -> int:
    for line in sys.stdin:
        try:
            directory = os.open(PIPE, os.O_RDONLY | os.O_DIRECTORY)
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(_address(directory))
        except OSError:
            print("Cannot find MPS control daemon process", file=sys.stderr)
            return 1
        with connection, connection.makefile("rw", encoding="utf-8") as stream:
            stream.write(line)
            stream.flush()
            answer = stream.readline().strip()
        if answer.startswith("!"):
            print(answer[1:], file=sys.stderr)
            return 1
        print(answer)
    return 0


sys.exit(_daemon() if "-d" in sys.argv[1:] else _client())
