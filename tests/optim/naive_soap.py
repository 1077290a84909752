"""SOAP for one parameter after the other, as simple as it can be written: the oracle of the tests.

The first moment is kept unrotated here and rotated in each step, which is the same in exact arithmetic.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


class NaiveSOAP:
    """SOAP with the gradients given to `step`."""

    def __init__(self, params, lr, betas, eps, weight_decay, max_side, refresh_interval):
        self.params = list(params)
        self.lr, (self.beta1, self.beta2), self.eps = lr, betas, eps
        self.weight_decay, self.max_side, self.refresh_interval = weight_decay, max_side, refresh_interval
        self.states = [None] * len(self.params)

    @torch.no_grad()
    def step(self, grads: list[Tensor | None]) -> None:
        for i, (param, grad) in enumerate(zip(self.params, grads, strict=True)):
            if grad is None:
                continue
            shape = (param.shape[0], math.prod(param.shape[1:])) if param.dim() > 1 else (param.numel(), 1)
            is_small = [param.dim() > 1 and 1 < n <= self.max_side for n in shape]
            G = grad.reshape(shape)
            if self.states[i] is None:
                self.states[i] = self.first_gradient(G, is_small)
            else:
                self.states[i]["t"] += 1
                update = self.update(G, self.states[i], self.states[i]["t"])
                param.mul_(1 - self.lr * self.weight_decay).sub_(self.lr * update.reshape(param.shape))

    def first_gradient(self, G, is_small):
        factors = [(1 - self.beta2) * G @ G.T, (1 - self.beta2) * G.T @ G]
        bases = [
            torch.linalg.eigh(A / A.trace())[1].flip(1) if small else torch.eye(len(A)).to(A)
            for A, small in zip(factors, is_small, strict=True)
        ]
        return {"t": 0, "M": G * 0, "V": G * 0, "factors": factors, "bases": bases, "is_small": is_small}

    def update(self, G, state, t):
        (left, right), (Q, P) = state["factors"], state["bases"]
        N = Q.T @ G @ P
        state["M"] = self.beta1 * state["M"] + (1 - self.beta1) * G
        state["V"] = self.beta2 * state["V"] + (1 - self.beta2) * N * N
        first = Q.T @ state["M"] @ P / (1 - self.beta1**t)
        root = (state["V"] / (1 - self.beta2**t)).sqrt()
        update = Q @ (first / (root + self.eps)) @ P.T
        state["factors"] = [
            self.beta2 * left + (1 - self.beta2) * G @ G.T,
            self.beta2 * right + (1 - self.beta2) * G.T @ G,
        ]
        if t % self.refresh_interval == 0:
            self.refresh(state)
        return update

    @staticmethod
    def refresh(state):
        for side in (0, 1):
            if state["is_small"][side]:
                A, Q = state["factors"][side], state["bases"][side]
                order = (Q.T @ A @ Q).diagonal().argsort(descending=True)
                state["V"] = state["V"].index_select(side, order)
                state["bases"][side] = torch.linalg.qr(A @ Q[:, order] / A.trace())[0]
