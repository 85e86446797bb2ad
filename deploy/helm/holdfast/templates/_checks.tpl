{{- /*
What a schema cannot compare: values with each other, and with the cluster. Each refusal names the
key and what to set. For a cluster that helm does not ask, as in `helm template`, name its API
versions: --api-versions monitoring.coreos.com/v1
*/ -}}
{{- define "holdfast.checks" -}}
{{- range list "podMonitor" "prometheusRule" -}}
{{- if and (get $.Values .).enabled (not ($.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
{{- printf "%s.enabled: the cluster does not serve monitoring.coreos.com/v1; install the Prometheus operator first, or set %s.enabled=false (with helm template: --api-versions monitoring.coreos.com/v1)" . . | fail -}}
{{- end -}}
{{- end -}}
{{- if and .Values.agent.createNamespace (not .Values.agent.namespace) -}}
{{- fail "agent.createNamespace: needs agent.namespace, the name of a namespace for the agents alone" -}}
{{- end -}}
{{- if and .Values.createNamespace .Values.agent.createNamespace (eq .Values.agent.namespace .Release.Namespace) -}}
{{- fail "createNamespace and agent.createNamespace: both make the same namespace; set one to false" -}}
{{- end -}}
{{- if .Values.agent.journalGroup -}}
{{- $config := .Values.agent.config -}}
{{- if ne ($config.source | default "kmsg") "journald" -}}
{{- fail "agent.journalGroup: only the journal can be read without root; set agent.config.source=journald" -}}
{{- end -}}
{{- $runtime := get ($config.detectors | default dict) "runtime-state" | default dict -}}
{{- if not (or $config.logs_only (eq (get $runtime "enabled" | toString) "false")) -}}
{{- fail "agent.journalGroup: the socket of the container runtime is readable by root only; set agent.config.detectors.runtime-state.enabled=false" -}}
{{- end -}}
{{- end -}}
{{- with .Values.agent.cloudwatch -}}
{{- if and .enabled (not .lines) (not .metrics) -}}
{{- fail "agent.cloudwatch: lines and metrics are both false, so nothing is exported; set one to true, or enabled to false" -}}
{{- end -}}
{{- end -}}
{{- if .Values.controller.enabled -}}
{{- include "holdfast.checkFiles" . -}}
{{- include "holdfast.checkSecret" . -}}
{{- end -}}
{{- end }}

{{- /* Files that the controller reads or writes must be in a volume: the image contains none of them. */ -}}
{{- define "holdfast.checkFiles" -}}
{{- $config := .Values.controller.config -}}
{{- $provider := $config.provider | default dict -}}
{{- $notices := $config.notices | default dict -}}
{{- $files := dict
      "provider.webhook.secret_file" ($provider.webhook | default dict).secret_file
      "provider.webhook.ca_file" ($provider.webhook | default dict).ca_file
      "provider.cluster_api.kubeconfig" ($provider.cluster_api | default dict).kubeconfig
      "notices.webhook.secret_file" ($notices.webhook | default dict).secret_file
      "notices.webhook.ca_file" ($notices.webhook | default dict).ca_file
      "notices.apprise_file" $notices.apprise_file
      "notices.file" $notices.file -}}
{{- range $key, $file := $files -}}
{{- if $file -}}
{{- $found := dict -}}
{{- range $.Values.controller.volumeMounts -}}
{{- if or (eq $file .mountPath) (hasPrefix (printf "%s/" (trimSuffix "/" .mountPath)) $file) -}}
{{- $_ := set $found "mount" . -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- printf "controller.config.%s: %s is in none of controller.volumeMounts; add a volume that holds it to controller.volumes and controller.volumeMounts" $key $file | fail -}}
{{- end -}}
{{- if and (eq $key "notices.file") $found.mount.readOnly -}}
{{- printf "controller.config.%s: %s is in a volume that is mounted read-only; set readOnly of that volumeMount to false" $key $file | fail -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Orders by webhook are signed. */ -}}
{{- define "holdfast.checkSecret" -}}
{{- $provider := .Values.controller.config.provider | default dict -}}
{{- if has "webhook" (list ($provider.replace | default "none") ($provider.reboot | default "none")) -}}
{{- $variable := $provider.webhook.secret_env | default "HOLDFAST_WEBHOOK_SECRET" -}}
{{- $given := dict -}}
{{- range .Values.controller.env -}}{{- if eq .name $variable -}}{{- $_ := set $given "env" true -}}{{- end -}}{{- end -}}
{{- if not (or $provider.webhook.secret_file $given .Values.controller.envFrom) -}}
{{- printf "controller.config.provider.webhook: there is no key to sign orders with; set secret_file to a file in controller.volumeMounts, or set %s in controller.env" $variable | fail -}}
{{- end -}}
{{- end -}}
{{- end }}
