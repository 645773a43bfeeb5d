{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* Ends with a word on values that cannot be meant. */ -}}
{{- define "gpuhook.refusals" -}}
{{- $own := .Values.config -}}
{{- $operators := .Values.devicePlugin.config -}}
{{- if .Values.namespace -}}
{{- fail "\nThere is no value 'namespace': say --namespace (with --create-namespace) to helm." -}}
{{- end -}}
{{- if and (eq (include "gpuhook.namespace" .) "default") (not .Values.allowDefaultNamespace) -}}
{{- fail "\nThe namespace would be 'default'. Say --namespace gpuhook --create-namespace to helm, or set allowDefaultNamespace=true." -}}
{{- end -}}
{{- if and $own.map $own.name -}}
{{- fail "\nconfig.map makes a ConfigMap, config.name names one that is there: set one of them." -}}
{{- end -}}
{{- if and (or $own.map $own.name) (or $operators.create $operators.name) -}}
{{- fail "\nconfig and devicePlugin.config both name configurations: set one of them." -}}
{{- end -}}
{{- if and $operators.data (not $operators.create) -}}
{{- fail "\ndevicePlugin.config.data counts with devicePlugin.config.create=true alone: set that, or take the data away." -}}
{{- end -}}
{{- if and $operators.create (not $operators.data) -}}
{{- fail "\ndevicePlugin.config.create=true makes a ConfigMap of devicePlugin.config.data, which is empty." -}}
{{- end -}}
{{- $config := include "gpuhook.config" . | fromJson -}}
{{- if and (or $own.default $operators.default) (not $config.name) -}}
{{- fail "\nA default configuration is named, and there are no configurations: set config.map or config.name." -}}
{{- end -}}
{{- if $config.data -}}
{{- $names := keys $config.data | sortAlpha -}}
{{- if and $config.default (not (has $config.default $names)) -}}
{{- fail (printf "\nThe default configuration %q is not among those there are: %s." $config.default (join ", " $names)) -}}
{{- end -}}
{{- $fallbacks := default (list "named" "single") .Values.config.fallbackStrategies -}}
{{- $named := and (has "named" $fallbacks) (has "default" $names) -}}
{{- $single := and (has "single" $fallbacks) (eq (len $names) 1) -}}
{{- if not (or $config.default $named $single (has "empty" $fallbacks)) -}}
{{- fail (printf "\nNo configuration counts on a node without the label nvidia.com/device-plugin.config: name one of %s as the default, or add empty to config.fallbackStrategies (now: %s)." (join ", " $names) (join ", " $fallbacks)) -}}
{{- end -}}
{{- end -}}
{{- if and (or .Values.devicePlugin.repository .Values.devicePlugin.version) (not .Values.devicePlugin.image) -}}
{{- fail "\ndevicePlugin.repository and devicePlugin.version count with devicePlugin.image alone: set it, or image.repository and image.tag." -}}
{{- end -}}
{{- $features := include "gpuhook.features" . | fromJson -}}
{{- if and $features.guard (not .Values.hostPID) -}}
{{- fail "\nThe guard ends processes by their pids on the host: set hostPID=true, or gpuhook.guard.action of the configuration to report." -}}
{{- end -}}
{{- $metrics := .Values.metrics -}}
{{- if and $metrics.enabled (regexMatch "^[0-9]" (include "gpuhook.fullname" .)) -}}
{{- fail "\nmetrics.enabled makes a Service, whose name has to begin with a letter: set fullnameOverride." -}}
{{- end -}}
{{- if and (or $metrics.serviceMonitor.enabled $metrics.podMonitor.enabled) (not $metrics.enabled) -}}
{{- fail "\nA monitor asks for metrics: set metrics.enabled=true." -}}
{{- end -}}
{{- if and $metrics.serviceMonitor.enabled $metrics.podMonitor.enabled -}}
{{- fail "\nmetrics.serviceMonitor and metrics.podMonitor would both take the same metrics: enable one of them." -}}
{{- end -}}
{{- end -}}
