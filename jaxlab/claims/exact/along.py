"""Elementwise expressions along a dimension that is not known, in terms of PEPit's points."""

import dataclasses
from typing import Any

__all__ = ["Along", "NotSymbolicError", "is_number"]


class NotSymbolicError(ValueError):
    """A program does with points what only numbers allow, so it needs a twin written by hand."""


def is_number(entry: Any) -> bool:
    """Whether an entry is a plain number."""
    return isinstance(entry, int | float)


@dataclasses.dataclass(frozen=True, eq=False)
class Along:
    """``constant + point_i + product_i`` for ``i`` along the unknown dimension.

    Sums, multiples and elementwise products stay of this form, as long as no product has three
    factors. A sum over the dimension makes inner products of the elementwise ones.

    Attributes:
        constant: The same number everywhere.
        point: A PEPit ``Point``; None stands for zero.
        product: Elementwise products, held as their sum, a PEPit ``Expression``; None is zero.
    """

    constant: float = 0.0
    point: Any = None
    product: Any = None

    def __add__(self, other: Any) -> "Along":
        other = _along(other)
        return Along(
            self.constant + other.constant,
            _plus(self.point, other.point),
            _plus(self.product, other.product),
        )

    __radd__ = __add__

    def __neg__(self) -> "Along":
        return self.scaled(-1.0)

    def __sub__(self, other: Any) -> "Along":
        return self + -_along(other)

    def __rsub__(self, other: Any) -> "Along":
        return -self + other

    def __mul__(self, other: Any) -> "Along":
        other = _along(other)
        mixed = _plus(_scaled(self.point, other.constant), _scaled(other.point, self.constant))
        product = _plus(
            _scaled(self.product, other.constant), _scaled(other.product, self.constant)
        )
        if self.point is not None and other.point is not None:
            product = _plus(product, self.point * other.point)
        if self.product is not None and (other.point is not None or other.product is not None):
            raise TypeError("a product of three points")
        if other.product is not None and self.point is not None:
            raise TypeError("a product of three points")
        return Along(self.constant * other.constant, mixed, product)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Along":
        other = _along(other)
        if other.point is not None or other.product is not None:
            raise TypeError("a division by a point")
        return self.scaled(1.0 / other.constant)

    def scaled(self, factor: float) -> "Along":
        """A multiple."""
        return Along(
            self.constant * factor, _scaled(self.point, factor), _scaled(self.product, factor)
        )

    def total(self) -> Any:
        """The sum over the dimension, a number or a PEPit ``Expression``.

        Raises:
            TypeError: The sum is neither a number nor made of inner products.
        """
        if self.constant != 0 or self.point is not None:
            raise TypeError("the sum of a point's coordinates")
        return 0.0 if self.product is None else self.product

    def inner(self, other: "Along") -> Any:
        """The inner product of two points."""
        return (self * other).total()

    def as_point(self) -> Any:
        """The PEPit ``Point`` that this is.

        Raises:
            TypeError: It is not only a point.
        """
        if self.constant != 0 or self.product is not None:
            raise TypeError("an elementwise product, or a constant, in the place of a point")
        return self.point


def _along(entry: Any) -> Along:
    if isinstance(entry, Along):
        return entry
    if is_number(entry):
        return Along(float(entry))
    raise TypeError("a point scaled by an inner product")


def _plus(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _scaled(entry: Any, factor: float) -> Any:
    return None if entry is None or factor == 0 else factor * entry
