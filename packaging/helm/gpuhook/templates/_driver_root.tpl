{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* The directories of the nodes that pods do not see below /driver-root, as a JSON list. */ -}}
{{- define "gpuhook.hidden" -}}
{{- $isWhole := eq "/" (default "/" .Values.nvidiaDriverRoot) -}}
{{- ternary (default list .Values.hiddenDirectories) list $isWhole | toJson -}}
{{- end -}}

{{- /*
Directories below /run that CDI specs contain, as JSON: paths by the names of their volumes. They have
the sockets of the driver's daemons, and udev's files, which GPUDirect Storage reads.
*/ -}}
{{- define "gpuhook.runDirectories" -}}
{{- $all := dict "nvidia-persistenced" "nvidia-persistenced" "nvidia-fabricmanager" "nvidia-fabricmanager" "udev" "udev/data" -}}
{{- ternary $all dict (has "run" (include "gpuhook.hidden" . | fromJsonArray)) | toJson -}}
{{- end -}}

{{- /*
"true" if a container with the security context `security` cannot create device nodes, and has the
node's /dev below its /driver-root.
*/ -}}
{{- define "gpuhook.keepsDev" -}}
{{- $capabilities := default dict .security.capabilities -}}
{{- $mayCreate := or .security.privileged (not (has "ALL" (default list $capabilities.drop))) (has "MKNOD" (default list $capabilities.add)) -}}
{{- if and (eq "/" (default "/" .Values.nvidiaDriverRoot)) (not $mayCreate) -}}true{{- end -}}
{{- end -}}

{{- /* `security` is the security context of the container, here and below. */ -}}
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
{{- if include "gpuhook.keepsDev" . }}
# Read-only: a process of root could delete the node's device nodes. They can be opened nevertheless.
- name: dev
  mountPath: /driver-root/dev
  readOnly: true
{{- end }}
{{- range $name, $path := include "gpuhook.runDirectories" . | fromJson }}
- name: {{ $name }}
  mountPath: /driver-root/run/{{ $path }}
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
{{- if include "gpuhook.keepsDev" . }}
- name: dev
  hostPath:
    path: /dev
    type: Directory
{{- end }}
{{- with include "gpuhook.runDirectories" . | fromJson }}
# CDI specs contain the sockets of the driver's daemons, and udev's files for GPUDirect Storage.
{{- range $name, $path := . }}
- name: {{ $name }}
  hostPath:
    path: /run/{{ $path }}
    type: DirectoryOrCreate
{{- end }}
{{- end }}
{{- end -}}
