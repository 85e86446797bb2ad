{{- /*
What the agent reads of its node, as YAML: `paths`, each with its type, and `fileSystems`, whether their
space is measured: a path on a file system is enough for that.
*/ -}}
{{- define "holdfast.agentHost" -}}
{{- $config := .Values.agent.config -}}
{{- $source := $config.source | default "kmsg" -}}
{{- $detectors := $config.detectors | default dict -}}
{{- /* The agent itself: boot ID and uptime, firmware, the commands and the cluster file of AWS. */ -}}
{{- $paths := dict "/proc" "Directory" "/sys" "Directory" "/opt" "Directory" -}}
{{- $fileSystems := false -}}
{{- if not $config.logs_only -}}
{{- range $name, $reads := include "holdfast.detectorPaths" . | fromYaml -}}
{{- if ne (get (get $detectors $name | default dict) "enabled" | toString) "false" -}}
{{- range $reads -}}{{- $_ := set $paths . "Directory" -}}{{- end -}}
{{- if eq $name "disk-state" -}}
{{- $fileSystems = true -}}
{{- range $.Values.agent.diskPaths -}}{{- $_ := set $paths . "Directory" -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $kmsg := $config.kmsg | default "/host/dev/kmsg" -}}
{{- if and (eq $source "kmsg") (eq $kmsg "/host/dev/kmsg") -}}
{{- $_ := set $paths "/dev/kmsg" "CharDevice" -}}
{{- else if and (eq $source "kmsg") (hasPrefix "/host/" $kmsg) -}}
{{- $_ := set $paths (trimPrefix "/host" $kmsg | dir) "Directory" -}}
{{- end -}}
{{- if eq $source "journald" -}}
{{- range list "/run" "/var/log" -}}{{- $_ := set $paths . "Directory" -}}{{- end -}}
{{- $_ := set $paths "/etc/machine-id" "File" -}}
{{- end -}}
{{- if $config.drill_until -}}
{{- $_ := set $paths "/var/log" "Directory" -}}
{{- end -}}
{{- $files := concat ($config.log_files | default list) ($config.rule_files | default list) -}}
{{- range $files -}}
{{- if hasPrefix "/host/" . -}}
{{- $_ := set $paths (trimPrefix "/host" . | dir) "Directory" -}}
{{- end -}}
{{- end -}}
{{- range splitList ":" ($config.command_path | default "") -}}
{{- if and (hasPrefix "/host/" .) (not (hasPrefix "/host/opt/" .)) -}}
{{- $_ := set $paths (trimPrefix "/host" . | clean) "Directory" -}}
{{- end -}}
{{- end -}}
{{- if hasKey $paths "/" -}}
{{- fail "agent.config: kmsg, log_files, rule_files or command_path names / of the node, which agents do not mount; use a directory below it" -}}
{{- end -}}
{{- toYaml (dict "paths" $paths "fileSystems" $fileSystems) -}}
{{- end }}

{{- define "holdfast.hostVolume" -}}
{{- printf "host%s" (regexReplaceAll "[^a-z0-9]+" (lower .) "-") | trimSuffix "-" | trunc 63 -}}
{{- end }}

{{- define "holdfast.agentHostMounts" -}}
{{- $host := include "holdfast.agentHost" . | fromYaml -}}
{{- range $path, $type := $host.paths }}
- name: {{ include "holdfast.hostVolume" $path }}
  mountPath: /host{{ $path }}
  readOnly: true
  {{- if and $host.fileSystems (has $path (append ($.Values.agent.diskPaths | default list) "/opt")) }}
  # With file systems that are mounted later.
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
