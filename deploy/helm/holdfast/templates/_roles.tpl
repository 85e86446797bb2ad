{{- /*
The head of a ClusterRole of the controller for one feature, with its binding before it; its rules
follow. Argument: a list of the root and the name of the feature.
*/ -}}
{{- define "holdfast.clusterRole" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s-%s" (include "holdfast.controller" $root) (index . 1) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "holdfast.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "holdfast.controller" $root }}
    namespace: {{ $root.Release.Namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels:
    {{- include "holdfast.labels" $root | nindent 4 }}
rules:
{{- end }}

{{- /* The same as a Role. Argument: a list of the root, the name of the feature, and the namespace. */ -}}
{{- define "holdfast.role" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s-%s" (include "holdfast.controller" $root) (index . 1) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ index . 2 }}
  labels:
    {{- include "holdfast.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "holdfast.controller" $root }}
    namespace: {{ $root.Release.Namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ index . 2 }}
  labels:
    {{- include "holdfast.labels" $root | nindent 4 }}
rules:
{{- end }}
