{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* The directories of the nodes that pods do not see below /driver-root, as a JSON list. */ -}}
{{- define "gpuhook.hidden" -}}
{{- $isWhole := eq "/" (default "/" .Values.nvidiaDriverRoot) -}}
{{- ternary (default list .Values.hiddenDirectories) list $isWhole | toJson -}}
{{- end -}}

{{- /* Directories of the nodes with sockets of the driver's daemons. */ -}}
{{- define "gpuhook.daemons" -}}
{{- ternary (list "nvidia-persistenced" "nvidia-fabricmanager") list (has "run" (include "gpuhook.hidden" . | fromJsonArray)) | toJson -}}
{{- end -}}

{{- define "gpuhook.driverRootMounts" -}}
- name: driver-root
  mountPath: /driver-root
  readOnly: true
  # A node whose / is not a shared mount needs None, or `mount --make-rshared /`.
  mountPropagation: {{ .Values.mountPropagation }}
{{- range $i, $name := include "gpuhook.hidden" . | fromJsonArray }}
{{- if eq $i 0 }}
# A read-only mount does not include the mounts below it: the node's /proc/sys, /sys and sockets of
# its engine would remain usable. Empty directories hide them.
{{- end }}
- name: hidden
  mountPath: /driver-root/{{ $name }}
  subPath: {{ $name }}
{{- end }}
{{- range include "gpuhook.daemons" . | fromJsonArray }}
- name: {{ . }}
  mountPath: /driver-root/run/{{ . }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "gpuhook.driverRootVolumes" -}}
- name: driver-root
  hostPath:
    path: {{ default "/" .Values.nvidiaDriverRoot }}
    type: Directory
{{- if include "gpuhook.hidden" . | fromJsonArray }}
- name: hidden
  emptyDir:
    sizeLimit: 1Mi
{{- end }}
{{- range $i, $name := include "gpuhook.daemons" . | fromJsonArray }}
{{- if eq $i 0 }}
# Sockets of the driver's daemons, which CDI specs contain.
{{- end }}
- name: {{ $name }}
  hostPath:
    path: /run/{{ $name }}
    type: DirectoryOrCreate
{{- end }}
{{- end -}}
