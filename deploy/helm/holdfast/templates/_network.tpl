{{- /* TCP ports that the controller connects to, with those of URLs in its configuration, as JSON. */ -}}
{{- define "holdfast.egressPorts" -}}
{{- $numbers := list -}}
{{- range .Values.networkPolicy.egressPorts -}}{{- $numbers = append $numbers (int .) -}}{{- end -}}
{{- range regexFindAll "https?://[^/?#\\s\"\\\\]+" (toJson .Values.controller.config) -1 -}}
{{- $default := ternary "443" "80" (hasPrefix "https:" .) -}}
{{- $numbers = append $numbers (regexFind ":[0-9]+$" . | trimPrefix ":" | default $default | int) -}}
{{- end -}}
{{- uniq $numbers | toJson -}}
{{- end }}
