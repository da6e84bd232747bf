{{/* Name of a property's variable: KVORUM_LOG_DIRS for log.dirs, KVORUM_PRESET for kvorum.preset. */}}
{{- define "kvorum.variable" -}}
KVORUM_{{ . | trimPrefix "kvorum." | upper | replace "." "_" }}
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

{{/* The listeners of a role at a host, by the names of `kvorum init`: root, role, host. */}}
{{- define "kvorum.listeners" -}}
{{- if eq .role "controller" -}}
CONTROLLER://{{ .host }}:9192
{{- else if .root.Values.security.enabled -}}
CLIENTS://{{ .host }}:9092,NODES://{{ .host }}:9292
{{- else -}}
PLAINTEXT://{{ .host }}:9092
{{- end }}
{{- end }}

{{/* super.users: every pod, by the name of its certificate, admin, and those of the values. */}}
{{- define "kvorum.superUsers" -}}
{{- $users := list }}
{{- range $role := list "controller" "broker" }}
{{- $first := int (include "kvorum.firstId" $role) }}
{{- range $at := until (int (index $.Values (printf "%ss" $role)).count) }}
{{- $users = append $users (printf "User:%s-%s-%d" $.Release.Name $role (add $first $at)) }}
{{- end }}
{{- end }}
{{- join ";" (concat $users (list "User:admin") .Values.security.superUsers) }}
{{- end }}

{{/* The properties of a secure node: root, role. They are those of `kvorum init --secure`. */}}
{{- define "kvorum.security" -}}
listener.security.protocol.map: CONTROLLER:SSL,CLIENTS:SASL_SSL,NODES:SSL
listener.name.controller.ssl.client.auth: required
ssl.keystore.type: PEM
ssl.keystore.location: /etc/kvorum/secrets/node.pem
ssl.truststore.type: PEM
ssl.truststore.location: /etc/kvorum/secrets/ca.pem
ssl.principal.mapping.rules: RULE:^CN=([^,]+).*$/$1/,DEFAULT
authorizer.class.name: org.apache.kafka.metadata.authorizer.StandardAuthorizer
kvorum.controller.principals: "User:{{ .root.Release.Name }}-controller-{id}"
kvorum.broker.principals: "User:{{ .root.Release.Name }}-broker-{id}"
super.users: {{ include "kvorum.superUsers" .root | quote }}
{{- if eq .role "broker" }}
inter.broker.listener.name: NODES
listener.name.nodes.ssl.client.auth: required
sasl.enabled.mechanisms: SCRAM-SHA-512
{{- end }}
{{- end }}
