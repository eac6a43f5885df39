{{- /* Settings by their names in `bindery serve`; docs/operate.md lists all. */}}
{{- define "bindery.settings" -}}
mode: {{ .Values.mode | quote }}
log: {{ .Values.logging.level | quote }}
log-format: {{ .Values.logging.format | quote }}
listen: {{ printf "%s:%v" (include "bindery.listenAddress" .) .Values.metrics.port | quote }}
in-flight: {{ .Values.inFlight }}
engine: {{ include "bindery.engine" . | quote }}
{{- if include "bindery.compiles" . }}
# A subfolder, since other users may write into the volume's root.
engine-cache: /var/cache/bindery/engines
engine-cache-size: {{ .Values.engine.cacheSize | quote }}
{{- end }}
{{- with .Values.journal }}
{{- if .enabled }}
journal: /var/lib/bindery/journal
journal-size: {{ int64 .fileSize }}
journal-age: {{ int64 .fileHours }}
journal-keep: {{ int64 .keep }}
{{- with .send.url }}
journal-send: {{ . | quote }}
{{- with $.Values.journal.send.tokenSecret }}
journal-send-token: /etc/bindery/journal/token
{{- end }}
{{- with $.Values.journal.send.ca }}
journal-send-ca: /etc/bindery/journal/ca.crt
{{- end }}
{{- end }}
{{- with .redact.annotations }}
journal-redact-annotation: {{ join "," . | quote }}
{{- end }}
{{- with .redact.labels }}
journal-redact-label: {{ join "," . | quote }}
{{- end }}
{{- if .redact.namespaces }}
journal-redact-namespaces: true
{{- end }}
{{- if include "bindery.redacts" $ }}
journal-redact-key-file: /etc/bindery/journal-key/key
{{- end }}
{{- end }}
{{- end }}
{{- if include "bindery.documents" . | fromJson }}
policy: /etc/bindery/policies
{{- end }}
{{- if .Values.policies.objects }}
policy-objects: true
registry-network: {{ .Values.policies.registry.network }}
{{- with include "bindery.registryKeys" . | fromJson }}
{{- $files := list }}
{{- range $file, $key := . }}{{ $files = append $files (printf "%s/etc/bindery/registry/%s" $key.for $file) }}{{ end }}
registry-key: {{ join "," $files | quote }}
{{- $require := list $.Values.policies.registry.require }}
{{- range compact (values $.Values.policies.registry.prefixes) }}
{{- $require = append $require (printf "%s=%s" .prefix (.require | default "any")) }}
{{- end }}
registry-require: {{ join "," (sortAlpha $require) | quote }}
{{- end }}
{{- with .Values.policies.registry.authSecret }}
registry-auth: /etc/bindery/registry-auth/config.json
{{- end }}
{{- with .Values.policies.registry.pullSecrets }}
registry-pull-secret: {{ printf "%s/%s" $.Release.Namespace (join (printf ",%s/" $.Release.Namespace) .) | quote }}
{{- end }}
{{- with .Values.policies.registry.ca }}
registry-ca: /etc/bindery/registry/ca.crt
{{- end }}
{{- end }}
recycle: {{ .Values.recycling.enabled }}
{{- with .Values.recycling.image }}
recycler-image: {{ . | quote }}
{{- end }}
lease-namespace: {{ .Values.lease.namespace | quote }}
lease-name: {{ .Values.lease.name | quote }}
lease-duration: {{ .Values.lease.durationSeconds }}
{{- if .Values.webhook.enabled }}
webhook-listen: {{ printf "%s:%v" (include "bindery.listenAddress" .) .Values.webhook.port | quote }}
webhook-drain: {{ .Values.webhook.drainSeconds }}
{{- if .Values.webhook.clients.configMap }}
webhook-client-ca: {{ printf "/etc/bindery/clients/%s" .Values.webhook.clients.key | quote }}
{{- with .Values.webhook.clients.names }}
webhook-client-name: {{ join "," . | quote }}
{{- end }}
{{- end }}
{{- if eq .Values.certificates.source "self" }}
webhook-namespace: {{ .Release.Namespace | quote }}
webhook-service: {{ include "bindery.fullname" . | quote }}
webhook-configuration: {{ include "bindery.fullname" . | quote }}
{{- if eq (include "bindery.steering" .) "webhook" }}
steer-configuration: {{ printf "%s-steer" (include "bindery.fullname" .) | quote }}
{{- end }}
certificate-secret: {{ include "bindery.certificateSecret" . | quote }}
certificate-lifetime: {{ .Values.certificates.lifetime | quote }}
{{- else }}
certificate-file: /etc/bindery/tls/tls.crt
certificate-key-file: /etc/bindery/tls/tls.key
{{- end }}
{{- $levels := list }}
{{- range $rule, $level := .Values.webhook.rules }}
{{- $levels = append $levels (printf "%s=%s" $rule $level) }}
{{- end }}
{{- with $levels }}
admission-rule: {{ join "," . | quote }}
{{- end }}
admission-in-flight: {{ .Values.webhook.inFlight }}
admission-precious-label: {{ .Values.webhook.preciousLabel | quote }}
{{- end }}
{{- if include "bindery.steering" . }}
{{- $classes := without (.Values.steer.classes | default list) "" }}
{{- range include "bindery.staticClasses" . | fromJsonArray }}
{{- $classes = append $classes (printf "%s=static" (. | default `""`)) }}
{{- end }}
{{- with $classes }}
steer-class: {{ join "," . | quote }}
{{- end }}
{{- end }}
{{- with .Values.tracing.endpoint }}
otlp-endpoint: {{ . | quote }}
{{- end }}
{{- end -}}

{{/*
The settings of the installed release if Helm can see it, otherwise nothing.
*/}}
{{- define "bindery.presentSettings" -}}
{{- $present := lookup "apps/v1" "Deployment" .Release.Namespace (include "bindery.fullname" .) | default dict -}}
{{- dig "spec" "template" "metadata" "annotations" dict $present | dig "bindery.dev/settings" "" -}}
{{- end -}}
