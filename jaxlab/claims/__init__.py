"""Theorems as data, and a ladder of searchers that try to break them."""

from jaxlab.claims.claim import Claim as Claim
from jaxlab.claims.claim import ExactCase as ExactCase
from jaxlab.claims.conclusions import Comparison as Comparison
from jaxlab.claims.conclusions import Expectation as Expectation
from jaxlab.claims.conclusions import Probability as Probability
from jaxlab.claims.conclusions import Scaling as Scaling
from jaxlab.claims.conclusions import at_most as at_most
from jaxlab.claims.conclusions import at_most_in_ratio as at_most_in_ratio
from jaxlab.claims.conclusions import close_to as close_to
from jaxlab.claims.conclusions import holds_always as holds_always
from jaxlab.claims.conclusions import holds_with_probability as holds_with_probability
from jaxlab.claims.ladder import climb as climb
from jaxlab.claims.search import Effort as Effort
from jaxlab.claims.verdict import ClaimReport as ClaimReport
from jaxlab.claims.verdict import Verdict as Verdict
