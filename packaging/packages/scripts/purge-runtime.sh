# CDI specs that gpuhook wrote name its hook, which is gone.
for record in /run/gpuhook/generated/*; do
	[ -f "$record" ] || continue
	spec=$(sed -n 's/.*"path": *"\(\/[^"\\]*\)".*/\1/p' "$record")
	case $spec in
	*/../*) ;;
	/run/cdi/* | /var/run/cdi/*) rm -f "$spec" ;;
	/*) [ ! -e "$spec" ] || echo "gpuhook: $spec names a hook that is gone: remove it" >&2 ;;
	esac
done
rmdir /run/cdi 2>/dev/null || true
rm -rf /run/gpuhook
