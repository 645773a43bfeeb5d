#!/bin/sh
# kubectl-gpuhook: the plugin of kubectl, with the interpreter that has gpuhook's dependencies.
exec "@CLI@" -I -c 'import sys; del sys.argv[0]; sys.path[:0] = ["@LIB@"]; from gpuhook.cli.kubectl_plugin import main; main()' "$0" "$@"
