"""SOAP: Adam in the eigenbasis of Shampoo's factors, as a plain torch optimizer.

Vyas, Morwani, Zhao, Kwun, Shapira, Brandfonbrener, Janson, Kakade: SOAP: Improving and Stabilizing Shampoo using Adam,
arXiv:2409.11321.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

# Parameters without factors share one flat buffer up to this many elements; above it copying costs more than a call.
_FLAT_ELEMENTS = 4096


class SOAP(Optimizer):
    r"""SOAP (arXiv:2409.11321): Adam in a slowly changing eigenbasis of the gradients' second moments.

    A parameter with two or more dimensions is the matrix :math:`(m, n)` = (first dimension, product of the others), so
    a convolution is (out, in * height * width). A side with 2 to ``max_side`` rows has a factor and a basis; any other
    side is left alone, its basis is the identity. A parameter without a factor (vectors, scalars, matrices with no
    small side) is stepped by Adam.

    One step, for one matrix :math:`W` with gradient :math:`G`, in the order of the operations. :math:`\beta_1, \beta_2`
    are ``betas``, :math:`\epsilon` is ``eps``, :math:`\lambda` is ``weight_decay``, :math:`\eta` is ``lr``::

        first gradient of this parameter:                       no step is taken on it
            t = 0, M = 0, V = 0
            L = (1 - beta2) G G',  R = (1 - beta2) G' G
            Q_L = mask(eigenvectors of L / trace(L)), Q_R likewise, largest eigenvalue first
        every later gradient:
            t = t + 1
            N = Q_L' G Q_R                                      rotate
            M = beta1 M + (1 - beta1) N                         first moment, in the rotated basis
            V = beta2 V + (1 - beta2) N * N                     second moment, in the rotated basis
            D = M / (sqrt(V) + eps sqrt(1 - beta2^t))
            W = (1 - lr weight_decay) W
            W = W - lr sqrt(1 - beta2^t) / (1 - beta1^t) Q_L D Q_R'
            L = beta2 L + (1 - beta2) G G'
            R = beta2 R + (1 - beta2) G' G
            if t is a multiple of refresh_interval:
                M = Q_L M Q_R'
                for each side, with its factor A and basis Q:
                    S = (A / trace(A)) Q
                    order = columns of S by (Q * S).sum(rows), largest first
                    V = V with the rows (left) or columns (right) in this order
                    Q = mask(the Q factor of the QR decomposition of S[:, order])
                M = Q_L' M Q_R

        mask(Q): row i of Q becomes zero where A[i, i] = 0 in its factor A; not if all of them are 0

    The mask keeps dead inputs and unseen rows of an embedding where they are, as Adam does: without it rounding, and
    eigenvectors of the eigenvalue zero, would move them by full steps. Adam's step is the same as above with
    :math:`Q_L = Q_R = I` and no factors; it skips the first gradient, too. The signs of the columns of a basis don't
    matter: they cancel.

    State of a parameter, for ``state_dict`` and for other engines. All tensors are contiguous, change in place and are
    float32 for half precision parameters, else of the parameter's own dtype:

    =================  ==========  =====================================================================================
    name               shape       content
    =================  ==========  =====================================================================================
    ``step``           int         t, the number of steps taken
    ``exp_avg``        as W        M; a matrix (m, n) in row-major order, whatever W's memory format is
    ``exp_avg_sq``     as W        V, likewise
    ``left``           (m, m)      L; only if side m has a factor
    ``left_basis``     (m, m)      Q_L, eigenvectors in columns; only with ``left``
    ``right``          (n, n)      R; only if side n has a factor
    ``right_basis``    (n, n)      Q_R; only with ``right``
    =================  ==========  =====================================================================================

    The state of equal shapes lies in one stack, so that one batched product or QR decomposition serves them all; the
    tensors in ``state`` are views of it. ``step`` never waits for the device, except once per parameter for the first
    eigenvectors.

    Gradients that are not finite make weights and moments non-finite, as with Adam, but raise nothing: a basis that
    would not be finite becomes the identity.

    DDP needs nothing special. Under FSDP2 and for any other DTensor, matrices with factors are gathered: each rank gets
    the whole gradient, computes the whole step and keeps its shard of the result, so the result does not depend on the
    sharding, and the state of these matrices is replicated. Adam's parameters and their state stay sharded.

    Args:
        params: Parameters, named parameters or parameter groups.
        lr: Learning rate, a float or a tensor with one element.
        betas: Decay of the first moment, and of the second moments (V, L and R).
        eps: Added to the root of the second moment.
        weight_decay: Decoupled weight decay, as in AdamW.
        max_side: Longest side of a matrix that has a factor. Read when a parameter gets its first gradient.
        refresh_interval: Steps between two refreshes of the bases.

    Raises:
        ValueError: For an invalid option or a complex parameter.

    Example:
        >>> import torch
        >>> from cmalight import SOAP
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = SOAP(model.parameters(), lr=1e-2)
        >>> for _ in range(3):
        ...     optimizer.zero_grad()
        ...     model(torch.ones(8, 4)).square().mean().backward()
        ...     optimizer.step()
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]],
        lr: float | Tensor = 1e-2,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-15,
        weight_decay: float = 0.0,
        *,
        max_side: int = 256,
        refresh_interval: int = 10,
    ) -> None:
        self._homes: dict[Tensor, tuple[_Bucket, int]] = {}
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "max_side": max_side,
            "refresh_interval": refresh_interval,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group, between any two steps.

        Args:
            param_group: The parameters under ``"params"``, and options that differ from the defaults.

        Raises:
            ValueError: For an invalid option or a complex parameter.
        """
        super().add_param_group(param_group)
        try:
            _check(self.param_groups[-1])
        except ValueError:
            self.param_groups.pop()
            raise

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state, bit for bit.

        Args:
            state_dict: What ``state_dict()`` returned.
        """
        super().load_state_dict(state_dict)
        # torch casts the state to the parameters' dtype, which would round the float32 state of half precision ones.
        saved_ids = (i for group in state_dict["param_groups"] for i in group["params"])
        params = (p for group in self.param_groups for p in group["params"])
        for saved_id, param in zip(saved_ids, params, strict=True):
            if _state_dtype(param) == param.dtype:
                continue
            for name, value in state_dict["state"].get(saved_id, {}).items():
                if isinstance(value, Tensor):
                    self.state[param][name] = value.to(device=param.device, dtype=_state_dtype(param))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._homes = {}

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step.

        Args:
            closure: Evaluates the model again and returns the loss.

        Returns:
            The closure's loss, or None without a closure.

        Raises:
            RuntimeError: For a sparse gradient.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for run in self._runs(group):
                _advance(run, group)
                for state in run.states:
                    state["step"] = run.step
        return loss

    def _runs(self, group: dict[str, Any]) -> Iterator[_Run]:
        """Split the parameters that have gradients into runs: neighbours in a bucket with the same step count."""
        homeless: dict[object, list[Tensor]] = {}
        present: dict[_Bucket, list[int]] = {}
        for param in group["params"]:
            if param.grad is None:
                continue
            if param.grad.layout is not torch.strided:
                raise RuntimeError("SOAP got a sparse gradient; expected a dense one, as of nn.Embedding(sparse=False)")
            bucket, index = self._homes.get(param, (None, 0))
            if bucket is not None and bucket.holds(index, self.state[param]):
                present.setdefault(bucket, []).append(index)
            else:
                key = _bucket_key(param, self.state[param], group["max_side"])
                homeless.setdefault(key, []).append(param)
        for params in homeless.values():
            bucket = _Bucket(params, [self.state[param] for param in params], group["max_side"])
            self._homes.update({param: (bucket, index) for index, param in enumerate(params)})
            present[bucket] = list(range(len(params)))
        for bucket, indices in present.items():
            yield from bucket.runs(indices)


