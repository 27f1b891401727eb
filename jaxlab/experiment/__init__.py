"""What every experiment shares: flags, folders, metrics, verdicts, figures and the way to run."""

from jaxlab.core.usage import UsageError as UsageError
from jaxlab.experiment.args import CommonArgs as CommonArgs
from jaxlab.experiment.args import seed_keys as seed_keys
from jaxlab.experiment.entry import Experiment as Experiment
from jaxlab.experiment.entry import main as main
from jaxlab.experiment.metrics import Row as Row
from jaxlab.experiment.metrics import read_metrics as read_metrics
from jaxlab.experiment.metrics import select as select
from jaxlab.experiment.session import Session as Session
from jaxlab.experiment.verdict import Criterion as Criterion
from jaxlab.experiment.verdict import Report as Report
from jaxlab.experiment.verdict import ReportTable as ReportTable
