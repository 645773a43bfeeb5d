{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- define "gpuhook.dra" -}}
{{- include "gpuhook.fullname" . }}-dra
{{- end -}}

{{- /* For objects without a namespace: distinguishes releases of one name in two namespaces. */ -}}
{{- define "gpuhook.dra.clusterWide" -}}
{{- include "gpuhook.namespace" . }}-{{ include "gpuhook.dra" . }}
{{- end -}}

{{- define "gpuhook.dra.serviceAccount" -}}
{{- default (include "gpuhook.dra" .) .Values.dra.serviceAccount.name -}}
{{- end -}}

{{- /* The newest version of resource.k8s.io that the API server has without alpha versions. */ -}}
{{- define "gpuhook.dra.apiVersion" -}}
resource.k8s.io/{{ ternary "v1" "v1beta1" (semverCompare ">=1.34.0-0" .Capabilities.KubeVersion.Version) }}
{{- end -}}

{{- /* The names of the drivers that these nodes may have, as a JSON object: {"drivers": [...]}. */ -}}
{{- define "gpuhook.dra.drivers" -}}
{{- $nvidia := ternary list (list "gpu.nvidia.com") (eq .Values.amd.nodes "only") -}}
{{- $amd := ternary list (list "gpu.amd.com") (eq .Values.amd.nodes "none") -}}
{{- dict "drivers" (concat $nvidia $amd) | toJson -}}
{{- end -}}

{{- /* The names of extended resources by DeviceClass, as JSON. */ -}}
{{- define "gpuhook.dra.extendedResourceNames" -}}
{{- $usual := dict "gpu.nvidia.com" "nvidia.com/gpu" "gpu.amd.com" "amd.com/gpu" -}}
{{- $known := ternary $usual dict (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- kindIs "map" .Values.dra.extendedResourceNames | ternary .Values.dra.extendedResourceNames $known | toJson -}}
{{- end -}}

{{- /* The variables of the driver's container, as a YAML list. Those of dra.env override others. */ -}}
{{- define "gpuhook.dra.env" -}}
{{- $features := include "gpuhook.features" . | fromJson -}}
{{- $config := include "gpuhook.config" . | fromJson -}}
{{- $access := include "gpuhook.access" . | fromJson -}}
{{- $configured := include "gpuhook.configVariables" . | fromJsonArray -}}
{{- /* With one configuration, the driver needs no permission to read the node's label. */ -}}
{{- if and (eq (len $config.data) 1) (not $access.label) -}}
{{- $configured = list (list "CONFIG_FILE" (printf "/available-configs/%s" (keys $config.data | first))) -}}
{{- end -}}
{{- $kubelet := ternary "" .Values.kubeletRootDir (eq .Values.kubeletRootDir "/var/lib/kubelet") -}}
{{- $metrics := ternary (printf ":%d" (int .Values.metrics.port)) "" .Values.metrics.enabled -}}
{{- $own := list (list "MIG_STRATEGY" .Values.migStrategy) (list "NVIDIA_DRIVER_ROOT" .Values.nvidiaDriverRoot) -}}
{{- $own = append $own (list "CONTAINER_DRIVER_ROOT" "/driver-root") -}}
{{- $own = append $own (list "NVIDIA_CDI_HOOK_PATH" (include "gpuhook.hookPath" .)) -}}
{{- $own = concat $own (list (list "GPUHOOK_KUBELET_ROOT" $kubelet) (list "GPUHOOK_METRICS_ADDRESS" $metrics)) -}}
{{- $own = append $own (list "MPS_ROOT" (ternary (include "gpuhook.mpsRoot" .) "" $features.mps)) -}}
{{- if .Values.dra.runtimeClassName -}}
{{- $own = append $own (list "NVIDIA_VISIBLE_DEVICES" "all") -}}
{{- $own = append $own (list "NVIDIA_DRIVER_CAPABILITIES" (ternary "compute,utility" "utility" $features.mps)) -}}
{{- end -}}
{{- $given := dict -}}
{{- range .Values.dra.env -}}{{- $_ := set $given .name true -}}{{- end -}}
{{- $found := list -}}
{{- range concat $configured $own -}}
{{- if and (index . 1) (not (hasKey $given (index . 0))) -}}
{{- $found = append $found (dict "name" (index . 0) "value" (toString (index . 1))) -}}
{{- end -}}
{{- end -}}
{{- range $name, $field := dict "NODE_NAME" "spec.nodeName" "POD_UID" "metadata.uid" -}}
{{- if not (hasKey $given $name) -}}
{{- $found = append $found (dict "name" $name "valueFrom" (dict "fieldRef" (dict "fieldPath" $field))) -}}
{{- end -}}
{{- end -}}
{{- toYaml (concat $found (default list .Values.dra.env)) -}}
{{- end -}}

{{- /*
A runtime class adds the GPUs to the driver's container. Without one, only a privileged container may
open their nodes.
*/ -}}
{{- define "gpuhook.dra.securityContext" -}}
{{- if or (include "gpuhook.features" . | fromJson).mps (not .Values.dra.runtimeClassName) -}}
privileged: true
readOnlyRootFilesystem: true
{{- else -}}
{{- include "gpuhook.unprivileged" . -}}
{{- end -}}
{{- end -}}
