r"""Whether a model has forgotten: its distance to a model that never saw what was to be forgotten.

| metric | definition |
| --- | --- |
| FA | accuracy on the forget set |
| RA | accuracy on the retained training data |
| TA | accuracy on held-out data of what is retained |
| MIA | share of the forget set that the attack calls *not* trained on |
| entropy | mean entropy of the prediction on the forget set, in nats |
| gap | mean of the four \|differences\| to the retrained model's FA, RA, TA and MIA |

The attack is a threshold on the largest probability: that which tells retained training data from
held-out data best, by the mean of both rates. FA = 0 is not the aim: a retrained model knows most
of a random subset anyway, and an attack that is *wrong* more often than on the retrained model
leaks as well, so look at both signs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxlab.optim.oeu import Labelled, entropy

__all__ = [
    "Attack",
    "UnlearnReport",
    "UnlearnSplits",
    "accuracy",
    "membership_attack",
    "unlearning_gap",
    "unlearning_report",
]


class Attack(NamedTuple):
    """A threshold attack on membership.

    Attributes:
        auc: The probability that a member's score is above a non-member's, ties counting half.
        threshold: Scores of at least this are called members.
        accuracy: The mean of both rates of right answers, at least 1/2.
    """

    auc: Float[Array, ""]
    threshold: Float[Array, ""]
    accuracy: Float[Array, ""]

    def is_member(self, scores: Float[Array, "..."]) -> Bool[Array, "..."]:
        """What the attack says of other scores."""
        return scores >= self.threshold


class UnlearnSplits(NamedTuple):
    """The data that a report is about.

    Attributes:
        forget: Of the training set, to be forgotten.
        retain: The rest of the training set.
        test: Held out, of what is retained: without the class, if a class is forgotten.
    """

    forget: Labelled
    retain: Labelled
    test: Labelled


class UnlearnReport(NamedTuple):
    """The metrics of one model; see the module's table.

    Attributes:
        forget_accuracy: FA.
        retain_accuracy: RA.
        test_accuracy: TA.
        mia: MIA.
        auc: Of the attack's score between forget set and held-out data; 1/2 is no leak, and below
            is a leak by too much forgetting.
        forget_entropy: In nats.
    """

    forget_accuracy: Float[Array, ""]
    retain_accuracy: Float[Array, ""]
    test_accuracy: Float[Array, ""]
    mia: Float[Array, ""]
    auc: Float[Array, ""]
    forget_entropy: Float[Array, ""]


def accuracy(logits: Float[Array, "rows classes"], labels: Int[Array, " rows"]) -> Float[Array, ""]:
    """The share of rows whose largest logit is the label's; NaN logits are wrong.

    Example:
        >>> float(accuracy(jnp.array([[1.0, 0.0], [1.0, 0.0]]), jnp.array([0, 1])))
        0.5
    """
    right = jnp.argmax(logits, axis=-1) == labels
    return (right & jnp.isfinite(logits).all(axis=-1)).mean(dtype=logits.dtype)


def membership_attack(members: Float[Array, " members"], others: Float[Array, " others"]) -> Attack:
    """The best threshold between two sets of scores, of which members have the larger.

    Args:
        members: Scores, such as largest probabilities or minus entropies, of training data.
        others: Scores of held-out data.

    Raises:
        ValueError: One of them is empty.

    Example:
        >>> members, others = jnp.array([0.9, 0.8, 0.6]), jnp.array([0.7, 0.2])
        >>> attack = jax.jit(membership_attack)(members, others)
        >>> [round(float(x), 4) for x in attack]
        [0.8333, 0.8, 0.8333]
    """
    for name, scores in (("members", members), ("others", others)):
        if not scores.size:
            raise ValueError(f"{name} must hold at least one score, got none")
    # One sort serves the curve and the area under it: a program of few operations.
    flags = jnp.concatenate([jnp.ones_like(members), jnp.zeros_like(others)])
    scores, flags = jax.lax.sort((jnp.concatenate([members, others]), flags), num_keys=1)
    places = jnp.arange(scores.size)
    changes = scores[1:] != scores[:-1]
    # Where each score's group of ties starts and ends.
    first = jax.lax.cummax(jnp.where(jnp.append(True, changes), places, 0))
    last = jax.lax.cummin(
        jnp.where(jnp.append(changes, True), places, scores.size - 1), reverse=True
    )
    number = members.size
    ranks = (flags @ (first + last).astype(scores.dtype)) / 2
    auc = (ranks - number * (number - 1) / 2) / (number * others.size)
    below = (jnp.cumsum(flags) - flags)[first]
    right = 1 - below / number + (first.astype(scores.dtype) - below) / others.size
    # The last cut is above all scores and calls nobody a member.
    right = jnp.append(right, 1.0) / 2
    best = jnp.argmax(right)
    threshold = jnp.append(scores, jnp.inf)[best]
    known = jnp.isfinite(members).all() & jnp.isfinite(others).all()
    return Attack(*(jnp.where(known, x, jnp.nan) for x in (auc, threshold, right[best])))


def unlearning_report(
    apply_fn: Callable[[Any, Any], Any], params: PyTree, splits: UnlearnSplits
) -> UnlearnReport:
    """All metrics of one model.

    Args:
        apply_fn: ``(params, inputs) -> logits``.
        params: Of the model.
        splits: What was forgotten, retained and held out.

    Example:
        >>> rows = Labelled(4 * jnp.eye(3), jnp.arange(3))
        >>> splits = UnlearnSplits(rows, rows, rows)
        >>> report = jax.jit(lambda w: unlearning_report(lambda w, x: x @ w, w, splits))
        >>> [round(float(x), 3) for x in report(jnp.eye(3))]
        [1.0, 1.0, 1.0, 0.0, 0.5, 0.177]
    """
    forget, retain, test = (apply_fn(params, part.inputs) for part in splits)
    scores = [jax.nn.softmax(logits).max(axis=-1) for logits in (forget, retain, test)]
    attack = membership_attack(scores[1], scores[2])
    return UnlearnReport(
        accuracy(forget, splits.forget.labels),
        accuracy(retain, splits.retain.labels),
        accuracy(test, splits.test.labels),
        (~attack.is_member(scores[0])).mean(dtype=forget.dtype),
        membership_attack(scores[0], scores[2]).auc,
        entropy(forget).mean(),
    )


def unlearning_gap(report: UnlearnReport, reference: UnlearnReport) -> Float[Array, ""]:
    """The mean of the absolute differences in FA, RA, TA and MIA, in [0, 1].

    Args:
        report: Of the model that has unlearned.
        reference: Of a model trained without what was to be forgotten, with the same splits.

    Example:
        >>> one = UnlearnReport(*jnp.ones((6,)))
        >>> float(unlearning_gap(one, one._replace(mia=jnp.array(0.5))))
        0.125
    """
    differences = [jnp.abs(a - b) for a, b in zip(report[:4], reference[:4], strict=True)]
    return jnp.stack(differences).mean()
