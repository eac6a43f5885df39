{{/* The chart's name in labels, short enough for the suffix `-test`. */}}
{{- define "bindery.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 58 | regexFind "^.*[a-z0-9]" -}}
{{- end -}}

{{/*
The name of objects. It is also valid for a Service: it begins with a letter, has no dots, and is short enough for a label with a
suffix of ten letters.
*/}}
{{- define "bindery.fullname" -}}
{{- $name := include "bindery.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $full = .Values.fullnameOverride | default $full | replace "." "-" -}}
{{- if regexMatch "^[0-9]" $full -}}{{- $full = printf "%s-%s" .Chart.Name $full -}}{{- end -}}
{{- $full | trunc 52 | regexFind "^.*[a-z0-9]" -}}
{{- end -}}

{{/* The maps of a list, merged; a later map takes precedence. */}}
{{- define "bindery.merged" -}}
{{- $merged := dict -}}
{{- range . -}}{{- range $key, $value := . -}}{{- $_ := set $merged $key $value -}}{{- end -}}{{- end -}}
{{- toYaml $merged -}}
{{- end -}}

{{- define "bindery.selectorLabels" -}}
app.kubernetes.io/name: {{ include "bindery.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Labels of the pod of `helm test`. They differ from those of the replicas, or the Service would select the pod. */}}
{{- define "bindery.testLabels" -}}
app.kubernetes.io/name: {{ printf "%s-test" (include "bindery.name" .) | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* The chart's own labels. */}}
{{- define "bindery.chartLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{ include "bindery.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "bindery.labels" -}}
{{- include "bindery.labelsWith" (list . dict) -}}
{{- end -}}

{{/* Labels of an object with further labels: a list of the context and these labels. */}}
{{- define "bindery.labelsWith" -}}
{{- $context := first . -}}
{{- $chart := include "bindery.chartLabels" $context | fromYaml -}}
{{- include "bindery.merged" (list $context.Values.commonLabels (last .) $chart) -}}
{{- end -}}

{{- define "bindery.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "bindery.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The name by which the API server knows the release's service account. */}}
{{- define "bindery.userName" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "bindery.serviceAccountName" . }}
{{- end -}}

{{/* An image by registry, repository, tag and digest; `tag` replaces an empty tag. */}}
{{- define "bindery.image" -}}
{{- $name := printf "%s/%s" .image.registry .image.repository | trimPrefix "/" -}}
{{- if .image.digest -}}{{ $name }}@{{ .image.digest }}{{- else -}}{{ $name }}:{{ .image.tag | default .tag }}{{- end -}}
{{- end -}}

{{/*
The Secret with the webhook's certificate. Each source has its own: cert-manager's has another type, does not belong to a release,
and stays when the source is changed.
*/}}
{{- define "bindery.certificateSecret" -}}
{{- $suffix := eq .Values.certificates.source "cert-manager" | ternary "cert-manager" "tls" -}}
{{- .Values.certificates.secretName | default (printf "%s-%s" (include "bindery.fullname" .) $suffix) -}}
{{- end -}}

{{/* The seconds of a duration such as `90d` or `1h30m`. */}}
{{- define "bindery.seconds" -}}
{{- $units := dict "ms" 0 "s" 1 "m" 60 "h" 3600 "d" 86400 -}}
{{- $seconds := 0 -}}
{{- range regexFindAll "[0-9]+[a-z]+" . -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $seconds = add $seconds (mul (trimSuffix $unit . | atoi) (get $units $unit)) -}}
{{- end -}}
{{- $seconds -}}
{{- end -}}

{{/*
The remaining seconds of a certificate at which the alert fires: a week, or half of the time that was left when renewal was due, if
that is less.
*/}}
{{- define "bindery.certificateLeast" -}}
{{- $least := 604800 -}}
{{- if eq .Values.certificates.source "self" -}}
{{- $least = div (include "bindery.seconds" .Values.certificates.lifetime) 6 | min $least -}}
{{- else if eq .Values.certificates.source "cert-manager" -}}
{{- $least = div (include "bindery.seconds" .Values.certificates.certManager.renewBefore) 2 | min $least -}}
{{- end -}}
{{- $least -}}
{{- end -}}

{{/* The address that pods listen on, in the form for a port: IPv6 in brackets. */}}
{{- define "bindery.listenAddress" -}}
{{- if contains ":" .Values.listenAddress -}}
{{- printf "[%s]" (trimAll "[]" .Values.listenAddress) -}}
{{- else -}}
{{- .Values.listenAddress -}}
{{- end -}}
{{- end -}}

{{/* The engine as the setting `engine` takes it. */}}
{{- define "bindery.engine" -}}
{{- if .Values.engine.configMap.name -}}/etc/bindery/engine/{{ .Values.engine.configMap.key }}{{- else -}}{{ .Values.engine.file }}{{- end -}}
{{- end -}}

{{/* The policy documents by name, without those that null takes away from the values of before. */}}
{{- define "bindery.documents" -}}
{{- $documents := dict -}}
{{- range $name, $text := .Values.policies.documents -}}
{{- with $text }}{{ $_ := set $documents $name . }}{{ end -}}
{{- end -}}
{{- toJson $documents -}}
{{- end -}}

{{/* The public keys of registries by file, each with the prefix of its modules; without those that null takes away. */}}
{{- define "bindery.registryKeys" -}}
{{- $keys := dict -}}
{{- range $name, $text := .Values.policies.registry.keys -}}
{{- with $text }}{{ $_ := set $keys (printf "%s.pub" $name) (dict "for" "" "text" .) }}{{ end -}}
{{- end -}}
{{- range $place, $of := .Values.policies.registry.prefixes -}}
{{- if and $of (not (compact (values $of.keys))) -}}
{{- fail (printf "policies.registry.prefixes.%s has no key: give one, or set it to null" $place) -}}
{{- end -}}
{{- range $name, $text := ($of | default dict).keys -}}
{{- with $text }}{{ $_ := set $keys (printf "%s.%s.pub" $place $name) (dict "for" (printf "%s=" $of.prefix) "text" .) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson $keys -}}
{{- end -}}

{{/* The files about registries by name: public keys, and the authorities. */}}
{{- define "bindery.registryFiles" -}}
{{- $files := dict -}}
{{- if .Values.policies.objects -}}
{{- range $file, $key := include "bindery.registryKeys" . | fromJson }}{{ $_ := set $files $file $key.text }}{{ end -}}
{{- with .Values.policies.registry.ca }}{{ $_ := set $files "ca.crt" . }}{{ end -}}
{{- end -}}
{{- toJson $files -}}
{{- end -}}

{{/* Whether pods compile components. */}}
{{- define "bindery.compiles" -}}
{{- if or (ne (include "bindery.engine" .) "native") (include "bindery.documents" . | fromJson) .Values.policies.objects -}}yes{{- end -}}
{{- end -}}

{{/*
Whether policies read labels of namespaces: the value says so, an object may, a document selects namespaces, or it names a policy that ships and
declares such a label. What a module of one's own declares cannot be seen here.
*/}}
{{- define "bindery.readsNamespaces" -}}
{{- $reads := or .Values.policies.readNamespaces .Values.policies.objects -}}
{{- range $name, $text := include "bindery.documents" . | fromJson -}}
{{- range regexSplit "(?m)^---" $text -1 -}}
{{- $document := fromYaml . -}}
{{- with $document.Error -}}
{{- fail (printf "policies.documents.%s is not YAML: %s" $name .) -}}
{{- end -}}
{{- $reads = or $reads (dig "spec" "match" "namespaceSelector" "" $document) -}}
{{- $reads = or $reads (has (dig "spec" "module" "" $document) (list "builtin:reserved")) -}}
{{- end -}}
{{- end -}}
{{- if $reads -}}yes{{- end -}}
{{- end -}}

{{/* Whether a priority class is one of Kubernetes' own. */}}
{{- define "bindery.isCritical" -}}
{{- if has .Values.priorityClassName (list "system-cluster-critical" "system-node-critical") -}}yes{{- end -}}
{{- end -}}

{{/* Whether the journal is on and something of it is redacted. */}}
{{- define "bindery.redacts" -}}
{{- with .Values.journal -}}
{{- if and .enabled (or .redact.annotations .redact.labels .redact.namespaces) -}}yes{{- end -}}
{{- end -}}
{{- end -}}
