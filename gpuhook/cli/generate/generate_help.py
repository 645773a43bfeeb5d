# SPDX-License-Identifier: Apache-2.0
"""The --help of generate-cdi: its many options in sections, as people look for them."""

from __future__ import annotations

from gpuhook.cli.generate import toolkit_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    import click

SECTIONS = {
    "What is described": (
        "mode", "device-id", "no-all-device", "device-name-strategy", "vendor", "class",
        "driver-capabilities", "feature-flag", "create-device-nodes",
    ),
    "Where it is written": ("output", "format"),
    "Where the node's parts are": (
        "inventory", "driver-root", "dev-root", "host-root", "nvml-library",
        "library-search-path", "config-search-path", "files-dir",
    ),
    "What is done in containers": (
        "hooks", "hook-path", "disable-hook", "enable-hook", "ldconfig-path",
    ),
    "On a Tegra": ("csv-file", "csv-ignore-pattern", "csv-compat-container-root"),
    "Other": ("help",),
}  # fmt: skip
EXAMPLES = """
\b
Examples:
  gpuhook generate-cdi --output /var/run/cdi/nvidia.yaml
  gpuhook generate-cdi --mode imex --output /etc/cdi/imex.yaml
  gpuhook generate-cdi --inventory a100-mig --format json
"""


class GenerateCommand(toolkit_options.ToolkitCommand):
    """generate-cdi, whose --help has its options in sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options."""
        # click calls its own --help by a name that no parameter has.
        params = {param.opts[0].lstrip("-"): param for param in self.get_params(ctx)}
        for title, names in SECTIONS.items():
            records = [params[name].get_help_record(ctx) for name in names]
            with formatter.section(title):
                formatter.write_dl([record for record in records if record is not None])
