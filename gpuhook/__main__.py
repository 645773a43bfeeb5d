# SPDX-License-Identifier: Apache-2.0
"""`python -m gpuhook`: the command gpuhook, by whichever interpreter has the package."""

from __future__ import annotations

from gpuhook.cli import main

if __name__ == "__main__":
    main(prog_name="gpuhook")
