# Another release is installed: remove the byte code of this one's modules, so that their
# directories can be removed.
[ ! -r /@LIBRARY@/@PACKAGE@.modules ] || while read -r module; do
	directory=/@LIBRARY@/${module%/*} name=${module##*/}
	rm -f "$directory/__pycache__/${name%.py}".*.pyc
	rmdir "$directory/__pycache__" 2>/dev/null || true
done </@LIBRARY@/@PACKAGE@.modules
