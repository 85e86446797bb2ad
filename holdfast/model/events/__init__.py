"""Events, one class each, with a dotted name in the past tense."""

from holdfast.model.events.checks import *
from holdfast.model.events.cluster import *
from holdfast.model.events.event import *
from holdfast.model.events.jobs import *
from holdfast.model.events.nodes import *
