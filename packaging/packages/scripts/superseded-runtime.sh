# Another release is installed: remove the byte code of this one, so that its directory can be removed.
find /@LIBRARY@ -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
rm -f /@LIBRARY@/*.bundle
