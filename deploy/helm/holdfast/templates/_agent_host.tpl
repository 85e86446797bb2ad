{{- /*
What the agent reads of its node, as YAML: `paths`, each with its type. The disk detector measures the
space of every file system, so it takes all of them; without it, the agent gets directories alone.
*/ -}}
{{- define "holdfast.agentHost" -}}
{{- $config := .Values.agent.config -}}
{{- $source := $config.source | default "kmsg" -}}
{{- $detectors := $config.detectors | default dict -}}
{{- $reads := dict -}}
{{- range list "disk-state" "runtime-state" "unit-state" -}}
{{- $isOff := eq (get (get $detectors . | default dict) "enabled" | toString) "false" -}}
{{- $_ := set $reads . (not (or $isOff $config.logs_only)) -}}
{{- end -}}
{{- $paths := dict -}}
{{- if get $reads "disk-state" -}}
{{- $_ := set $paths "/" "Directory" -}}
{{- else -}}
{{- /* /opt has the commands and the cluster file of AWS. */ -}}
{{- range list "/proc" "/sys" "/opt" -}}
{{- $_ := set $paths . "Directory" -}}
{{- end -}}
{{- if or (get $reads "runtime-state") (get $reads "unit-state") (eq $source "journald") -}}
{{- $_ := set $paths "/run" "Directory" -}}
{{- end -}}
{{- $kmsg := $config.kmsg | default "/host/dev/kmsg" -}}
{{- if and (eq $source "kmsg") (eq $kmsg "/host/dev/kmsg") -}}
{{- $_ := set $paths "/dev/kmsg" "CharDevice" -}}
{{- else if and (eq $source "kmsg") (hasPrefix "/host/" $kmsg) -}}
{{- $_ := set $paths (trimPrefix "/host" $kmsg | dir) "Directory" -}}
{{- end -}}
{{- if eq $source "journald" -}}
{{- $_ := set $paths "/var/log" "Directory" -}}
{{- $_ := set $paths "/etc/machine-id" "File" -}}
{{- end -}}
{{- if $config.drill_until -}}
{{- $_ := set $paths "/var/log" "Directory" -}}
{{- end -}}
{{- range $config.log_files -}}
{{- if hasPrefix "/host/" . -}}
{{- $_ := set $paths (trimPrefix "/host" . | dir) "Directory" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "paths" $paths) -}}
{{- end }}

{{- define "holdfast.hostVolume" -}}
{{- printf "host%s" (regexReplaceAll "[^a-z0-9]+" (lower .) "-") | trimSuffix "-" | trunc 63 -}}
{{- end }}

{{- define "holdfast.agentHostMounts" -}}
{{- $paths := (include "holdfast.agentHost" . | fromYaml).paths -}}
{{- range $path, $type := $paths }}
- name: {{ include "holdfast.hostVolume" $path }}
  mountPath: {{ printf "/host%s" $path | trimSuffix "/" }}
  readOnly: true
  {{- if eq $path "/" }}
  mountPropagation: HostToContainer
  {{- end }}
{{- end }}
{{- end }}

{{- define "holdfast.agentHostVolumes" -}}
{{- $paths := (include "holdfast.agentHost" . | fromYaml).paths -}}
{{- range $path, $type := $paths }}
- name: {{ include "holdfast.hostVolume" $path }}
  hostPath:
    path: {{ $path }}
    type: {{ $type }}
{{- end }}
{{- end }}
