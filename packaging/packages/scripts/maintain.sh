#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What packages of every kind do to a node besides laying down files. No engine is touched, and
# nothing in here may fail: a package that cannot be installed or removed helps nobody.
#
#   maintain byte-code          make it, for the Python that is there
#   maintain units-on UNIT...   enable and start gpuhook's own services
#   maintain units-off UNIT...  stop and disable them
#   maintain leaving PACKAGE    say what still needs it, and remove the byte code of its modules
library=@LIB@

byte_code() {
	# Of releases that are gone, what a program of theirs left behind as it ended.
	for other in "${library%/*}"/*/; do
		[ -n "$(find "$other" -name '*.py' -print -quit)" ] || rm -rf "$other"
	done
	@PYTHON@ -IS "$library/byte_code.py" >&2 ||
		echo "gpuhook: no byte code could be made in $library: containers start slower" >&2
}

units_on() {
	for unit do
		if command -v deb-systemd-helper >/dev/null; then
			deb-systemd-helper unmask "$unit" >/dev/null
			if deb-systemd-helper --quiet was-enabled "$unit"; then
				deb-systemd-helper enable "$unit" >/dev/null
			else
				deb-systemd-helper update-state "$unit" >/dev/null
			fi
		elif command -v systemctl >/dev/null; then
			systemctl --no-reload preset "$unit" >/dev/null 2>&1
		fi
	done
	[ -d /run/systemd/system ] || return 0
	systemctl daemon-reload
	for unit do
		! systemctl --quiet is-enabled "$unit" 2>/dev/null || systemctl --no-block start "$unit"
	done
}

units_off() {
	[ ! -d /run/systemd/system ] || systemctl stop "$@" 2>/dev/null
	# Debian's are disabled when the package is purged: enabled once more, they are as they were.
	command -v deb-systemd-helper >/dev/null || systemctl --no-reload disable "$@" >/dev/null 2>&1
}

leaving() {
	package=$1
	if [ "$package" = gpuhook ]; then
		needed >&2
	fi
	while read -r module; do
		directory=${module%/*} name=${module##*/}
		rm -f "$library/$directory/__pycache__/${name%.py}".*.pyc
		rmdir "$library/$directory/__pycache__" 2>/dev/null
	done <"$library/$package.modules"
	[ "$package" = gpuhook-runtime ] || return 0
	find "$library" -name __pycache__ -prune -exec rm -rf {} +
	rm -f "$library"/*.bundle
}

# What does not start any more once gpuhook-runtime is gone: engines that name it, and containers
# that were made by it.
needed() {
	for record in /var/lib/gpuhook/configured/*/record.json; do
		[ -e "$record" ] || continue
		engine=${record%/record.json} engine=${engine##*/}
		echo "gpuhook: $engine is configured for gpuhook; before gpuhook-runtime is removed:"
		echo "  gpuhook configure undo $engine"
	done
	if users=$(@BIN@/gpuhook configure users 2>/dev/null) && [ -n "$users" ]; then
		echo "gpuhook: containers that need gpuhook-runtime to start again:"
		echo "$users"
	fi
}

verb=$1
shift
case $verb in
byte-code) byte_code ;;
units-on) units_on "$@" ;;
units-off) units_off "$@" ;;
leaving) leaving "$@" ;;
esac
exit 0
