{{- /*
A table as TOML: a dict of `table` and of `path`, the name of the table, which is empty for the whole
file. A text in JSON is one in TOML, too, and so are numbers, truth values and arrays of them. A
value that is null is left out.
*/ -}}
{{- define "holdfast.toml" -}}
{{- $path := .path -}}
{{- range $key, $value := .table -}}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) -}}
{{ include "holdfast.tomlKey" $key }} = {{ toJson $value }}
{{ end -}}
{{- end -}}
{{- range $key, $value := .table -}}
{{- if kindIs "map" $value -}}
{{- $name := include "holdfast.tomlKey" $key -}}
{{- $within := ternary (printf "%s.%s" $path $name) $name (ne $path "") }}
[{{ $within }}]
{{ include "holdfast.toml" (dict "path" $within "table" $value) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "holdfast.tomlKey" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toJson . }}{{ end -}}
{{- end }}

{{- define "holdfast.agentToml" -}}
{{- $kubernetes := dict "namespace" (include "holdfast.agentNamespace" .) "label_prefix" .Values.labelPrefix -}}
{{- $log := dict "stdout" true -}}
{{- if .Values.agent.cloudwatch.enabled -}}
{{- $_ := set $log "file" (include "holdfast.agentLog" .) -}}
{{- end -}}
{{- $fixed := dict
      "root" "/host"
      "report_dir" "/run/holdfast"
      "log" $log
      "telemetry" (dict
        "listen" (printf ":%v" .Values.agent.metricsPort)
        "probes" (printf "127.0.0.1:%v" .Values.agent.probePort))
      "kubernetes" $kubernetes -}}
{{- include "holdfast.toml" (dict "path" "" "table" (mergeOverwrite (deepCopy .Values.agent.config) $fixed)) -}}
{{- end }}

{{- define "holdfast.controllerToml" -}}
{{- $election := dict "lease" (include "holdfast.controller" .) -}}
{{- $kubernetes := dict
      "namespace" .Release.Namespace
      "label_prefix" .Values.labelPrefix
      "election" $election -}}
{{- $agents := include "holdfast.agentNamespace" . -}}
{{- if ne $agents .Release.Namespace -}}
{{- $_ := set $kubernetes "agent_namespace" $agents -}}
{{- end -}}
{{- $fixed := dict
      "platform" "kubernetes"
      "listen" (printf ":%v" .Values.controller.metricsPort)
      "probes" (printf ":%v" .Values.controller.probePort)
      "kubernetes" $kubernetes -}}
{{- include "holdfast.toml" (dict "path" "" "table" (mergeOverwrite (deepCopy .Values.controller.config) $fixed)) -}}
{{- end }}
