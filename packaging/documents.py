# SPDX-License-Identifier: Apache-2.0
"""Write the manual pages and the shells' completions of an installed `gpuhook`.

    python3 packaging/documents.py LIBRARY SHARE

LIBRARY is the directory that has the package, SHARE the prefix's share directory.
"""

from __future__ import annotations

import os
import sys

COMPLETIONS = {
    "bash": "bash-completion/completions/gpuhook",
    "fish": "fish/vendor_completions.d/gpuhook.fish",
    "zsh": "zsh/site-functions/_gpuhook",
}


def main() -> None:
    """Write all of them."""
    library, share = sys.argv[1:]
    sys.path[:0] = [library]
    from gpuhook.cli import completion, manual
    from gpuhook.cli import main as command

    for name, text in manual.pages().items():
        _write(os.path.join(share, f"man/man{manual.SECTION}", name), text)
    for shell, path in COMPLETIONS.items():
        _write(os.path.join(share, path), completion.script(shell, command))


def _write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(path + ".new", path)


if __name__ == "__main__":
    main()
