# What engines had before they were configured is kept as long as it was not given back.
for record in /var/lib/gpuhook/configured/*/record.json; do
	[ -e "$record" ] || continue
	echo "gpuhook: ${record%/*} is kept: the files of an engine as they were, not given back" >&2
done
if [ -z "$(find /var/lib/gpuhook/configured -name record.json 2>/dev/null)" ]; then
	rm -rf /var/lib/gpuhook
fi
rmdir /etc/gpuhook 2>/dev/null || true
