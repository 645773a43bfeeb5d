# SPDX-License-Identifier: Apache-2.0
"""Write the generated files of this checkout.

    PYTHONPATH=packaging python -m generate [--check]

With --check nothing is written: old files are named, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
sys.path[:0] = [str(CHECKOUT)]

from generate import (  # noqa: E402 # of this checkout
    chart,
    chart_values,
    doctor_checks,
    errors,
    figures,
    inventory_schema,
    pictures,
    plugin_config,
    promises,
    settings,
    support,
)

# Each returns the texts of files, by their paths in the checkout.
GENERATORS = (
    errors.files,
    settings.files,
    plugin_config.files,
    doctor_checks.files,
    inventory_schema.files,
    support.files,
    promises.files,
    figures.files,
    pictures.files,
    chart.files,
    chart_values.files,
)


def main() -> None:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(prog="generate", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing, name old files")
    options = parser.parse_args()
    old = outdated(CHECKOUT)
    if options.check and old:
        sys.exit(f"run make generate: {', '.join(sorted(old))} differ from their sources")
    for path, text in old.items():
        (CHECKOUT / path).write_text(text, encoding="utf-8")
        print(path)


def outdated(checkout: Path) -> dict[str, str]:
    """Return the new texts of the files that differ, by their paths in the checkout."""
    made = {path: text for files in GENERATORS for path, text in files().items()}
    return {path: text for path, text in made.items() if _text(checkout / path) != text}


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    main()
