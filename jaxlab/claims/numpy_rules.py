"""The arithmetic of JAX's primitives in NumPy and SciPy, for ``jaxlab.claims.outside``."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import scipy.linalg
import scipy.special

__all__ = ["ARITHMETIC", "SEVERAL", "SHAPED", "NoOutsideRuleError", "threefry_bits"]


class NoOutsideRuleError(LookupError):
    """A primitive has no rule here, so the program cannot be recomputed outside JAX."""


def threefry_bits(first: int, second: int, shape: tuple[int, ...], width: int) -> np.ndarray:
    """Random bits of a threefry2x32 key (Salmon et al. 2011), counted as JAX counts them.

    Example:
        >>> key = jax.random.key(7)
        >>> drawn = threefry_bits(*jax.random.key_data(key).tolist(), (3,), 32)
        >>> (drawn == jax.random.bits(key, (3,), "uint32")).all().item()
        True
    """
    count = np.arange(int(np.prod(shape)), dtype=np.uint64)
    x = [(count >> np.uint64(32)).astype(np.uint32), count.astype(np.uint32)]
    keys = [np.uint32(word) for word in (first, second, first ^ second ^ 0x1BD11BDA)]
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    with np.errstate(over="ignore"):
        x = [x[0] + keys[0], x[1] + keys[1]]
        for block in range(5):
            for turn in rotations[block % 2]:
                x[0] = x[0] + x[1]
                turned = (x[1] << np.uint32(turn)) | (x[1] >> np.uint32(32 - turn))
                x[1] = x[0] ^ turned
            x[0] = x[0] + keys[(block + 1) % 3]
            x[1] = x[1] + keys[(block + 2) % 3] + np.uint32(block + 1)
    if width == 64:
        bits = (x[0].astype(np.uint64) << np.uint64(32)) | x[1].astype(np.uint64)
    else:
        bits = (x[0] ^ x[1]).astype(f"uint{width}")
    return bits.reshape(shape)


def _broadcast(args: list[Any], params: dict[str, Any]) -> Any:
    operand, shape = args[0], params["shape"]
    spread = [1] * len(shape)
    for axis, target in enumerate(params["broadcast_dimensions"]):
        spread[target] = operand.shape[axis]
    return np.broadcast_to(operand.reshape(spread), shape)


def _dot_general(args: list[Any], params: dict[str, Any]) -> Any:
    (contract_a, contract_b), (batch_a, batch_b) = params["dimension_numbers"]
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    name_a = [next(letters) for _ in range(args[0].ndim)]
    name_b = [next(letters) for _ in range(args[1].ndim)]
    for i, j in [*zip(contract_a, contract_b, strict=True), *zip(batch_a, batch_b, strict=True)]:
        name_b[j] = name_a[i]
    free_a = [n for i, n in enumerate(name_a) if i not in (*contract_a, *batch_a)]
    free_b = [n for j, n in enumerate(name_b) if j not in (*contract_b, *batch_b)]
    out = [name_a[i] for i in batch_a] + free_a + free_b
    return np.einsum(f"{''.join(name_a)},{''.join(name_b)}->{''.join(out)}", *args)


def _cumulative(function: Callable[..., Any]) -> Callable[..., Any]:
    def apply(args: list[Any], params: dict[str, Any]) -> Any:
        axis = params["axis"]
        operand = np.flip(args[0], axis) if params["reverse"] else args[0]
        out = function(operand, axis=axis)
        return np.flip(out, axis) if params["reverse"] else out

    return apply


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda args, params: function(args[0], axis=tuple(params["axes"]))


def _over_batch(function: Callable[..., tuple]) -> Callable[..., list[Any]]:
    """Lift a function of matrices to leading batch axes."""

    def apply(*operands: np.ndarray) -> list[Any]:
        batch = operands[0].shape[:-2]
        if not batch:
            return list(function(*operands))
        flat = [x.reshape(-1, *x.shape[len(batch) :]) for x in operands]
        rows = [function(*row) for row in zip(*flat, strict=True)]
        columns = zip(*rows, strict=True)
        return [np.stack(c).reshape(*batch, *np.shape(c[0])) for c in columns]

    return apply


def _lu(matrix: np.ndarray) -> tuple:
    factors, pivots = scipy.linalg.lu_factor(matrix, check_finite=False)
    permutation = np.arange(matrix.shape[0])
    for i, pivot in enumerate(pivots):
        permutation[[i, pivot]] = permutation[[pivot, i]]
    return factors, pivots, permutation


def _triangular_solve(args: list[Any], params: dict[str, Any]) -> Any:
    def solve(matrix: np.ndarray, right: np.ndarray) -> tuple:
        transpose = int(params["transpose_a"])
        options = {"unit_diagonal": params["unit_diagonal"], "check_finite": False}
        if params["left_side"]:
            return (
                scipy.linalg.solve_triangular(
                    matrix, right, lower=params["lower"], trans=transpose, **options
                ),
            )
        solved = scipy.linalg.solve_triangular(
            matrix, right.T, lower=params["lower"], trans=1 - transpose, **options
        )
        return (solved.T,)

    return _over_batch(solve)(*args)[0]


def _cholesky(matrix: np.ndarray) -> tuple:
    try:
        return (np.linalg.cholesky(matrix),)
    except np.linalg.LinAlgError:
        return (np.full_like(matrix, np.nan),)


def _eigh(args: list[Any], params: dict[str, Any]) -> list[Any]:
    triangle = "L" if params["lower"] else "U"

    def decompose(matrix: np.ndarray) -> tuple:
        values, vectors = np.linalg.eigh(matrix, UPLO=triangle)
        return vectors, values

    return _over_batch(decompose)(*args)


def _eig(args: list[Any], params: dict[str, Any]) -> list[Any]:
    if params["compute_left_eigenvectors"] or params["compute_right_eigenvectors"]:
        raise NoOutsideRuleError("no rule outside JAX for eigenvectors of a general matrix")
    return [np.linalg.eigvals(args[0])]


def _svd(args: list[Any], params: dict[str, Any]) -> list[Any]:
    if params["compute_uv"]:
        u, s, vh = np.linalg.svd(args[0], full_matrices=params["full_matrices"])
        return [s, u, vh]
    return [np.linalg.svd(args[0], compute_uv=False)]


def _top_k(args: list[Any], params: dict[str, Any]) -> list[Any]:
    order = np.argsort(-args[0], axis=-1, kind="stable")[..., : params["k"]]
    return [np.take_along_axis(args[0], order, axis=-1), order]


def _integer_power(args: list[Any], params: dict[str, Any]) -> Any:
    return args[0] ** params["y"] if params["y"] >= 0 else 1 / args[0] ** -params["y"]


def _before(x: Any, y: Any) -> Any:
    """The order that sorts: NaN comes last."""
    return (x < y) | (~np.isnan(x) & np.isnan(y))


def _divide(x: Any, y: Any) -> Any:
    if np.issubdtype(np.asarray(x).dtype, np.integer):
        return np.trunc(x / y)
    return x / y


SEVERAL: dict[str, Callable[[list[Any], dict[str, Any]], list[Any]]] = {
    "lu": lambda args, params: _over_batch(_lu)(*args),
    "eigh": _eigh,
    "top_k": _top_k,
    "split": lambda args, params: np.split(
        args[0], np.cumsum(params["sizes"])[:-1], axis=params["axis"]
    ),
    "qr": lambda args, params: _over_batch(
        lambda m: np.linalg.qr(m, mode="complete" if params["full_matrices"] else "reduced")
    )(*args),
    "eig": _eig,
    "svd": _svd,
    "unstack": lambda args, params: [
        x.squeeze(params["axis"])
        for x in np.split(args[0], args[0].shape[params["axis"]], axis=params["axis"])
    ],
    "optimization_barrier": lambda args, params: args,
    "check": lambda args, params: [],  # a run-time value check that was not switched on
}
"""Primitives with several results: ``(args, params) -> results``."""

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide,
    "rem": np.fmod, "neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor,
    "ceil": np.ceil, "pow": np.power, "square": np.square, "sqrt": np.sqrt, "cbrt": np.cbrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp, "exp2": np.exp2, "log": np.log,
    "log1p": np.log1p, "expm1": np.expm1, "logistic": scipy.special.expit, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "max": np.maximum,
    "min": np.minimum, "erf": scipy.special.erf, "erfc": scipy.special.erfc,
    "erf_inv": scipy.special.erfinv, "lgamma": scipy.special.gammaln,
    "digamma": scipy.special.digamma, "zeta": scipy.special.zeta,
    "regularized_incomplete_beta": scipy.special.betainc,
    "igamma": scipy.special.gammainc, "igammac": scipy.special.gammaincc,
    "is_finite": np.isfinite, "eq": np.equal,
    "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "lt_to": _before, "le_to": lambda x, y: ~_before(y, x),
    "ge": np.greater_equal, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "not": np.invert, "shift_left": np.left_shift, "shift_right_logical": np.right_shift,
    "shift_right_arithmetic": np.right_shift, "nextafter": np.nextafter,
    "clamp": lambda low, x, high: np.clip(x, low, high),
    "select_n": lambda which, *cases: np.choose(np.asarray(which).astype(int), cases),
    "stop_gradient": lambda x: x, "copy": lambda x: x, "copy_p": lambda x: x, "real": np.real,
    "imag": np.imag, "conj": np.conj, "complex": lambda x, y: x + 1j * y,
}  # fmt: skip
"""Elementwise primitives: ``(*args) -> result``."""

SHAPED: dict[str, Callable[[list[Any], dict[str, Any]], Any]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda args, params: args[0].reshape(params["new_sizes"]),
    "squeeze": lambda args, params: args[0].squeeze(tuple(params["dimensions"])),
    "expand_dims": lambda args, params: np.expand_dims(args[0], params["dimensions"]),
    "transpose": lambda args, params: args[0].transpose(params["permutation"]),
    "rev": lambda args, params: np.flip(args[0], params["dimensions"]),
    "stack": lambda args, params: np.stack(args, axis=params["axis"]),
    "tile": lambda args, params: np.tile(args[0], params["reps"]),
    "concatenate": lambda args, params: np.concatenate(args, axis=params["dimension"]),
    "convert_element_type": lambda args, params: args[0].astype(params["new_dtype"]),
    "iota": lambda args, params: np.broadcast_to(
        np.arange(params["shape"][params["dimension"]]).reshape(
            [-1 if i == params["dimension"] else 1 for i in range(len(params["shape"]))]
        ),
        params["shape"],
    ),
    "slice": lambda args, params: args[0][
        tuple(
            slice(*bounds)
            for bounds in zip(
                params["start_indices"],
                params["limit_indices"],
                params["strides"] or [1] * args[0].ndim,
                strict=True,
            )
        )
    ],
    "pad": lambda args, params: np.asarray(jax.lax.pad(args[0], args[1], params["padding_config"])),
    "round": lambda args, params: np.rint(args[0]),
    "integer_pow": _integer_power,
    "dot_general": _dot_general,
    "reduce_precision": lambda args, params: args[0],
    "reduce_sum": _reduction(np.sum),
    "reduce_prod": _reduction(np.prod),
    "reduce_max": _reduction(np.max),
    "reduce_min": _reduction(np.min),
    "unvmap_any": lambda args, params: np.any(args[0]),  # Equinox, in its bounded loops
    "unvmap_all": lambda args, params: np.all(args[0]),
    "unvmap_max": lambda args, params: np.max(args[0]),
    "nonbatchable": lambda args, params: args[0],
    "nondifferentiable_backward": lambda args, params: args[0],
    "reduce_and": _reduction(np.all),
    "reduce_or": _reduction(np.any),
    "argmax": lambda args, params: np.argmax(args[0], axis=params["axes"][0]),
    "argmin": lambda args, params: np.argmin(args[0], axis=params["axes"][0]),
    "cumsum": _cumulative(np.cumsum),
    "cumprod": _cumulative(np.cumprod),
    "cummax": _cumulative(np.maximum.accumulate),
    "cummin": _cumulative(np.minimum.accumulate),
    "cumlogsumexp": _cumulative(np.logaddexp.accumulate),
    "triangular_solve": _triangular_solve,
    "cholesky": lambda args, params: _over_batch(_cholesky)(np.tril(args[0]))[0],
}
"""Primitives with parameters and one result: ``(args, params) -> result``."""
