#!@PYTHON@ -IS
import sys

sys.path[:0] = ["@LIB@"]
from gpuhook.programs.hook import main  # noqa: E402

main()
