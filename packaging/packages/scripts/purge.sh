# Keep the original files of engines until undo restores them.
kept=
for record in /var/lib/gpuhook/configured/*/record.json; do
	[ -e "$record" ] || continue
	kept=yes
	echo "gpuhook: kept ${record%/*}: it has the original files of an engine, which were not restored" >&2
done
[ -n "$kept" ] || rm -rf /var/lib/gpuhook
rmdir /etc/gpuhook 2>/dev/null || true
