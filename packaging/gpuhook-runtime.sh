#!/bin/sh
# gpuhook-runtime: root's other commands than create and run go straight to the low-level runtime.
low=${GPUHOOK_LOW_LEVEL_RUNTIME-} bundle=. config='' edit='' before='' log='' name='' version='' status=${GPUHOOK_PYTHON_STATUS-} found=${GPUHOOK_PYTHON_ANSWER-}; unset GPUHOOK_PYTHON_STATUS GPUHOOK_PYTHON_ANSWER # of gpuhook-launch
# --version: programs parse the first line, or the last with `version` (Docker): gpuhook's is last, without that word.
start() { [ "$version" ] || exec "$@"; "$@"; status=$?; [ $status = 0 ] || echo "gpuhook-runtime: error GH1405: $1 --version failed with status $status: reinstall the low-level runtime, or set another in runtime.lowLevelRuntimes of /etc/gpuhook/config.yaml" >&2; exit $status; }
[ -n "$low" ] || case ${GPUHOOK_STATE_DIR:+root}${XDG_RUNTIME_DIR-} in ''|root*|/run/user/0) read -r low 2>/dev/null <"${GPUHOOK_STATE_DIR:-/run/gpuhook}/low-level-runtime" ;; esac
# shellcheck disable=SC3013 # dash, busybox and bash have -ef
[ "$low" -ef "$0" ] && low=
for word do
  case $word in create|run) edit=1 ;; --bundle=*|-bundle=*|-b=*) bundle=${word#*=} ;; -b/*) bundle=${word#-b} ;; --config=*) config=${word#*=} ;; esac
  case $before in --bundle|-bundle|-b) bundle=$word ;; --config|-f) config=$word ;; esac
  case $name$word in --version|-[vV]) version=1; trap 'echo "gpuhook: @VERSION@"' 0 ;; esac
  case $before,$word in *,-*|--*) ;; *) name=x ;; esac; before=$word
done
case $edit$low in /*) [ -x "$low" ] && start "$low" "$@" ;; esac
[ "$status" ] || found=$("@PYTHON@" -ISXutf8 -c 'import sys; sys.excepthook = lambda *e: exec("print(ascii(e[1]).translate({34: 39, 92: 47}))"); sys.path[:0] = ["@LIB@"]; import gpuhook_bundle as b; b.start("gpuhook.entry.runtime")' "$0" "$@")
status=${status:-$?}
case $status:$found in 0:/*) start "$found" "$@" ;; 0:*) status='0, no answer' found= ;; 1:*) ;; 3:*) exit 1 ;; *) found= ;; esac
# Python failed. If an upgrade has removed @LIB@, another launcher has replaced this one.
PATH=$PATH:/usr/bin:/bin grep -qsF '"@LIB@"' "$0"; [ $? = 1 ] && exec "$0" "$@"
# A container that names no GPU must start all the same; an escaped character may be part of a name. 1 and 2: no match, no file.
PATH=$PATH:/usr/bin:/bin grep -qsE 'NVIDIA_VISIBLE_DEVICES=([^v"]|v[^o])|AMD_VISIBLE_DEVICES=([^vn"]|v[^o]|n[^o])|amd-container-devices/|DOCKER_RESOURCE_[^=]*GPU|nvidia-container-devices/|cdi\.k8s\.io/|gpuhook-hook|gpuhook/memory/|io\.gpuhook\.|\\u00(2[0-57-9A-Fa-f]|3[0-9ABDFabdf]|[4-7])|\\/' "${config:-$bundle/config.json}"
case $? in 1|2) low=$(command -v "$low" || command -v runc || command -v crun); [ -n "$low" ] && start "$low" "$@" ;; esac
found=${found:-status $status}
error() { echo "gpuhook-runtime: error GH1404: @PYTHON@ with @LIB@ failed ($found), and $bundle/config.json names GPUs (or there is no runc or crun): reinstall gpuhook-runtime"; }
error >&2
for word do case $before in --log) log=$word ;; *) case $word in --log=*) log=${word#*=} ;; esac ;; esac; before=$word; done
case $bundle in *[\"\\]*) bundle=... ;; esac
# Engines read JSON there, as engine_log.py says. Status 4: Python has written a reason.
[ -z "$log" ] || [ "$status" = 4 ] || echo "{\"level\":\"error\",\"msg\":\"$(error)\"}" >>"$log"
exit 1
