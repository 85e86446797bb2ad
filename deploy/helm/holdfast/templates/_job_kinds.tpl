{{- /* Written by tools/render_chart_lists.py. */ -}}
{{- define "holdfast.jobKinds" -}}
PyTorchJob: {group: kubeflow.org, plural: pytorchjobs}
Job: {group: batch, plural: jobs}
JobSet: {group: jobset.x-k8s.io, plural: jobsets}
MPIJob: {group: kubeflow.org, plural: mpijobs}
TrainJob: {group: trainer.kubeflow.org, plural: trainjobs}
RayCluster: {group: ray.io, plural: rayclusters}
RayJob: {group: ray.io, plural: rayjobs}
HyperPodPyTorchJob: {group: sagemaker.amazonaws.com, plural: hyperpodpytorchjobs}
{{- end }}
