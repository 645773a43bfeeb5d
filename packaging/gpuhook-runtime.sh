#!/bin/sh
# gpuhook-runtime: root's other commands than create and run go straight to the low-level runtime, and so does a container whose
# config.json has no word of a request.
low=${GPUHOOK_LOW_LEVEL_RUNTIME-} bundle=. config='' edit='' before='' log='' name='' version='' usual=''
# --version: programs parse the first line, or the last with `version` (Docker): gpuhook's is last, without that word.
start() { [ "$version" ] || exec "$@"; "$@"; status=$?; [ $status = 0 ] || echo "gpuhook-runtime: error GH1405: $1 --version failed with status $status: reinstall the low-level runtime, or set another in runtime.lowLevelRuntimes of /etc/gpuhook/config.yaml" >&2; exit $status; }
[ -n "$low" ] || case ${GPUHOOK_STATE_DIR:+root}${XDG_RUNTIME_DIR-} in ''|root*|/run/user/0) read -r low 2>/dev/null <"${GPUHOOK_STATE_DIR:-/run/gpuhook}/low-level-runtime" ;; esac
# shellcheck disable=SC3013 # dash, busybox and bash have -ef
[ "$low" -ef "$0" ] && low=
# Whether Python would search and find $low: see runtime.find_low_level().
is_first() {
  IFS=:
  for name in runc crun; do for word in $PATH /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin /sbin /bin; do
    # shellcheck disable=SC3013
    [ -x "$word/$name" ] && [ -f "$word/$name" ] && ! [ "$word/$name" -ef "$0" ] && { unset IFS; [ "$word/$name" = "$low" ]; return; }
  done; done
  unset IFS; return 1
}
# Whether Python would start $low with an unchanged config.json: no setting of the words or runtimes, and none of the words that
# prefilter.py lists, nor a JSON escape that could hide one. The settings may have these words in comments.
needs_no_python() {
  settings=${GPUHOOK_CONFIG:-/etc/gpuhook/config.yaml}
  [ -e "$settings" ] || settings=/dev/null
  [ "$usual$version" = 3 ] && [ -f "$bundle/config.json" ] && [ -f "$low" ] && [ -x "$low" ] || return
  [ -z "${GPUHOOK_CDI_ANNOTATION_PREFIXES-}${GPUHOOK_REQUEST_SWARM_RESOURCES-}${GPUHOOK_RUNTIME_LOW_LEVEL_RUNTIMES-}" ] || return
  case ${GPUHOOK_LOW_LEVEL_RUNTIME-} in /*) ;; '') is_first || return ;; *) return 1 ;; esac
  PATH=$PATH:/usr/bin:/bin LC_ALL=C grep -qsE '^[[:space:]]*([^#[:space:]].*)?(NVIDIA_VISIBLE_DEVICES|"CUDA_VERSION=|(nvidia|amd)-container-devices|gpuhook-hook|gpuhook/memory/|io\.gpuhook\.record|AMD_VISIBLE_DEVICES|cdi\.k8s\.io/|\\u00([4-7]|2[^6]|3[^cCeE])|\\/|annotationPrefixes|swarmResources|lowLevelRuntimes)' "$bundle/config.json" "$settings"
  [ $? = 1 ]
}
for word do
  case $word in create|run) edit=1 ;; --bundle=*|-bundle=*|-b=*) bundle=${word#*=} ;; -b/*) bundle=${word#-b} ;; --config=*) config=${word#*=} ;; esac
  case $before in --bundle|-bundle|-b) bundle=$word ;; --config|-f) config=$word ;; esac
  case $name$word in --version|-[vV]) version=1; trap 'echo "gpuhook: @VERSION@"' 0 ;; esac
  case $before,$word in *,-*|--*) ;; *) name=x ;; esac; before=$word
  # Engines write create --bundle PATH: only then is it certain which file Python would read.
  case $usual,$word in ,create|,run) usual=1 ;; 1,--bundle) usual=2 ;; 2,*) usual=3 ;; 1,*|*,-[!-]*|*,---*|*,--b*|*,--f*|*,--config*) usual=x ;; esac
done
[ -z "$edit" ] && [ -x "$low" ] && start "$low" "$@"
[ "$edit" ] && needs_no_python && exec "$low" "$@"
found=$("@PYTHON@" -IS -c 'import gc, sys; gc.disable(); sys.excepthook = lambda t, e, b: print(str(e).translate({**dict.fromkeys(range(32), 32), 34: 39, 92: 47})); sys.path[:0] = ["@LIB@"]; import gpuhook_bundle as b; b.load("gpuhook.entry.runtime"); from gpuhook.entry.runtime import main; main()' "$0" "$@")
status=$?
case $status in 0) start "$found" "$@" ;; 1) ;; 3) exit 1 ;; *) found= ;; esac
# Python failed. If an upgrade has removed @LIB@, another launcher has replaced this one.
PATH=$PATH:/usr/bin:/bin grep -qsF '"@LIB@"' "$0"; [ $? = 1 ] && exec "$0" "$@"
# A container that names no GPU must start all the same; 1 and 2: no match, no file.
PATH=$PATH:/usr/bin:/bin grep -qsE 'NVIDIA_VISIBLE_DEVICES=([^v"]|v[^o])|AMD_VISIBLE_DEVICES=([^vn"]|v[^o]|n[^o])|amd-container-devices/|DOCKER_RESOURCE_[^=]*GPU|nvidia-container-devices/|cdi\.k8s\.io/|gpuhook-hook|gpuhook/memory/|io\.gpuhook\.' "${config:-$bundle/config.json}"
case $? in 1|2) [ -x "$low" ] || low=$(command -v runc || command -v crun); [ -n "$low" ] && start "$low" "$@" ;; esac
found=${found:-status $status}
error() { echo "gpuhook-runtime: error GH1404: @PYTHON@ with @LIB@ failed ($found), and $bundle/config.json names GPUs (or there is no runc or crun): reinstall gpuhook-runtime"; }
error >&2
for word do case $before in --log) log=$word ;; *) case $word in --log=*) log=${word#*=} ;; esac ;; esac; before=$word; done
case $bundle in *[\"\\]*) bundle=... ;; esac
# Engines read JSON there, as engine_log.py says. Status 4: Python has written a reason.
[ -z "$log" ] || [ $status = 4 ] || echo "{\"level\":\"error\",\"msg\":\"$(error)\"}" >>"$log"
exit 1
