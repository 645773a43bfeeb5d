# SPDX-License-Identifier: Apache-2.0
"""Commands on a node with wrong files: a result or a fault, never a crash."""

from __future__ import annotations

import re

from click.testing import CliRunner, Result

from gpuhook.cli import main
from tests.simulated.node import SimulatedNode

FAULT = re.compile(r"^Error GH(?!1593|1491)\d{4}: ", re.MULTILINE)


def call(*words: str) -> Result:
    """Run a command of gpuhook; it succeeds, or prints a fault with a code."""
    done = CliRunner().invoke(main, words, prog_name="gpuhook")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output
    assert "GH1491" not in done.output, done.stderr
    assert done.exit_code in (0, 1), done.stderr
    assert (done.exit_code == 0) or FAULT.search(done.stderr), done.stderr
    return done


def generate(node: SimulatedNode, *options: str) -> Result:
    """Run generate-cdi on the node."""
    return call("generate-cdi", *node.options, *options)
