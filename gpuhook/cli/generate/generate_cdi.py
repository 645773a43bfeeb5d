# SPDX-License-Identifier: Apache-2.0
"""`gpuhook generate-cdi`: the CDI spec of a node, for engines that read CDI and the wrapper."""

from __future__ import annotations

from typing import Any

import click

from gpuhook.cli.generate import generate_cdi_options, spec_writer, vendor_choice, vendor_spec
from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.vendors.interfaces.vendor_interface import Vendor


@click.command(
    name="generate-cdi",
    cls=generate_cdi_options.GenerateCommand,
    epilog=generate_cdi_options.EXAMPLES,
    context_settings={"auto_envvar_prefix": "GPUHOOK_GENERATE_CDI"},  # also of `cdi generate`
)
@generate_cdi_options.generate_options
def generate_cdi(output: str | None, fmt: str | None, **options: Any) -> None:
    """Write a CDI spec for the GPUs and the driver of a node.

    A GPU in MIG mode is described by its MIG instances, not as a whole GPU. GPUs of two vendors
    have a file each: --output-file is that of the vendor in its name, else of the first one.

    Every container engine that reads CDI can then give containers these GPUs, and so can
    gpuhook-runtime: podman run --device nvidia.com/gpu=0 ...

    generate-cdi also reads the NVIDIA_CTK_CDI_GENERATE_* variables of NVIDIA's toolkit; its own
    variables take precedence.
    """
    output = None if output == "-" else output
    chosen = vendor_choice.vendors_of(click.get_current_context(), options)
    if output is None:
        _require_one_document(chosen, fmt)
    files = vendor_choice.files(output, chosen)
    faults = []
    for vendor in chosen:
        try:
            vendor_spec.generate(vendor, output=files[vendor.name], fmt=fmt, **options)
        except GpuhookError as error:
            faults.append(error)  # the other vendor's GPUs may work
    for other in faults[1:]:
        click.echo(f"Error {other.code}: {other.message}", err=True)
    if faults:
        raise faults[0]


def _require_one_document(chosen: Sequence[Vendor], fmt: str | None) -> None:
    """Raise GH1520 for several specs in one JSON document."""
    if len(chosen) > 1 and spec_writer.format_of(None, fmt) == "json":
        titles = " and ".join(vendor.title for vendor in chosen)
        both = f"-o json without --output-file, and --vendor {vendor_choice.AUTO}"
        reason = f"the GPUs of {titles} have a spec each, but JSON is a single document"
        raise fault("GH1520", options=both, reason=reason)
