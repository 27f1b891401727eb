"""Slow, readable transcriptions of the methods, written from the papers in plain NumPy.

All take the agents' gradient as a function ``gradient(m, x)`` and loop over agents. ``W`` is the
gossip matrix. They share nothing with the library.
"""

import numpy as np


def dual_sgd(gradient, start, W, *, tau, q, eta, K, rounds):
    """Section "Method", steps 1 to 5: returns P, Q, X and the consensus errors."""
    M = len(W)
    P, Q = np.zeros((M, start.size)), np.zeros((M, start.size))
    X = np.array([start.copy() for _ in range(M)])
    errors = []
    for _ in range(rounds):
        R = (P + q * Q) / (1 + q)
        for m in range(M):
            for _ in range(K):
                X[m] = X[m] - eta * (gradient(m, X[m]) + R[m])
        G = np.zeros_like(X)
        for m in range(M):
            for n in range(M):
                G[m] += W[m, n] * (X[m] - X[n])
        P = R + tau * G
        Q = (1 - q) * Q + q * R + (tau / q) * G
        errors.append(np.mean(np.sum((X - X.mean(axis=0)) ** 2, axis=1)))
    return P, Q, X, np.array(errors)


def dual_sgd_two_sequences(gradient, start, W, *, tau, q, eta, K, rounds):
    """The other textbook form, ``R+ = P+ + beta (P+ - P)``: returns P and X."""
    M, beta = len(W), (1 - q) / (1 + q)
    R, P = np.zeros((M, start.size)), np.zeros((M, start.size))
    X = np.array([start.copy() for _ in range(M)])
    for _ in range(rounds):
        for _ in range(K):
            X = X - eta * (np.array([gradient(m, X[m]) for m in range(M)]) + R)
        new = R + tau * (X - W @ X)
        R, P = new + beta * (new - P), new
    return P, X


def fedavg(gradient, start, W, *, eta, K, rounds):
    """McMahan et al. 2017 with all clients and equal weights."""
    M, x = len(W), start.copy()
    for _ in range(rounds):
        finals = []
        for m in range(M):
            y = x.copy()
            for _ in range(K):
                y = y - eta * gradient(m, y)
            finals.append(y)
        x = np.mean(finals, axis=0)
    return np.array([x] * M)


def scaffold(gradient, start, W, *, eta, K, rounds):
    """Karimireddy et al. 2020, Algorithm 1, option II, global step 1, all clients."""
    M, x, c = len(W), start.copy(), np.zeros(start.size)
    c_own = np.zeros((M, start.size))
    for _ in range(rounds):
        moves, changes = [], []
        for m in range(M):
            y = x.copy()
            for _ in range(K):
                y = y - eta * (gradient(m, y) - c_own[m] + c)
            c_new = c_own[m] - c + (x - y) / (K * eta)
            moves.append(y - x)
            changes.append(c_new - c_own[m])
            c_own[m] = c_new
        x = x + np.mean(moves, axis=0)
        c = c + np.mean(changes, axis=0)
    return np.array([x] * M), c_own - c


def scaffnew(gradient, start, W, *, eta, p, coins):
    """Mishchenko et al. 2022, Algorithm 2 with control variates h; ``coins`` are the thetas."""
    M = len(W)
    X, H = np.array([start.copy() for _ in range(M)]), np.zeros((M, start.size))
    for coin in coins:
        hat = np.array([X[m] - eta * (gradient(m, X[m]) - H[m]) for m in range(M)])
        X = np.array([np.mean(hat - (eta / p) * H, axis=0)] * M) if coin else hat
        H = H + (p / eta) * (X - hat)
    return X, H


def gradient_tracking(gradient, start, W, *, eta, rounds):
    """Nedic et al. 2017, DIGing: x+ = W x - eta y, y+ = W y + grad(x+) - grad(x)."""
    M = len(W)
    X = np.array([start.copy() for _ in range(M)])
    old = np.array([gradient(m, X[m]) for m in range(M)])
    Y = old.copy()
    for _ in range(rounds):
        X = W @ X - eta * Y
        new = np.array([gradient(m, X[m]) for m in range(M)])
        Y, old = W @ Y + new - old, new
    return X, Y


def accelerated_gradient(gradient, start, *, mu, L, steps):
    """Nesterov's constant-momentum form: x+ = y - grad(y)/L, y+ = x+ + beta (x+ - x)."""
    beta = (np.sqrt(L) - np.sqrt(mu)) / (np.sqrt(L) + np.sqrt(mu))
    x, y = start.copy(), start.copy()
    for _ in range(steps):
        new = y - gradient(y) / L
        x, y = new, new + beta * (new - x)
    return x
