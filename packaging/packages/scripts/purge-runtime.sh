# Another package may have the programs now. Otherwise remove CDI specs of gpuhook: they name its
# hook, which was removed.
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
	rmdir /run/cdi 2>/dev/null || true
	rm -rf /run/gpuhook
fi
