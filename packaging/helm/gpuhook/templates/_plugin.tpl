{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* The path of gpuhook-hook on the nodes; "": the programs search it. */ -}}
{{- define "gpuhook.hookPath" -}}
{{- $installs := and .Values.installer.enabled (ne .Values.installer.route "cdi") -}}
{{- $own := ternary (printf "%s/bin/gpuhook-hook" .Values.installer.installDir) "" $installs -}}
{{- default $own .Values.cdi.nvidiaHookPath -}}
{{- end -}}

{{- /* The variables that name the configurations, as a JSON list of pairs. */ -}}
{{- define "gpuhook.configVariables" -}}
{{- $config := include "gpuhook.config" . | fromJson -}}
{{- $fallback := default (list "named" "single") .Values.config.fallbackStrategies | join "," -}}
{{- $found := list -}}
{{- if $config.name -}}
{{- $found = list (list "CONFIG_FILE_SRCDIR" "/available-configs") (list "DEFAULT_CONFIG" $config.default) -}}
{{- if ne $fallback "named,single" -}}
{{- $found = append $found (list "FALLBACK_STRATEGIES" $fallback) -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- /* The variables of the plugin's container, as a YAML list. Those of devicePlugin.env override others. */ -}}
{{- define "gpuhook.env" -}}
{{- $features := include "gpuhook.features" . | fromJson -}}
{{- $own := include "gpuhook.configVariables" . | fromJsonArray -}}
{{- $own = append $own (list "MIG_STRATEGY" .Values.migStrategy) -}}
{{- $waits := and (eq .Values.amd.nodes "only") (kindIs "invalid" .Values.failOnInitError) -}}
{{- $own = append $own (list "FAIL_ON_INIT_ERROR" (ternary false .Values.failOnInitError $waits)) -}}
{{- $own = append $own (list "DEVICE_LIST_STRATEGY" (kindIs "slice" .Values.deviceListStrategy | ternary (join "," .Values.deviceListStrategy) .Values.deviceListStrategy)) -}}
{{- $own = append $own (list "DEVICE_ID_STRATEGY" .Values.deviceIDStrategy) -}}
{{- $own = append $own (list "PASS_DEVICE_SPECS" .Values.compatWithCPUManager) -}}
{{- $own = append $own (list "NVIDIA_DRIVER_ROOT" .Values.nvidiaDriverRoot) -}}
{{- $own = append $own (list "CONTAINER_DRIVER_ROOT" "/driver-root") -}}
{{- $own = append $own (list "GDRCOPY_ENABLED" .Values.gdrcopyEnabled) -}}
{{- $own = append $own (list "GDS_ENABLED" .Values.gdsEnabled) -}}
{{- $own = append $own (list "MOFED_ENABLED" .Values.mofedEnabled) -}}
{{- $own = append $own (list "DEVICE_DISCOVERY_STRATEGY" .Values.deviceDiscoveryStrategy) -}}
{{- $own = append $own (list "NVIDIA_CDI_HOOK_PATH" (include "gpuhook.hookPath" .)) -}}
{{- if $features.mps -}}
{{- $own = append $own (list "MPS_ROOT" (include "gpuhook.mpsRoot" .)) -}}
{{- end -}}
{{- if .Values.gfd.enabled -}}
{{- $own = append $own (list "GPUHOOK_LABELS" "true") -}}
{{- if .Values.gfd.acceleratorLabel -}}
{{- $own = append $own (list "GPUHOOK_ACCELERATOR_LABEL" "true") -}}
{{- end -}}
{{- end -}}
{{- if .Values.gfd.labelNode -}}
{{- $own = append $own (list "GPUHOOK_LABEL_NODE" "true") -}}
{{- end -}}
{{- if .Values.gfd.removeLabelsOnExit -}}
{{- $own = append $own (list "GPUHOOK_REMOVE_LABELS_ON_EXIT" "true") -}}
{{- end -}}
{{- if .Values.metrics.enabled -}}
{{- $own = append $own (list "GPUHOOK_METRICS_ADDRESS" (printf ":%d" (int .Values.metrics.port))) -}}
{{- end -}}
{{- with .Values.amd -}}
{{- $own = append $own (list "GPUHOOK_AMD_RESOURCE_NAMING_STRATEGY" (ternary "none" .resourceNamingStrategy (eq .nodes "none"))) -}}
{{- $own = append $own (list "GPUHOOK_AMD_PULSE" (kindIs "invalid" .pulse | ternary "" (printf "%v" .pulse))) -}}
{{- $own = append $own (list "GPUHOOK_AMD_DEVICE_LIST_STRATEGY" (kindIs "slice" .deviceListStrategy | ternary (join "," .deviceListStrategy) .deviceListStrategy)) -}}
{{- $own = append $own (list "GPUHOOK_DEVICE_LABELS" (join "," .deviceLabels)) -}}
{{- end -}}
{{- if ne .Values.amd.nodes "only" -}}
{{- $own = append $own (list "NVIDIA_VISIBLE_DEVICES" "all") -}}
{{- $own = append $own (list "NVIDIA_DRIVER_CAPABILITIES" (ternary "compute,utility" "utility" $features.mps)) -}}
{{- end -}}
{{- $given := dict -}}
{{- range .Values.devicePlugin.env -}}{{- $_ := set $given .name true -}}{{- end -}}
{{- $found := list -}}
{{- range $own -}}
{{- $name := index . 0 -}}
{{- $value := toString (default "" (index . 1)) -}}
{{- if kindIs "bool" (index . 1) -}}{{- $value = toString (index . 1) -}}{{- end -}}
{{- if and (ne $value "") (not (hasKey $given $name)) -}}
{{- $found = append $found (dict "name" $name "value" $value) -}}
{{- end -}}
{{- end -}}
{{- if not (hasKey $given "NODE_NAME") -}}
{{- $found = append $found (dict "name" "NODE_NAME" "valueFrom" (dict "fieldRef" (dict "fieldPath" "spec.nodeName"))) -}}
{{- end -}}
{{- toYaml (concat $found (default list .Values.devicePlugin.env)) -}}
{{- end -}}

{{- /* The security context of a container that is not privileged: the capabilities of its features. */ -}}
{{- define "gpuhook.unprivileged" -}}
{{- $features := include "gpuhook.features" . | fromJson -}}
{{- $add := list -}}
{{- if $features.guard -}}{{- $add = append $add "KILL" -}}{{- end -}}
{{- if $features.mig -}}{{- $add = append $add "MKNOD" -}}{{- end -}}
{{- if $features.timeSlices -}}{{- $add = append $add "SYS_ADMIN" -}}{{- end -}}
{{- if .Values.features.foreignCgroups -}}{{- $add = append $add "SYS_PTRACE" -}}{{- end -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- if $add }}
  add: [{{ join ", " $add }}]
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "gpuhook.securityContext" -}}
{{- $features := include "gpuhook.features" . | fromJson -}}
{{- with default .Values.devicePlugin.securityContext .Values.securityContext -}}
{{- toYaml . -}}
{{- else -}}
{{- $amd := and (ne .Values.amd.nodes "none") .Values.amd.privileged -}}
{{- if or $features.mps $features.hostFiles $features.privileged $amd -}}
privileged: true
{{- else -}}
{{- include "gpuhook.unprivileged" $ -}}
{{- end -}}
{{- end -}}
{{- end -}}
