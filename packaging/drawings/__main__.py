# SPDX-License-Identifier: Apache-2.0
"""Write the pictures of docs/images as PNG, for places that show no SVG.

    PYTHONPATH=packaging python -m drawings DIRECTORY

social.png is the picture of the map on 1280 x 640 pixels, the size of GitHub's social preview. A
browser draws the pictures with the fonts of the machine, so the files are not part of the checkout.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

IMAGES = Path(__file__).parents[2] / "docs/images"
NAMES = ("map", "doctor", "sharing")
SOCIAL = ("social", "map", (1280, 640))
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_SCALE = 2  # pixels of the file for a pixel of the picture
_SIZE = re.compile(r'<svg [^>]*\bwidth="(\d+)" height="(\d+)"')
_PAGE = """\
<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; width: {width}px; height: {height}px; background: #f4f6f8; display: flex; }}
img {{ margin: auto; max-width: {most}px; }}
</style><img src="{picture}">
"""


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(prog="drawings", description=__doc__.split("\n", 1)[0])
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        sys.exit(f"drawings: no browser to draw with: install one of {', '.join(_BROWSERS)}")
    directory.mkdir(parents=True, exist_ok=True)
    for path in written(directory, browser):
        print(path)


def written(directory: Path, browser: str) -> list[Path]:
    """Write the pictures to a directory, and return their paths."""
    found = []
    for name in NAMES:
        picture = IMAGES / f"{name}.svg"
        found.append(directory / f"{name}.png")
        draw(browser, picture, found[-1], size(picture), _SCALE)
    name, source, page = SOCIAL
    found.append(directory / f"{name}.png")
    draw(browser, IMAGES / f"{source}.svg", found[-1], page, 1)
    return found


def size(picture: Path) -> tuple[int, int]:
    """Return the width and the height of an SVG file in pixels."""
    found = _SIZE.search(picture.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{picture} has no width and height")
    return int(found[1]), int(found[2])


def draw(browser: str, picture: Path, image: Path, page_size: tuple[int, int], scale: int) -> None:
    """Write an SVG file as PNG, in the middle of a page of this size."""
    width, height = page_size
    with TemporaryDirectory() as place:
        page = Path(place, "page.html")
        page.write_text(
            _PAGE.format(width=width, height=height, most=width, picture=picture.as_uri()),
            encoding="utf-8",
        )
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options += ["--no-first-run", "--disable-background-networking", "--disable-sync"]
        options += [f"--user-data-dir={place}/browser", f"--force-device-scale-factor={scale}"]
        options += [f"--window-size={width},{height}", f"--screenshot={image.resolve()}"]
        subprocess.run([browser, *options, page.as_uri()], check=True, capture_output=True)


if __name__ == "__main__":
    main()
