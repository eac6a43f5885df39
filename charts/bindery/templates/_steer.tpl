{{/* What steers new claims: `policy` or `webhook`. Nothing where none are steered. */}}
{{- define "bindery.steering" -}}
{{- if or (eq .Values.mode "steer") (and (eq .Values.mode "own") .Values.steer.classes) -}}
{{- if ne .Values.steer.admission "auto" -}}
{{- .Values.steer.admission -}}
{{- else -}}
{{- .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" | ternary "policy" "webhook" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The label key that steers the claim of a request, in CEL. */}}
{{- define "bindery.steeringKey" -}}
object.metadata.name + "." + request.namespace + ".steer.bindery.dev/claim"
{{- end -}}

{{/* Whether the new selector requires the key, in CEL. */}}
{{- define "bindery.isSteered" -}}
object.spec.?selector.?matchExpressions.orValue([]).exists(needed, needed.operator == "Exists" && needed.key == {{ include "bindery.steeringKey" . }})
{{- end -}}

{{/* The class of a claim as an optional, in CEL: the annotation takes precedence. */}}
{{- define "bindery.classOfClaim" -}}
object.metadata.?annotations[?"volume.beta.kubernetes.io/storage-class"].or(object.spec.?storageClassName)
{{- end -}}

{{/* The classes whose volumes exist already. No object has the name "". In mode `own` Bindery binds these itself. */}}
{{- define "bindery.staticClasses" -}}
{{- if eq .Values.mode "own" -}}
[]
{{- else -}}
{{- $classes := .Values.steer.staticClasses | default list -}}
{{- if has "" .Values.steer.classes -}}{{- $classes = append $classes "" -}}{{- end -}}
{{- toJson ($classes | uniq) -}}
{{- end -}}
{{- end -}}

{{/*
Whether a claim is of a class whose claims are steered, in CEL: `params` is a class, or null for those that are static. A
provisioner refuses selectors.
*/}}
{{- define "bindery.steeredClass" -}}
{{- $class := include "bindery.classOfClaim" . -}}
params == null
? {{ $class }}.orValue("*") in {{ include "bindery.staticClasses" . }}
: params.metadata.name in {{ .Values.steer.classes | default list | toJson }} && {{ $class }} == optional.of(params.metadata.name) && params.provisioner == "kubernetes.io/no-provisioner"
{{- end -}}

{{/* The condition for a claim's class as it is. A binding without parameter is for classes that are static. */}}
{{- define "bindery.classCondition" -}}
- name: of-a-class-that-can-be
  expression: {{ include "bindery.steeredClass" . | quote }}
{{- end -}}

{{/* The conditions under which a new claim is to be steered, but for its namespace's label and its class as it is. */}}
{{- define "bindery.inScope" -}}
{{- $namespaces := append (.Values.webhook.exemptNamespaces | default list) .Release.Namespace | uniq -}}
- name: not-in-exempt-namespace
  expression: {{ toJson $namespaces | printf "!(request.namespace in %s)" | quote }}
- name: names-no-volume
  expression: object.spec.?volumeName.orValue("") == ""
# Without a class a claim may get a default class later.
- name: of-a-listed-class
  expression: {{ printf "%s.orValue(\"*\") in %s" (include "bindery.classOfClaim" .) (concat (.Values.steer.classes | default list) (.Values.steer.staticClasses | default list) | uniq | toJson) | quote }}
{{- end -}}

{{/* The further conditions under which a new claim gets the requirement. */}}
{{- define "bindery.steerable" -}}
- name: names-no-data
  expression: '!has(object.spec.dataSource) && !has(object.spec.dataSourceRef)'
{{- if eq (include "bindery.steering" .) "policy" }}
# A prefix of 253 characters, and a name that is not generated later. Bindery's webhook warns of these instead.
- name: has-a-key
  expression: object.metadata.?name.orValue("") != "" && size(object.metadata.name + "." + request.namespace + ".steer.bindery.dev") <= 253
{{- end }}
- name: is-not-steered
  expression: {{ include "bindery.isSteered" . | printf "!has(object.metadata.name) || !%s" | quote }}
{{- end -}}

{{/* The conditions under which an update has dropped the requirement. */}}
{{- define "bindery.droppedRequirement" -}}
- name: was-steered
  expression: {{ include "bindery.isSteered" . | replace "object.spec" "oldObject.spec" | quote }}
- name: is-not-steered
  expression: {{ include "bindery.isSteered" . | printf "!%s" | quote }}
- name: not-deleting
  expression: '!has(object.metadata.deletionTimestamp)'
{{- end -}}