class _Side(NamedTuple):
    """One side of the matrices in a stack: dimension 1 (left) or 2 (right)."""

    dimension: int
    factor: Tensor
    basis: Tensor
    basis_transposed: Tensor  # a view


class _Run(NamedTuple):
    """Neighbours in a bucket that take the same step, with their part of each stack."""

    params: list[Tensor]
    states: list[dict[str, Any]]
    step: int
    is_matrix: bool
    row_shape: tuple[int, ...]
    first: Tensor
    second: Tensor
    sides: list[_Side]

    def gradients(self) -> Tensor:
        """Stack the gradients in the dtype of the state. A single one is not copied, so don't write to it."""
        rows = [_gradient(param, whole=self.is_matrix).reshape(self.row_shape) for param in self.params]
        stack = rows[0] if len(rows) == 1 else torch.cat(rows)
        return stack.to(self.first.dtype)

    def apply(self, direction: Tensor, step_size: float | Tensor, decay: float | Tensor | None) -> None:
        """Decay the parameters and subtract the direction times the step size."""
        params = [_local(param) for param in self.params]
        if decay is not None:
            torch._foreach_mul_(params, decay)
        if isinstance(step_size, Tensor):
            direction, step_size = direction.mul_(step_size), 1.0
        if self.is_matrix:
            updates = [_shard(update, param) for update, param in zip(direction.unbind(), self.params, strict=True)]
        else:
            parts = torch.split(direction, [param.numel() for param in params])
            updates = [part.view(param.shape) for part, param in zip(parts, params, strict=True)]
        torch._foreach_add_(params, updates, alpha=-step_size)


