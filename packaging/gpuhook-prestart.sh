#!/bin/sh
# gpuhook-prestart: the OCI hook, state on standard input. A container that names no GPU and has no
# memory limit ends here, in a millisecond and with no Python that could fail; any other goes to
# `gpuhook-hook prestart`.
case ${1-prestart} in prestart) ;; *) exec "@BIN@/gpuhook-hook" "$@" ;; esac
PATH=$PATH:/usr/bin:/bin
state=$(cat 2>/dev/null)
bundle=${state#*'"bundle":'} bundle=${bundle#*'"'} bundle=${bundle%%'"'*}
settings=${GPUHOOK_CONFIG:-/etc/gpuhook/config.yaml}
[ -r "$settings" ] || settings=/dev/null
# The words of a request and of a memory limit; if the settings name more words, Python reads them.
if [ $# -lt 2 ] && [ -r "$bundle/config.json" ]; then
  line='^[[:space:]]*([^#[:space:]].*)?' # not a comment of the settings
  words='NVIDIA_VISIBLE_DEVICES=([^v"]|v[^o]|vo[^i]|voi[^d]|void[^"])|AMD_VISIBLE_DEVICES=([^vn"]|v[^o]|vo[^i]|voi[^d]|void[^"]|n[^o]|no[^n]|non[^e]|none[^"])|(nvidia|amd)-container-devices|cdi\.k8s\.io|gpuhook/memory/|(NVIDIA|AMD)_GPU_MEMORY_|annotationPrefixes|swarmResources'
  # JSON may have them in escaped characters: prefilter.has_unusual_escapes().
  words=$words'|\\u00(2[0-57-9A-Fa-f]|3[0-9ABDFabdf]|[4-7])|\\/'
  # 1: none of them. An old image requests all GPUs by CUDA_VERSION, if it has no newer variable.
  LC_ALL=C grep -qsE "$line($words|\"CUDA_VERSION=)" "$bundle/config.json" "$settings"
  [ $? -eq 1 ] && exit 0
  LC_ALL=C grep -qsE "$line($words)" "$bundle/config.json" "$settings"
  [ $? -eq 1 ] && grep -qsE '"NVIDIA_(VISIBLE_DEVICES=|REQUIRE_CUDA=[^"])' "$bundle/config.json" && exit 0
fi
shift $(($# > 0))
printf '%s' "$state" | "@BIN@/gpuhook-hook" prestart "$@"
