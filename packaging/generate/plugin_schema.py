# SPDX-License-Identifier: Apache-2.0
"""Generate the JSON schema of the device plugin's configuration file from its grammar."""

from __future__ import annotations

from gpuhook.device_plugin.config import configuration


def files() -> dict[str, str]:
    """Return the schema, by its path in the checkout."""
    return {"gpuhook/schemas/device-plugin.json": configuration.schema_text()}
