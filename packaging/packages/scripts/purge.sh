# What engines had before they were configured is kept as long as it was not given back.
kept=
for record in /var/lib/gpuhook/configured/*/record.json; do
	[ -e "$record" ] || continue
	kept=yes
	echo "gpuhook: ${record%/*} is kept: the files of an engine as they were, not given back" >&2
done
[ -n "$kept" ] || rm -rf /var/lib/gpuhook
rmdir /etc/gpuhook 2>/dev/null || true
