"""The protocol, the runners, the registry and the checks that every family shares."""

from jaxlab.core.checks import checked as checked
from jaxlab.core.chunks import ChunkProgress as ChunkProgress
from jaxlab.core.chunks import run_chunks as run_chunks
from jaxlab.core.iterate import run as run
from jaxlab.core.iterate import run_until as run_until
from jaxlab.core.registry import Paper as Paper
from jaxlab.core.registry import find_paper as find_paper
from jaxlab.core.registry import papers as papers
from jaxlab.core.types import Method as Method
from jaxlab.core.types import Run as Run
from jaxlab.core.types import Status as Status
