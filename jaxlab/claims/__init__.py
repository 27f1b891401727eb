"""Theorems as data, and a ladder of searchers that try to break them."""

from jaxlab.claims.claim import Claim as Claim
from jaxlab.claims.claim import Comparison as Comparison
from jaxlab.claims.claim import ExactCase as ExactCase
from jaxlab.claims.claim import Expectation as Expectation
from jaxlab.claims.claim import at_most as at_most
from jaxlab.claims.claim import at_most_in_ratio as at_most_in_ratio
from jaxlab.claims.claim import close_to as close_to
from jaxlab.claims.ladder import climb as climb
from jaxlab.claims.search import Effort as Effort
from jaxlab.claims.verdict import ClaimReport as ClaimReport
from jaxlab.claims.verdict import Verdict as Verdict
