#!@PYTHON@ -IS
import gc
import sys

gc.disable()
sys.path[:0] = ["@LIB@"]
import gpuhook_bundle  # noqa: E402 # made at install

gpuhook_bundle.load("gpuhook.entry.hooks.hook")
from gpuhook.entry.hooks.hook import main  # noqa: E402

main()
