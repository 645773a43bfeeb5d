#!@PYTHON@ -IS
import sys

sys.path[:0] = ["@LIB@"]
import gpuhook_bundle  # noqa: E402 # made at install

gpuhook_bundle.start("gpuhook.entry.hooks.hook")
