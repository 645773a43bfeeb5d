# SPDX-License-Identifier: Apache-2.0
"""What the device plugin keeps out of its memory: it is resident on every node of a cluster."""

from __future__ import annotations

import json
import subprocess
import sys

# By what they bring: OpenSSL, an HTTP client, tracebacks in colours, a validator, a rendering of
# metrics with an HTTP server; exact fractions.
HEAVY = {"ssl", "_hashlib", "http.client", "email", "rich", "jsonschema", "prometheus_client"}
HEAVY |= {"decimal"}
# And what few configurations ask for: labels, CDI specs, MPS, the API server.
LATER = {
    "gpuhook.cdi.spec_file",
    "gpuhook.device_plugin.api_server.client",
    "gpuhook.device_plugin.labels.label_parts",
    "gpuhook.device_plugin.mps.mps_daemon",
    "gpuhook.device_plugin.allocate.plugin_specs",
}
LOADED = """
import json, sys
from gpuhook.cli.node import device_plugin
from gpuhook.cli.options import plugin_command
plugin_command.imported(device_plugin._PROCESS, *device_plugin._LEFT_OUT)
from gpuhook.device_plugin.metrics import counters, exposition
exposition.text(exposition.ScrapedFacts(), counters.Counters().snapshot())
print(json.dumps(sorted(sys.modules)))
"""
TRUSTED = """
from gpuhook.cli.node import device_plugin
from gpuhook.cli.options import plugin_command
plugin_command.imported(device_plugin._PROCESS, *device_plugin._LEFT_OUT)
from gpuhook.device_plugin.api_server import client as api_server
print(api_server.ssl.OPENSSL_VERSION, api_server.http.client.HTTPSConnection.__name__)
"""


def _printed(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_plugin_that_starts_and_is_scraped_has_nothing_heavy() -> None:
    loaded = set(json.loads(_printed(LOADED)))
    assert "gpuhook.device_plugin.plugin" in loaded
    assert "asyncio" in loaded
    assert loaded & (HEAVY | LATER) == set()


def test_the_api_server_can_be_spoken_to_all_the_same() -> None:
    """What was left out of the plugin's import is there for those who import it afterwards."""
    assert "HTTPSConnection" in _printed(TRUSTED)
