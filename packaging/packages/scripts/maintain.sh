#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Maintainer script of all package formats. It changes no engine, and never fails, because that
# would block the installation or removal of a package.
#
#   maintain byte-code          compile it for the installed Python
#   maintain units-on UNIT...   enable gpuhook's services according to its preset, and start them
#   maintain units-new UNIT...  restart the enabled ones after an upgrade of their files
#   maintain units-off UNIT...  stop and disable them
#   maintain leaving PACKAGE    list what still needs it, and remove the byte code of its modules
library=@LIB@
preset=/usr/lib/systemd/system-preset/90-gpuhook.preset

byte_code() {
	@PYTHON@ -IS "$library/byte_code.py" >&2 ||
		echo "gpuhook: could not compile byte code in $library: containers start slower" >&2
}

units_on() {
	for unit do
		if command -v deb-systemd-helper >/dev/null; then
			enabled_in_debian "$unit" >/dev/null
		elif command -v systemctl >/dev/null; then
			systemctl --no-reload preset "$unit" >/dev/null 2>&1
		fi
	done
	units_new "$@"
}

# A unit that the preset does not enable is enabled only if it was enabled before.
enabled_in_debian() {
	deb-systemd-helper unmask "$1"
	if ! grep -qx "disable $1" "$preset" || deb-systemd-helper debian-installed "$1"; then
		! deb-systemd-helper --quiet was-enabled "$1" || deb-systemd-helper enable "$1"
	fi
	deb-systemd-helper update-state "$1"
}

units_new() {
	[ -d /run/systemd/system ] || return 0
	systemctl daemon-reload
	for unit do
		systemctl --quiet is-enabled "$unit" 2>/dev/null || continue
		! allowed "$unit" restart || systemctl --no-block restart "$unit"
	done
}

units_off() {
	if [ -d /run/systemd/system ]; then
		for unit do
			! allowed "$unit" stop || systemctl stop "$unit" 2>/dev/null
		done
	fi
	# On Debian, units are disabled when the package is purged, so a new installation enables them again.
	command -v deb-systemd-helper >/dev/null || systemctl --no-reload disable "$@" >/dev/null 2>&1
}

# Whether Debian's policy layer lets a package do this to a service (Debian Policy 9.3.3.2).
allowed() {
	[ -x /usr/sbin/policy-rc.d ] || return 0
	/usr/sbin/policy-rc.d "$1" "$2" >/dev/null 2>&1
	case $? in 0 | 104) ;; *) return 1 ;; esac
}

leaving() {
	package=$1
	case $package in gpuhook | gpuhook-standalone) needed >&2 ;; esac
	[ ! -r "$library/$package.modules" ] || while read -r module; do
		directory=${module%/*} name=${module##*/}
		rm -f "$library/$directory/__pycache__/${name%.py}".*.pyc
		rmdir "$library/$directory/__pycache__" 2>/dev/null
	done <"$library/$package.modules"
	[ "$package" = gpuhook-runtime ] || return 0
	find "$library" -name __pycache__ -prune -exec rm -rf {} +
	rm -f "$library"/*.bundle
}

# List what cannot start without gpuhook-runtime: engines that name it, and containers that it
# created.
needed() {
	for record in /var/lib/gpuhook/configured/*/record.json; do
		[ -e "$record" ] || continue
		engine=${record%/record.json} engine=${engine##*/}
		echo "gpuhook: $engine is configured for gpuhook; before gpuhook-runtime is removed:"
		echo "  gpuhook configure undo $engine"
	done
	if ! users=$(@BIN@/gpuhook --quiet configure users 2>&1); then
		echo "gpuhook: could not list the containers that need gpuhook-runtime:"
		echo "$users"
	elif [ -n "$users" ]; then
		echo "gpuhook: containers that need gpuhook-runtime to start again:"
		echo "$users"
	fi
}

verb=$1
shift
case $verb in
byte-code) byte_code ;;
units-on) units_on "$@" ;;
units-new) units_new "$@" ;;
units-off) units_off "$@" ;;
leaving) leaving "$@" ;;
esac
exit 0
