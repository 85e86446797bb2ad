{{- /* Written by tools/render_agent_conditions.py from holdfast/model/names.py. */ -}}
{{- define "holdfast.agentConditions" -}}
['NvidiaErrorTerminate', 'NvidiaErrorReboot', 'NvidiaGPUUnhealthy', 'NeuronHealth',
'NetworkFaultType', 'HostHardwareError', 'ReadonlyFilesystem', 'SoftwareError',
'KernelDeadlock', 'XfsShutdown', 'DiskError', 'HostMemoryExhausted',
'CperHardwareErrorFatal']
{{- end }}
