#!/bin/sh
# gpuhook: the command line, with the interpreter that has its dependencies.
exec "@CLI@" -I -c 'import sys; del sys.argv[0]; sys.path[:0] = ["@LIB@"]; from gpuhook.cli import main; main()' "$0" "$@"
