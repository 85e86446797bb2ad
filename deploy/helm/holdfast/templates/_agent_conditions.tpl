{{- /* Written by tools/render_chart_lists.py. */ -}}
{{- define "holdfast.agentConditions" -}}
['NvidiaErrorTerminate', 'NvidiaErrorReboot', 'NvidiaGPUUnhealthy', 'NeuronHealth',
'NetworkFaultType', 'HostHardwareError', 'ReadonlyFilesystem', 'SoftwareError',
'KernelDeadlock', 'XfsShutdown', 'DiskError', 'HostMemoryExhausted',
'CperHardwareErrorFatal']
{{- end }}
