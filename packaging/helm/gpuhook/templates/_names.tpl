{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* The name of a release may contain dots, the name of a Service may not. */ -}}
{{- define "gpuhook.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $own := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- default $own .Values.fullnameOverride | replace "." "-" | trunc 48 | trimAll "-" -}}
{{- end -}}

{{- define "gpuhook.plugin" -}}
{{- include "gpuhook.fullname" . }}-device-plugin
{{- end -}}

{{- /* For objects without a namespace: distinguishes releases of one name in two namespaces. */ -}}
{{- define "gpuhook.clusterWide" -}}
{{- include "gpuhook.namespace" . }}-{{ include "gpuhook.plugin" . }}
{{- end -}}

{{- define "gpuhook.installer" -}}
{{- include "gpuhook.fullname" . }}-installer
{{- end -}}

{{- define "gpuhook.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "gpuhook.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "gpuhook.plugin" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* Labels of an object. The argument has the name of its component, and the chart's root. */ -}}
{{- define "gpuhook.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/part-of: gpuhook
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "gpuhook.image" -}}
{{- $own := .Values.devicePlugin -}}
{{- if and .plugin $own.image -}}
{{- $name := trimPrefix "/" (printf "%s/%s" $own.repository $own.image) -}}
{{- if hasPrefix "sha256:" $own.version -}}
{{- printf "%s@%s" $name $own.version -}}
{{- else -}}
{{- printf "%s:%s" $name (default .Chart.AppVersion $own.version) -}}
{{- end -}}
{{- else if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /*
The affinity of the pods, as JSON: with the labels of nodes with AMD GPUs if they are served. With
`nodes` In or NotIn also the label dra.nodeLabel: the pods run only on nodes with it, or without it.
*/ -}}
{{- define "gpuhook.affinity" -}}
{{- $affinity := deepCopy (default dict .Values.affinity) -}}
{{- $required := dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" dict $affinity -}}
{{- if and $required (ne .Values.amd.nodes "none") -}}
{{- $terms := ternary list $required.nodeSelectorTerms (eq .Values.amd.nodes "only") -}}
{{- range $label := list "amd-gpu" "amd-vgpu" "pci-1002.present" "pci-0300_1002.present" "pci-0302_1002.present" "pci-0380_1002.present" "pci-1200_1002.present" -}}
{{- $expression := dict "key" (printf "feature.node.kubernetes.io/%s" $label) "operator" "In" "values" (list "true") -}}
{{- $terms = append $terms (dict "matchExpressions" (list $expression)) -}}
{{- end -}}
{{- $_ := set $required "nodeSelectorTerms" $terms -}}
{{- end -}}
{{- if and .nodes .Values.dra.enabled .Values.dra.nodeLabel -}}
{{- $label := splitn "=" 2 .Values.dra.nodeLabel -}}
{{- $expression := dict "key" $label._0 "operator" .nodes "values" (list $label._1) -}}
{{- $terms := list -}}
{{- range $term := default (list dict) $required.nodeSelectorTerms -}}
{{- $terms = append $terms (set $term "matchExpressions" (append (default list $term.matchExpressions) $expression)) -}}
{{- end -}}
{{- $added := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- $affinity = mergeOverwrite $affinity (dict "nodeAffinity" $added) -}}
{{- end -}}
{{- toJson $affinity -}}
{{- end -}}

{{- /* Fields that the pods of all DaemonSets share. */ -}}
{{- define "gpuhook.placement" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "gpuhook.affinity" . | fromJson }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $amd := ternary list (list (dict "key" "amd.com/gpu" "operator" "Exists" "effect" "NoSchedule")) (eq .Values.amd.nodes "none") }}
{{- with concat (default list .Values.tolerations) $amd }}
tolerations:
{{ toYaml . }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* imagePullSecrets of a pod, if any: names, or objects with a name. */ -}}
{{- define "gpuhook.pullSecrets" -}}
{{- with . -}}
imagePullSecrets:
{{- range . }}
- name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}
{{- end }}
{{- end -}}
{{- end -}}
