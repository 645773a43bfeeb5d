# SPDX-License-Identifier: Apache-2.0
"""gpuhook-runtime create: the changes of a container's config.json."""

from __future__ import annotations

from functools import partial

from tests.record import images
from tests.record.box import Box
from tests.record.case import Case
from tests.record.groups import create_policies, create_requests, create_specs
from tests.record.groups.creation import Creation

_LOW = '#!/bin/sh\necho "low-level: $*"\n'


def cases() -> list[Case]:
    """Return a case for each creation of the tables."""
    tables = (create_requests.CASES, create_policies.CASES, create_specs.CASES)
    return [
        Case("create", one.name, one.scene, partial(_create, one), is_altering=one.is_altering)
        for table in tables
        for one in table
    ]


def _create(one: Creation, box: Box) -> None:
    images.root(one.root)
    box.write("/mnt/bin/low", _LOW, 0o755)
    text: str | bytes = one.raw if one.raw is not None else images.text([*one.env], **one.oci)
    if one.has_config:
        box.write("bundle/config.json", text)
    if one.settings is not None:
        box.write("config.yaml", one.settings)
    if one.before is not None:
        one.before(box)
    env = {"GPUHOOK_LOW_LEVEL_RUNTIME": "/mnt/bin/low", **dict(one.variables)}
    words = [*one.before_command, "--log", "/mnt/case/log", "--log-format", one.log_format]
    for _ in range(one.times):
        box.call("gpuhook-runtime", *words, *one.words, "c1", **env)
