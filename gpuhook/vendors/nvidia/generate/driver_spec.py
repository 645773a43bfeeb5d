# SPDX-License-Identifier: Apache-2.0
"""A call of generate-cdi for NVIDIA GPUs: the checked options, and the spec with driver files."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial

from gpuhook.apply.rootfs import hook_args
from gpuhook.cdi.hot import names
from gpuhook.errors import fault
from gpuhook.host.hot import state
from gpuhook.vendors import driver_worker
from gpuhook.vendors.nvidia import discover, inventory_tables
from gpuhook.vendors.nvidia.driver import site_rules
from gpuhook.vendors.nvidia.generate import toolkit_switches, written_spec
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.modes import mode_table
from gpuhook.vendors.nvidia.spec import gpu_spec
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.spec_call import DescribedSpecs, SpecCall, WrongOptionsError
from gpuhook.vendors.spec_choices import DEFAULT_HOOK_PATH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpuhook.vendors.nvidia.discover import Roots
    from gpuhook.vendors.spec_call import SpecOptions

_WITHOUT_HOOK = (
    "this host has no gpuhook-hook, so the spec is written as with --hooks none: engines do not "
    "notice when it becomes stale; install gpuhook-runtime and regenerate the spec, or use "
    "--hook-path"
)
_SECONDS = 60.0  # without persistence mode, the driver initialises each GPU


def spec_call(options: SpecOptions) -> SpecCall:
    """Return the call with these options; raises WrongOptionsError, GH1510, GH1515, GH1517-GH1521.

    Describing the node raises what the driver and its files raise.
    """
    mode: str = options.own["mode"]
    csv = _csv_choices(options)
    is_here = options.inventory is None
    if not is_here:
        _require_no_live_option(options)
    where = _roots(options)
    meant = mode_table.chosen(mode, where) if is_here else mode_table.NVML
    choices, notes = _choices(options, csv, meant)
    if any(csv.values()) and meant != mode_table.CSV:
        notes.append(f"the options --csv-... have no effect in mode {meant}")
    if meant == mode_table.MANAGEMENT:
        _require_whole(choices)
    return SpecCall(
        partial(_described, options, where, choices),
        notes=(*notes, *_ignored_options(options, meant, choices)),
        several=f"--feature-flag {toolkit_switches.COHERENT}" if choices.coherent else "",
    )


def _roots(options: SpecOptions) -> Roots:
    own = options.own
    return discover.roots(
        own["driver_root"],
        options.dev_root,
        options.host_root,
        nvml_library=own["nvml_library"],
        library_search_paths=own["library_search_path"],
        config_search_paths=own["config_search_path"],
        files_dir=own["files_dir"] or site_rules.DIRECTORY,
    )


def _csv_choices(options: SpecOptions) -> dict[str, Any]:
    """Return the --csv options as fields of Choices."""
    mode = options.own["mode"]
    found = {
        "csv_files": options.own["csv_file"],
        "csv_ignore_patterns": options.own["csv_ignore_pattern"],
        "csv_compat_root": options.own["csv_compat_container_root"] or "",
    }
    if any(found.values()) and mode not in (mode_table.AUTO, mode_table.CSV):
        raise WrongOptionsError(f"the options --csv-... have no effect with --mode {mode}")
    return found


def _require_no_live_option(options: SpecOptions) -> None:
    """Refuse an option that --inventory excludes."""
    mode, option = options.own["mode"], ""
    if mode not in (mode_table.AUTO, mode_table.NVML):
        option = f"--mode {mode}"
    if options.own["files_dir"] is not None:
        option = "--files-dir"
    if options.own["create_device_nodes"]:
        option = "--create-device-nodes"
    if option:
        raise WrongOptionsError(
            f"{option} cannot be used with --inventory, which describes the GPUs and the driver of "
            "another node"
        )


def _ignored_options(options: SpecOptions, mode: str, choices: Choices) -> Iterator[str]:
    """Yield a note on each option that has no effect."""
    if options.own["files_dir"] is not None and mode not in mode_table.OF_DRIVER_FILES:
        yield f"--files-dir has no effect in mode {mode}, which includes no driver files"
    if options.own["hook_path"] and choices.hooks == "none":
        yield "--hook-path has no effect with --hooks none"
    if options.foreign_hook:
        yield f"{options.foreign_hook} is ignored: the hook of this spec is {choices.hook_path}"


def _described(options: SpecOptions, where: Roots, choices: Choices) -> DescribedSpecs:
    """Return the specs of a dump or of this machine."""
    if options.inventory is not None:
        found = gpu_spec.describe(dump_file.load(options.inventory), choices)
    else:
        describe = partial(mode_table.described, options.own["mode"], where, choices)
        found = driver_worker.call_driver(describe, _SECONDS)
    node = found.node
    specs = DescribedSpecs(found.spec, found.warnings, found.further)
    if node is not None:
        losses = [gpu.loss for gpu in node.gpus]  # the spec's warnings have them
        of_node = (one for one in node.warnings if one not in losses)
        source = options.inventory or where.driver
        facts = {"source": source, **inventory_tables.facts(node)}
        specs = replace(specs, warnings=(*of_node, *found.warnings), facts=facts)
    if options.inventory is not None:
        return specs
    record = partial(written_spec.record, found, choices, options, where.files_dir)
    return replace(specs, record=record)


def _require_whole(choices: Choices) -> None:
    """Raise GH1520 for an option that selects devices: mode management has one device."""
    for option, is_given in (
        ("--device-id", bool(choices.device_ids)),
        ("--no-all-device", not choices.with_all),
        ("--create-device-nodes", choices.create_nodes),
        (f"--feature-flag {toolkit_switches.COHERENT}", choices.coherent),
    ):
        if is_given:
            both = f"{option} and --mode {mode_table.MANAGEMENT}"
            reason = "its only device, all, has every node of the host"
            raise fault("GH1520", options=both, reason=reason)


def _choices(options: SpecOptions, csv: dict[str, Any], mode: str) -> tuple[Choices, list[str]]:
    """Return the checked choices, and notes on what has no effect.

    Raises GH1510, GH1515 and what toolkit_switches.choices raises.
    """
    own, is_here = options.own, options.inventory is None
    vendor, _, device_class = mode_table.KINDS[mode].partition("/")
    vendor = options.vendor or vendor
    if own["device_class"] is not None:
        device_class = own["device_class"]
    if not names.is_kind(f"{vendor}/x"):
        raise fault("GH1510", option="vendor", value=vendor)
    if not names.is_kind(f"x/{device_class}"):
        raise fault("GH1510", option="class", value=device_class)
    hook_path = own["hook_path"] or (_installed_hook() if is_here else DEFAULT_HOOK_PATH)
    switched, notes = toolkit_switches.choices(own, mode, is_here=is_here)
    hooks = own["hooks"]
    if not hook_path:
        if hooks != "none" and mode in mode_table.OF_DRIVER_FILES:
            _require_no_hook_option(options)
            hooks, notes = "none", [*notes, _WITHOUT_HOOK]
        hook_path = DEFAULT_HOOK_PATH
    if not hook_path.startswith("/"):
        raise fault("GH1515", what="--hook-path", path=hook_path)
    whole = Choices(
        vendor=vendor,
        device_class=device_class,
        strategies=own["device_name_strategy"],
        device_ids=options.device_ids,
        with_all=options.with_all,
        hooks=hooks,
        hook_path=hook_path,
        capabilities=options.capabilities,
        host_root=options.host_root,
        create_nodes=own["create_device_nodes"],
        **csv,
        **switched,
    )
    return whole, notes


def _installed_hook() -> str:
    """Return the path of this installation's gpuhook-hook, else a usual one, "" without any.

    A wheel contains no gpuhook-hook.
    """
    beside = os.path.dirname(os.path.abspath(sys.argv[0])) if "/" in sys.argv[0] else ""
    for directory in (beside, *state.PROGRAM_DIRS):
        path = os.path.join(directory, hook_args.HOOK_NAME)
        if directory and os.access(path, os.X_OK):
            return path
    return ""


def _require_no_hook_option(options: SpecOptions) -> None:
    """Raise GH1521 if an option or a setting asks for hooks: this host has no gpuhook-hook."""
    for option in ("hooks", "disable_hook", "enable_hook", "ldconfig_path"):
        if option in options.given:
            name = f"--{option.replace('_', '-')}"
            raise fault("GH1521", option=name, dirs=":".join(state.PROGRAM_DIRS))