class _Bucket:
    """Parameters whose states lie in one stack: matrices of one shape, or small parameters for Adam end to end."""

    def __init__(self, params: list[Tensor], states: list[dict[str, Any]], max_side: int) -> None:
        shapes = _state_shapes(params[0], states[0], max_side)
        self.params = params
        self.states = states
        self.is_matrix = len(shapes) > 2
        self.row_shape = (1, *_matrix_shape(params[0])) if self.is_matrix else (-1,)
        sizes = [1 if self.is_matrix else _local(param).numel() for param in params]
        self.offsets = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
        self.views: list[dict[str, Tensor]] = [{} for _ in params]
        self.stacks: dict[str, Tensor] = {}
        for name, shape in shapes.items():
            stack = torch.zeros((self.offsets[-1], *shape), dtype=_state_dtype(params[0]), device=params[0].device)
            self.stacks[name] = stack
            for param, state, views, rows in zip(params, states, self.views, torch.split(stack, sizes), strict=True):
                views[name] = _like(rows, param, self.is_matrix) if name.startswith("exp_avg") else rows[0]
                if name in state:
                    views[name].copy_(state[name])
        for state, views in zip(states, self.views, strict=True):
            state.setdefault("step", -1)
            state.update(views)
        self.whole = self._part(0, len(params))

    def holds(self, index: int, state: dict[str, Any]) -> bool:
        """Whether the state of a member is still what lies in the stacks. Runs for each parameter in each step."""
        if state is not self.states[index]:
            return False
        for name, view in self.views[index].items():  # noqa: SIM110
            if state.get(name) is not view:
                return False
        return True

    def runs(self, indices: list[int]) -> Iterator[_Run]:
        """Split these members into runs."""
        steps = [self.states[index]["step"] + 1 for index in indices]
        begin = 0
        for end in range(1, len(indices) + 1):
            if end < len(indices) and indices[end] == indices[end - 1] + 1 and steps[end] == steps[end - 1]:
                continue
            part = self.whole if end - begin == len(self.params) else self._part(indices[begin], indices[end - 1] + 1)
            yield part._replace(step=steps[begin])
            begin = end

    def _part(self, begin: int, end: int) -> _Run:
        rows = slice(self.offsets[begin], self.offsets[end])
        stacks = {name: stack[rows] for name, stack in self.stacks.items()}
        sides = [
            _Side(dimension, stacks[name], stacks[f"{name}_basis"], stacks[f"{name}_basis"].mT)
            for dimension, name in ((1, "left"), (2, "right"))
            if name in stacks
        ]
        return _Run(
            self.params[begin:end], self.states[begin:end], -1, self.is_matrix, self.row_shape,
            stacks["exp_avg"], stacks["exp_avg_sq"], sides,
        )  # fmt: skip


