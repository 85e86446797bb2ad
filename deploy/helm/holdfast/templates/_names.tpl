{{- define "holdfast.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* Prefix of all object names; 48 characters leave space for the suffix. */ -}}
{{- define "holdfast.fullname" -}}
{{- $name := include "holdfast.name" . -}}
{{- $default := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{ .Values.fullnameOverride | default $default | trunc 48 | trimSuffix "-" }}
{{- end }}

{{- define "holdfast.agent" -}}{{ include "holdfast.fullname" . }}-agent{{- end }}
{{- define "holdfast.controller" -}}{{ include "holdfast.fullname" . }}-controller{{- end }}

{{- define "holdfast.agentNamespace" -}}{{ .Values.agent.namespace | default .Release.Namespace }}{{- end }}
{{- define "holdfast.controllerNamespace" -}}{{ .Release.Namespace }}{{- end }}

{{- define "holdfast.labels" -}}
app.kubernetes.io/name: {{ include "holdfast.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- /* Selector labels of a workload. Argument: a list of the root and the name of the component. */ -}}
{{- define "holdfast.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "holdfast.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- /* Path of the agent's log, which the exporter sidecar reads. */ -}}
{{- define "holdfast.agentLog" -}}/var/log/holdfast/agent.log{{- end }}

{{- define "holdfast.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "holdfast.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
