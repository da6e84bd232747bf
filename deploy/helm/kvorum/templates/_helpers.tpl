{{/* Name of a property's variable: KVORUM_LOG_DIRS for log.dirs. */}}
{{- define "kvorum.variable" -}}
KVORUM_{{ . | upper | replace "." "_" }}
{{- end }}

{{/* The first id of a role, which is the first ordinal of its StatefulSet. */}}
{{- define "kvorum.firstId" -}}
{{- if eq . "controller" }}1{{ else }}101{{ end }}
{{- end }}

{{/* controller.quorum.voters: every controller by its stable name. */}}
{{- define "kvorum.voters" -}}
{{- $voters := list }}
{{- range $at := until (int .Values.controllers.count) }}
{{- $id := add1 $at }}
{{- $host := printf "%s-controller-%d.%s-controllers.%s.svc.%s" $.Release.Name $id $.Release.Name $.Release.Namespace $.Values.clusterDomain }}
{{- $voters = append $voters (printf "%d@%s:9192" $id $host) }}
{{- end }}
{{- join "," $voters }}
{{- end }}

{{- define "kvorum.selector" -}}
app.kubernetes.io/name: kvorum
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{- define "kvorum.labels" -}}
{{ include "kvorum.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kvorum
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}
