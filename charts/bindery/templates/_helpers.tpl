{{/* The chart's name in labels. */}}
{{- define "bindery.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of objects: short enough that a suffix of ten letters still makes a label. */}}
{{- define "bindery.fullname" -}}
{{- $name := include "bindery.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "bindery.selectorLabels" -}}
app.kubernetes.io/name: {{ include "bindery.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "bindery.labels" -}}
{{- with .Values.commonLabels -}}
{{ toYaml . }}
{{ end -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "bindery.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "bindery.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "bindery.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* An image by registry, repository, tag and digest; `tag` goes into the place of a tag that is empty. */}}
{{- define "bindery.image" -}}
{{- $name := printf "%s/%s" .image.registry .image.repository | trimPrefix "/" -}}
{{- if .image.digest -}}{{ $name }}@{{ .image.digest }}{{- else -}}{{ $name }}:{{ .image.tag | default .tag }}{{- end -}}
{{- end -}}

{{/* The Secret with the webhook's certificate. */}}
{{- define "bindery.certificateSecret" -}}
{{- .Values.certificates.secretName | default (printf "%s-tls" (include "bindery.fullname" .)) -}}
{{- end -}}

{{/* The engine as the setting `engine` takes it. */}}
{{- define "bindery.engine" -}}
{{- if .Values.engine.configMap.name -}}/etc/bindery/engine/{{ .Values.engine.configMap.key }}{{- else -}}{{ .Values.engine.file }}{{- end -}}
{{- end -}}

{{/* Whether a priority class is one of those that clusters reserve for themselves. */}}
{{- define "bindery.isCritical" -}}
{{- if has .Values.priorityClassName (list "system-cluster-critical" "system-node-critical") -}}yes{{- end -}}
{{- end -}}
