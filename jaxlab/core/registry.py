"""The papers, as rows: everything that iterates over papers reads this table."""

import difflib
from typing import Literal, NamedTuple

__all__ = ["Paper", "find_paper", "papers"]


class Paper(NamedTuple):
    """One paper of the toolkit.

    Attributes:
        slug: The name of its module, experiment, claims, benchmark and page.
        title: The paper's title.
        source: Where it is published.
        family: The package that its module lives in.
        evidence: ``"full paper"``, or ``"reconstruction"`` where the text was not to be had and the
            method was rebuilt from its abstract and predecessors.
        summary: What a user gets, in one line.
        methods: Factories in the module that return a ``Method``; the conformance suite runs them.
        claims: The number of claims in ``proofs_checks/<slug>.py``.
    """

    slug: str
    title: str
    source: str
    family: str
    evidence: Literal["full paper", "reconstruction"]
    summary: str
    methods: tuple[str, ...]
    claims: int

    @property
    def module(self) -> str:
        """The import path of the paper's functions."""
        return f"jaxlab.{self.family}.{self.slug}"


_PAPERS = (
    Paper(
        slug="dual_sgd",
        title=(
            "Accelerated Dual Method for Distributed Optimization: "
            "An Inexact-Gradient View of Local Updates"
        ),
        source="ICML 2026; predecessor arXiv:2407.02689",
        family="optim",
        evidence="reconstruction",
        summary="Exact distributed optimization with any number of local SGD steps per exchange.",
        methods=("dual_sgd",),
        claims=16,
    ),
    Paper(
        slug="ais",
        title=(
            "Adaptive Importance Sampling with Global Sampling Mechanisms and a Delayed Weighting "
            "Procedure"
        ),
        source="ICML 2026; known from its abstract",
        family="inference",
        evidence="reconstruction",
        summary="Evidence and expectations of multimodal densities from batches of log densities.",
        methods=("delayed_ais",),
        claims=10,
    ),
    Paper(
        slug="nse",
        title=(
            "A Noise Sensitivity Exponent Controls Large Statistical-to-Computational Gaps in "
            "Single- and Multi-Index Models"
        ),
        source="ICML 2026; arXiv:2603.17896",
        family="theory",
        evidence="reconstruction",
        summary="How wide the gap between what is learnable and what is computable opens in noise.",
        methods=("amp",),
        claims=11,
    ),
    Paper(
        slug="memorization",
        title=(
            "Two Calm Ends and the Wild Middle: A Geometric Picture of Memorization in Diffusion "
            "Models"
        ),
        source="ICML 2026; arXiv:2602.17846",
        family="diffusion",
        evidence="reconstruction",
        summary="At which noise levels a diffusion model copies its training set, and how not to.",
        methods=("gap_training",),
        claims=15,
    ),
    Paper(
        slug="lmaps",
        title="LMAPS: Local MAP Sampling for Diffusion Models",
        source="ICML 2026; arXiv:2510.07343",
        family="diffusion",
        evidence="reconstruction",
        summary="One accurate reconstruction from a denoiser and a measurement of any kind.",
        methods=("lmaps",),
        claims=16,
    ),
    Paper(
        slug="lie_bracket",
        title=("The Geometry of Sequential Learning: Lie-Bracket Prediction of Transfer Order"),
        source="ICML 2026; arXiv:2606.24993",
        family="optim",
        evidence="reconstruction",
        summary="In which order to train on many sources, by one Hessian product a source.",
        methods=("ordered_sgd",),
        claims=20,
    ),
    Paper(
        slug="lqr_steering",
        title=(
            "Local Linearity of LLMs Enables Activation Steering via Model-Based Linear Optimal "
            "Control"
        ),
        source="ICML 2026; arXiv:2604.19018",
        family="language",
        evidence="reconstruction",
        summary="Steer a language model's hidden states by feedback through its layers.",
        methods=("lqr_steering",),
        claims=11,
    ),
    Paper(
        slug="demoa",
        title=(
            "Delayed Momentum Aggregation: Communication-efficient Byzantine-robust Federated "
            "Learning with Partial Participation"
        ),
        source="arXiv:2509.02970",
        family="optim",
        evidence="reconstruction",
        summary="Federated training that survives rounds in which most sampled clients lie.",
        methods=("demoa",),
        claims=13,
    ),
    Paper(
        slug="oeu",
        title=(
            "Forget by Uncertainty: Orthogonal Entropy Unlearning for Quantized Neural Networks"
        ),
        source="ICML 2026; arXiv:2602.00567",
        family="optim",
        evidence="reconstruction",
        summary="Make a low-bit classifier forget samples or a class without hurting the rest.",
        methods=("oeu",),
        claims=12,
    ),
    Paper(
        slug="multitask_limits",
        title="When More Data Doesn't Help: Limits of Adaptation in Multitask Learning",
        source="ICML 2026; arXiv:2601.20774",
        family="theory",
        evidence="reconstruction",
        summary="How much knowing the good tasks beats every learner that must find them out.",
        methods=("task_type_em",),
        claims=10,
    ),
    Paper(
        slug="meta_gain",
        title="When Does Adaptation Win? Scaling Laws for Meta-Learning in Quantum Control",
        source="ICML 2026; arXiv:2601.18973",
        family="optim",
        evidence="reconstruction",
        summary="Whether each device is worth its own gradient steps, and how many, from a few.",
        methods=("adaptation", "fomaml"),
        claims=11,
    ),
)


def papers() -> tuple[Paper, ...]:
    """All papers, in the order of the README's table."""
    return _PAPERS


def find_paper(slug: str) -> Paper:
    """The paper of this slug.

    Raises:
        ValueError: There is none; the message names the nearest slug.

    Example:
        >>> find_paper("dual_sgd").family
        'optim'
    """
    for paper in _PAPERS:
        if paper.slug == slug:
            return paper
    known = [paper.slug for paper in _PAPERS]
    near = difflib.get_close_matches(slug, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"slug must be one of {', '.join(known)}, got {slug!r}{hint}")
