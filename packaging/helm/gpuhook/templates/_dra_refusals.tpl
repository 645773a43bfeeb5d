{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* Fails with a message for values of `dra` and `nri` that contradict the cluster or other values. */ -}}
{{- define "gpuhook.dra.refusals" -}}
{{- $dra := .Values.dra -}}
{{- $version := .Capabilities.KubeVersion.Version -}}
{{- if $dra.enabled -}}
{{- if and .Values.devicePlugin.enabled (not $dra.nodeLabel) -}}
{{- fail "\ndra.enabled and devicePlugin.enabled would offer each GPU twice on the same nodes: set devicePlugin.enabled=false, or dra.nodeLabel to the label of the nodes that use DRA." -}}
{{- end -}}
{{- if semverCompare "<1.32.0-0" $version -}}
{{- fail (printf "\ndra.enabled needs Kubernetes 1.32 or newer (1.34 without feature gates), and this is %s: use the device plugin. `helm template` takes the version from --kube-version." $version) -}}
{{- end -}}
{{- if and $dra.extendedResourceNames (semverCompare "<1.34.0-0" $version) -}}
{{- fail (printf "\ndra.extendedResourceNames needs Kubernetes 1.36, or 1.34 with the feature gate DRAExtendedResource, and this is %s: set it to {}." $version) -}}
{{- end -}}
{{- if and (not $dra.serviceAccount.create) (not $dra.serviceAccount.name) -}}
{{- fail "\ndra.serviceAccount.create=false needs dra.serviceAccount.name: the account `default` belongs to every pod of the namespace." -}}
{{- end -}}
{{- end -}}
{{- $copies := and .Values.installer.enabled (ne .Values.installer.route "cdi") -}}
{{- if and .Values.nri.enabled (not $copies) -}}
{{- fail "\nnri.enabled needs gpuhook on the nodes, for its hook: set installer.enabled=true, and installer.engine=none to leave the engine as it is (installer.route=cdi copies nothing)." -}}
{{- end -}}
{{- end -}}
