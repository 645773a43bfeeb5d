# Another package may have the programs now. Otherwise keep the original files of engines until undo
# restores them.
if ! command -v gpuhook >/dev/null; then
	kept=
	for record in /var/lib/gpuhook/configured/*/record.json; do
		[ -e "$record" ] || continue
		kept=yes
		echo "gpuhook: kept ${record%/*}: it has the original files of an engine, which were not restored" >&2
	done
	[ -n "$kept" ] || rm -rf /var/lib/gpuhook
	rmdir /etc/gpuhook 2>/dev/null || true
fi
