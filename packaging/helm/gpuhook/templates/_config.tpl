{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /*
The plugin's configurations, as JSON: the ConfigMap's name ("" for none), its data if this chart
creates it, and the default's name. From `config` or from `devicePlugin.config`.
*/ -}}
{{- define "gpuhook.config" -}}
{{- $own := .Values.config -}}
{{- $operators := .Values.devicePlugin.config -}}
{{- $made := printf "%s-configs" (include "gpuhook.fullname" .) -}}
{{- if $own.map -}}
{{- dict "name" $made "data" $own.map "default" $own.default | toJson -}}
{{- else if $own.name -}}
{{- dict "name" $own.name "data" dict "default" $own.default | toJson -}}
{{- else if $operators.create -}}
{{- dict "name" (default $made $operators.name) "data" $operators.data "default" $operators.default | toJson -}}
{{- else -}}
{{- dict "name" $operators.name "data" dict "default" $operators.default | toJson -}}
{{- end -}}
{{- end -}}

{{- /* Features of the configurations and the values, as JSON: a boolean for each feature. */ -}}
{{- define "gpuhook.features" -}}
{{- $mps := false -}}
{{- $hostFiles := contains "host-files" (toString (default "" .Values.deviceListStrategy)) -}}
{{- $guard := false -}}
{{- $timeSlices := false -}}
{{- $mig := not (has (default "none" .Values.migStrategy) (list "none")) -}}
{{- $config := include "gpuhook.config" . | fromJson -}}
{{- range $name, $text := $config.data -}}
{{- $read := fromYaml $text -}}
{{- if and (hasKey $read "Error") (not (hasKey $read "version")) -}}
{{- fail (printf "The configuration %q is not valid YAML: %s\nRun `gpuhook device-plugin --validate FILE` to find the line." $name $read.Error) -}}
{{- end -}}
{{- range $key := list "sharing" "flags" "gpuhook" -}}
{{- if not (has (kindOf (index $read $key)) (list "map" "invalid")) -}}
{{- fail (printf "%s of the configuration %q is not a mapping.\nRun `gpuhook device-plugin --validate FILE` to find the line." $key $name) -}}
{{- end -}}
{{- end -}}
{{- $sharing := default dict $read.sharing -}}
{{- $flags := default dict $read.flags -}}
{{- $plugin := kindIs "map" $flags.plugin | ternary $flags.plugin dict -}}
{{- $guarding := (default dict $read.gpuhook).guard -}}
{{- if $sharing.mps -}}{{- $mps = true -}}{{- end -}}
{{- if ne (default "none" $flags.migStrategy | toString) "none" -}}{{- $mig = true -}}{{- end -}}
{{- if contains "host-files" (toString (default "" $plugin.deviceListStrategy)) -}}{{- $hostFiles = true -}}{{- end -}}
{{- $action := get (kindIs "map" $guarding | ternary $guarding dict) "action" -}}
{{- if has $action (list "terminate" "kill") -}}{{- $guard = true -}}{{- end -}}
{{- range $way := $sharing -}}
{{- $entries := get (kindIs "map" $way | ternary $way dict) "resources" -}}
{{- range $entry := kindIs "slice" $entries | ternary $entries list -}}
{{- $resource := kindIs "map" $entry | ternary $entry dict -}}
{{- if or $resource.timeSlice $resource.computeMode -}}{{- $timeSlices = true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found := dict "mps" $mps "hostFiles" $hostFiles "guard" $guard "timeSlices" $timeSlices "mig" $mig -}}
{{- range $name, $said := .Values.features -}}
{{- if kindIs "bool" $said -}}{{- $_ := set $found $name $said -}}{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- /* The plugin's permissions for the API server, as JSON: a boolean for each, and `any`. */ -}}
{{- define "gpuhook.access" -}}
{{- $config := include "gpuhook.config" . | fromJson -}}
{{- $several := and $config.name (ne (len $config.data) 1) -}}
{{- $label := ternary .Values.apiAccess.nodeConfig (not (not $several)) (kindIs "bool" .Values.apiAccess.nodeConfig) -}}
{{- $events := .Values.apiAccess.events -}}
{{- $patch := .Values.gfd.labelNode -}}
{{- dict "label" $label "events" $events "patch" $patch "any" (or $label $events $patch) | toJson -}}
{{- end -}}

{{- define "gpuhook.mpsRoot" -}}
{{- default .Values.mps.root .Values.devicePlugin.mps.root -}}
{{- end -}}
