"""The exact rung: true worst cases over whole classes of instances."""

from jaxlab.claims.exact.algebra import at_rationals as at_rationals
from jaxlab.claims.exact.algebra import identity_case as identity_case
from jaxlab.claims.exact.algebra import nonnegative_case as nonnegative_case
from jaxlab.claims.exact.along import NotSymbolicError as NotSymbolicError
from jaxlab.claims.exact.finite import connected_graphs as connected_graphs
from jaxlab.claims.exact.finite import enumerate_worst as enumerate_worst
from jaxlab.claims.exact.finite import expectation as expectation
from jaxlab.claims.exact.finite import quadrature_case as quadrature_case
from jaxlab.claims.exact.oracles import UnknownFunction as UnknownFunction
from jaxlab.claims.exact.oracles import gradient as gradient
from jaxlab.claims.exact.oracles import proximal as proximal
from jaxlab.claims.exact.oracles import value as value
from jaxlab.claims.exact.symbolic import run_symbolically as run_symbolically
from jaxlab.claims.exact.twin import check_twin as check_twin
from jaxlab.claims.exact.worst_case import FunctionClass as FunctionClass
from jaxlab.claims.exact.worst_case import Setting as Setting
from jaxlab.claims.exact.worst_case import convex as convex
from jaxlab.claims.exact.worst_case import smooth_convex as smooth_convex
from jaxlab.claims.exact.worst_case import solve as solve
from jaxlab.claims.exact.worst_case import sweep as sweep
