"""Every published name, each spelled once.

Labels, taint and annotations are Amazon SageMaker HyperPod's, the node conditions are those of
HyperPod's health monitoring agent and of node-problem-detector (a condition is True when there is
a problem), so that existing selectors, dashboards and scripts understand Holdfast.
"""

from holdfast.model.names.causes import *
from holdfast.model.names.conditions import *
from holdfast.model.names.job_annotations import *
from holdfast.model.names.labels import *
from holdfast.model.names.platforms import *
from holdfast.model.names.reasons import *
