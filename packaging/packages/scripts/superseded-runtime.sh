# Another release is there: the byte code of this one goes, and its directory can.
find /@LIBRARY@ -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
rm -f /@LIBRARY@/*.bundle
