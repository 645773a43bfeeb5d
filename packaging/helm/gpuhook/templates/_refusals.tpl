{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* Fails with a message for contradictory values. */ -}}
{{- define "gpuhook.refusals" -}}
{{- $own := .Values.config -}}
{{- $operators := .Values.devicePlugin.config -}}
{{- if .Values.namespace -}}
{{- fail "\nThere is no value 'namespace': pass --namespace (with --create-namespace) to helm." -}}
{{- end -}}
{{- if and (eq (include "gpuhook.namespace" .) "default") (not .Values.allowDefaultNamespace) -}}
{{- fail "\nThe namespace would be 'default'. Pass --namespace gpuhook --create-namespace to helm, or set allowDefaultNamespace=true." -}}
{{- end -}}
{{- if and $own.map $own.name -}}
{{- fail "\nconfig.map creates a ConfigMap, config.name names an existing one: set only one of them." -}}
{{- end -}}
{{- if and (or $own.map $own.name) (or $operators.create $operators.name) -}}
{{- fail "\nconfig and devicePlugin.config both name configurations: set only one of them." -}}
{{- end -}}
{{- if and $operators.data (not $operators.create) -}}
{{- fail "\ndevicePlugin.config.data needs devicePlugin.config.create=true: set that, or remove the data." -}}
{{- end -}}
{{- if and $operators.create (not $operators.data) -}}
{{- fail "\ndevicePlugin.config.create=true creates a ConfigMap of devicePlugin.config.data, which is empty." -}}
{{- end -}}
{{- $config := include "gpuhook.config" . | fromJson -}}
{{- if and (or $own.default $operators.default) (not $config.name) -}}
{{- fail "\nA default configuration is set, but there are no configurations: set config.map or config.name." -}}
{{- end -}}
{{- if $config.data -}}
{{- $names := keys $config.data | sortAlpha -}}
{{- if and $config.default (not (has $config.default $names)) -}}
{{- fail (printf "\nThe default configuration %q does not exist; the configurations are %s." $config.default (join ", " $names)) -}}
{{- end -}}
{{- $fallbacks := default (list "named" "single") .Values.config.fallbackStrategies -}}
{{- $named := and (has "named" $fallbacks) (has "default" $names) -}}
{{- $single := and (has "single" $fallbacks) (eq (len $names) 1) -}}
{{- if not (or $config.default $named $single (has "empty" $fallbacks)) -}}
{{- fail (printf "\nNo configuration applies to a node without the label nvidia.com/device-plugin.config: set one of %s as the default, or add empty to config.fallbackStrategies (now: %s)." (join ", " $names) (join ", " $fallbacks)) -}}
{{- end -}}
{{- end -}}
{{- if and (or .Values.devicePlugin.repository .Values.devicePlugin.version) (not .Values.devicePlugin.image) -}}
{{- fail "\ndevicePlugin.repository and devicePlugin.version need devicePlugin.image: set it, or set image.repository and image.tag." -}}
{{- end -}}
{{- $features := include "gpuhook.features" . | fromJson -}}
{{- if and $features.guard (not .Values.hostPID) -}}
{{- fail "\nThe guard needs the pids of the host: set hostPID=true, or set gpuhook.guard.action of the configuration to report." -}}
{{- end -}}
{{- $metrics := .Values.metrics -}}
{{- if and $metrics.enabled (regexMatch "^[0-9]" (include "gpuhook.fullname" .)) -}}
{{- fail "\nmetrics.enabled creates a Service, whose name must begin with a letter: set fullnameOverride." -}}
{{- end -}}
{{- if and (or $metrics.serviceMonitor.enabled $metrics.podMonitor.enabled) (not $metrics.enabled) -}}
{{- fail "\nA monitor needs metrics: set metrics.enabled=true." -}}
{{- end -}}
{{- if and (or $metrics.prometheusRule.enabled $metrics.grafanaDashboard.enabled) (not $metrics.enabled) -}}
{{- fail "\nAlerts and the dashboard need metrics: set metrics.enabled=true." -}}
{{- end -}}
{{- if and $metrics.serviceMonitor.enabled $metrics.podMonitor.enabled -}}
{{- fail "\nmetrics.serviceMonitor and metrics.podMonitor would both scrape the same metrics: enable only one of them." -}}
{{- end -}}
{{- end -}}
