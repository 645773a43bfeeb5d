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

{{- /* Fields that the pods of all DaemonSets share, except the affinity. */ -}}
{{- define "gpuhook.placement" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
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
