# SPDX-License-Identifier: Apache-2.0
"""The records of a written spec: node.json for the wrapper, and the options for refresh."""

from __future__ import annotations

import os

from gpuhook.apply.rootfs import hook_args
from gpuhook.vendors.nvidia.hot import host_fingerprint, node_json
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.spec import device_selection, driver_edits, spec_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.spec.generate_options import Choices, Described
    from gpuhook.vendors.spec_call import SpecOptions


def record(
    found: Described, choices: Choices, options: SpecOptions, files_dir: str, path: str
) -> tuple[str, ...]:
    """Record the spec that was written to `path`; return a sentence for each file that failed."""
    troubles = []
    if found.node is not None:
        aliases = device_selection.aliases(found.gpus, choices.strategies)
        try:
            dump_file.write_node_json(found.node, aliases, path)
        except OSError as error:
            troubles.append(f"{node_json.path()} was not written: {error.strerror or error}")
    try:
        spec_records.remember(_generated(found, choices, options, files_dir, path))
    except OSError as error:
        troubles.append(
            f"{spec_records.directory()} was not written: {error.strerror or error}; gpuhook "
            f"refresh will not know the options of {path}"
        )
    return tuple(troubles)


def _generated(
    found: Described, choices: Choices, options: SpecOptions, files_dir: str, path: str
) -> spec_records.Generated:
    ours = hook_args.own_jobs(found.spec.get("containerEdits") or {})
    node = found.node
    libcuda = driver_edits.libcuda_of(node) if node else ""
    if ours:
        libcuda = ours[0].libcuda
    of_kind = ["--vendor", options.vendor] if options.vendor else []
    return spec_records.Generated(
        path=path,
        words=[*options.words, *of_kind, "--output-file", path],
        host_root=choices.host_root,
        libcuda=libcuda,
        fingerprint=node.fingerprint
        if node
        else host_fingerprint.fingerprint(choices.host_root, libcuda),
        has_node=node is not None,
        identity=spec_records.identity(path),
        files_dir=os.path.abspath(files_dir),
        inputs=spec_records.inputs(os.path.abspath(files_dir)),
    )