def _advance(run: _Run, group: dict[str, Any]) -> None:
    """The algorithm in SOAP's docstring, for a stack of parameters."""
    beta1, beta2 = group["betas"]
    grad = run.gradients()
    if run.step == 0:
        _update_factors(run.sides, grad, beta2)
        for side in run.sides:
            _set_basis(side, torch.linalg.eigh(_normalized(side.factor))[1].flip(2))
        return
    rotated = _rotate(run.sides, grad)
    run.first.lerp_(rotated, 1 - beta1)
    run.second.mul_(beta2).addcmul_(rotated, rotated, value=1 - beta2)
    correction = math.sqrt(1 - beta2**run.step)
    direction = run.second.sqrt().add_(group["eps"] * correction)
    torch.div(run.first, direction, out=direction)
    lr, weight_decay = group["lr"], group["weight_decay"]
    if isinstance(lr, Tensor):
        lr = lr.reshape(())  # one element, of any shape
    decay = 1 - lr * weight_decay if weight_decay else None
    run.apply(_rotate_back(run.sides, direction), lr * (correction / (1 - beta1**run.step)), decay)
    _update_factors(run.sides, grad, beta2)
    if run.sides and run.step % group["refresh_interval"] == 0:
        _refresh_bases(run)


def _rotate(sides: list[_Side], matrix: Tensor) -> Tensor:
    """Q_L' X Q_R."""
    for side in sides:
        matrix = torch.bmm(side.basis_transposed, matrix) if side.dimension == 1 else torch.bmm(matrix, side.basis)
    return matrix


def _rotate_back(sides: list[_Side], matrix: Tensor) -> Tensor:
    """Q_L X Q_R'."""
    for side in sides:
        matrix = torch.bmm(side.basis, matrix) if side.dimension == 1 else torch.bmm(matrix, side.basis_transposed)
    return matrix


def _update_factors(sides: list[_Side], grad: Tensor, beta2: float) -> None:
    """Move the factors towards G G' (left) and G' G (right)."""
    for side in sides:
        pair = (grad, grad.mT) if side.dimension == 1 else (grad.mT, grad)
        side.factor.baddbmm_(*pair, beta=beta2, alpha=1 - beta2)


def _refresh_bases(run: _Run) -> None:
    """One step of orthogonal iteration on each basis; the moments follow."""
    unrotated = _rotate_back(run.sides, run.first)
    for side in run.sides:
        product = torch.bmm(_normalized(side.factor), side.basis)
        order = (side.basis * product).sum(1).argsort(1, descending=True)
        for_second = order.unsqueeze(3 - side.dimension).expand_as(run.second)
        run.second.copy_(run.second.gather(side.dimension, for_second))
        sorted_product = product.gather(2, order.unsqueeze(1).expand_as(product))
        _set_basis(side, torch.linalg.qr(sorted_product)[0])
    run.first.copy_(_rotate(run.sides, unrotated))


def _set_basis(side: _Side, basis: Tensor) -> None:
    """Replace a basis. Rows of the matrix that never had a gradient get none of the others' steps."""
    seen = side.factor.diagonal(dim1=1, dim2=2) != 0
    unseen = ~seen & seen.any(1, keepdim=True)
    side.basis.copy_(basis).masked_fill_(unseen.unsqueeze(2), 0.0)


def _normalized(factor: Tensor) -> Tensor:
    """The factors over their traces: tiny gradients must not underflow. What is not finite becomes zero."""
    trace = factor.diagonal(dim1=1, dim2=2).sum(1)
    scaled = factor / trace.clamp_min(torch.finfo(factor.dtype).tiny)[:, None, None]
    return scaled.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


