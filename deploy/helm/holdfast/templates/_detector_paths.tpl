{{- /* Written by tools/render_chart_lists.py. */ -}}
{{- define "holdfast.detectorPaths" -}}
gpu-state: [/proc]
neuron-state: [/sys]
network-state: [/sys]
efa-devices: [/sys]
infiniband-ports: [/sys]
memory-state: [/proc, /sys]
disk-state: [/proc]
edac-state: [/sys]
process-state: [/proc]
runtime-state: [/run]
unit-state: [/run]
{{- end }}
