# Another package may have the programs now. Otherwise remove CDI specs of gpuhook: they name its
# hook, which was removed, or devices that may become others, as nothing refreshes the spec now.
if ! command -v gpuhook-hook >/dev/null; then
	for record in /run/gpuhook/generated/*; do
		[ -f "$record" ] || continue
		spec=$(sed -n 's/.*"path": *"\(\/[^"\\]*\)".*/\1/p' "$record")
		case $spec in
		*/../*) ;;
		/run/cdi/* | /var/run/cdi/*) rm -f "$spec" ;;
		/*) [ ! -e "$spec" ] || echo "gpuhook: $spec names a hook that was removed: delete the file" >&2 ;;
		esac
	done
	for spec in /run/cdi/*.yaml /run/cdi/*.json /etc/cdi/*.yaml /etc/cdi/*.json; do
		if ! [ -f "$spec" ] || ! grep -qE 'io\.gpuhook\.options|GPUHOOK_SPEC_OPTIONS=' "$spec"; then continue; fi
		case $spec in
		/run/cdi/*) rm -f "$spec" ;;
		*) echo "gpuhook: nothing refreshes $spec now: delete the file" >&2 ;;
		esac
	done
	rmdir /run/cdi 2>/dev/null || true
	rm -rf /run/gpuhook
fi