def _check(group: dict[str, Any]) -> None:
    beta1, beta2 = group["betas"]
    if isinstance(group["lr"], Tensor) and group["lr"].numel() != 1:
        raise ValueError(f"Invalid lr: a tensor of {group['lr'].numel()} elements, expected one")
    if not isinstance(group["lr"], Tensor) and not 0.0 <= group["lr"]:
        raise ValueError(f"Invalid lr: {group['lr']}, expected 0 or more")
    if not (0.0 <= beta1 < 1.0 and 0.0 <= beta2 < 1.0):
        raise ValueError(f"Invalid betas: {group['betas']}, expected two numbers of at least 0 and below 1")
    for name in ("eps", "weight_decay"):
        if not 0.0 <= group[name]:
            raise ValueError(f"Invalid {name}: {group[name]}, expected 0 or more")
    for name, least in (("max_side", 0), ("refresh_interval", 1)):
        if not (isinstance(group[name], int) and group[name] >= least):
            raise ValueError(f"Invalid {name}: {group[name]}, expected an integer of at least {least}")
    if any(param.is_complex() for param in group["params"]):
        raise ValueError("SOAP got a complex parameter; expected real ones (torch.view_as_real gives one)")


def _bucket_key(param: Tensor, state: dict[str, Any], max_side: int) -> object:
    """What the parameters in one bucket share."""
    shapes = _state_shapes(param, state, max_side)
    common = (param.dtype, param.device, _is_sharded(param), state.get("step"))
    if len(shapes) > 2:
        return (*common, _matrix_shape(param), *shapes)
    return common if param.numel() <= _FLAT_ELEMENTS else id(param)


def _state_shapes(param: Tensor, state: dict[str, Any], max_side: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the state in a stack, without the first dimension; a state that is there decides."""
    if param.dim() > 1:
        sides = dict(zip(("left", "right"), _matrix_shape(param), strict=True))
        factors = {s: n for s, n in sides.items() if (s in state if "exp_avg" in state else 1 < n <= max_side)}
        if factors:
            shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("exp_avg", "exp_avg_sq"), _matrix_shape(param))
            return shapes | {name: (n, n) for s, n in factors.items() for name in (s, f"{s}_basis")}
    return {"exp_avg": (), "exp_avg_sq": ()}


def _matrix_shape(param: Tensor) -> tuple[int, int]:
    return param.shape[0], math.prod(param.shape[1:])


def _state_dtype(param: Tensor) -> torch.dtype:
    return torch.float32 if param.dtype in (torch.float16, torch.bfloat16) else param.dtype


def _is_sharded(param: Tensor) -> bool:
    """Whether it is a DTensor; asked in a way that does not import torch.distributed."""
    return hasattr(param, "device_mesh")


def _local(param: Any) -> Tensor:
    return param.to_local() if _is_sharded(param) else param  # type: ignore[no-any-return]


def _gradient(param: Any, *, whole: bool) -> Tensor:
    """The gradient of the parameter, or of its local shard."""
    if not _is_sharded(param):
        return param.grad  # type: ignore[no-any-return]
    if whole:
        return param.grad.full_tensor()  # type: ignore[no-any-return]
    return param.grad.redistribute(placements=param.placements).to_local()  # type: ignore[no-any-return]


def _shard(update: Tensor, param: Any) -> Tensor:
    """The part of a whole update that belongs to this rank."""
    update = update.view(param.shape)
    if not _is_sharded(param):
        return update
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(update, param.device_mesh, param.placements, src_data_rank=None).to_local()


def _like(row: Tensor, param: Any, whole: bool) -> Tensor:
    """A row of a stack in the shape of the parameter; sharded as the parameter is, unless it holds the whole."""
    if whole or not _is_sharded(param):
        return row.view(param.shape)
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        row.view(param.to_local().shape), param.device_mesh, param.placements, shape=param.shape, stride=param.stride()
    )
