"""Plain data that was changed somewhere: what a file with an intact seal may hold."""

import copy
import math

import torch

JUNK = (
    None,
    True,
    -1,
    0,
    7,
    10**30,
    -(10**30),
    0.5,
    math.nan,
    math.inf,
    "",
    "x",
    "\x00\n" * 50,
    [],
    [[]],
    [None] * 3,
    {},
    {"a": 1},
    {1: 2},
    (),
    b"bytes",
    1j,
)


def junk(rng):
    """Anything; new each time, for lists and tensors can be changed."""
    choice = rng.randrange(len(JUNK) + 6)
    if choice < len(JUNK):
        return copy.deepcopy(JUNK[choice])
    nested = []
    for _ in range(40):
        nested = [nested, nested]
    return (
        torch.ones(3),
        torch.full((2, 2), math.nan),
        torch.tensor(5),
        torch.zeros(0),
        torch.ones(1).expand(10**6),
        nested,
    )[choice - len(JUNK)]


def changed(content, rng):
    """A copy with one to three values replaced, removed, doubled or added, and what was done, in words."""
    content = copy.deepcopy(content)
    done = [_change(content, rng) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    return content, "; ".join(done)


def _change(holder, rng):
    """At a place that is as likely near the top as far down, however much there is below."""
    path = []
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return f"nothing left at {path}"
        key = rng.choice(keys)
        path.append(key)
        if not isinstance(holder[key], dict | list) or not holder[key] or rng.random() < 0.2:
            break
        holder = holder[key]
    what = rng.choice(("replace", "replace", "tweak", "tweak", "remove", "add"))
    if what == "remove":
        del holder[key]
    elif what == "add" and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]) if rng.random() < 0.5 else junk(rng))
    elif what == "add":
        holder[rng.choice(("extra", "../x", "", 3, "0.weight", "new"))] = junk(rng)
    elif what == "tweak":
        holder[key] = _tweaked(holder[key], rng)
    else:
        holder[key] = junk(rng)
    return f"{what} at {path}"


def _tweaked(value, rng):
    """Nearly what it was."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return rng.choice((value + 1, -value, value * 2.5, value * 1e300, float(value), str(value)))
    if isinstance(value, str):
        return rng.choice((value + "x", value[:-1], value.upper()))
    if isinstance(value, torch.Tensor):
        ways = (
            lambda: value[..., :-1].clone() if value.dim() else value.reshape(1, 1),
            lambda: value.float() if value.dtype == torch.float64 else value.double(),
            lambda: torch.full_like(value, math.nan) if value.is_floating_point() else value + 1,
            lambda: value.unsqueeze(0),
            lambda: value.to(torch.int64),
            lambda: value.flatten(),
        )
        return rng.choice(ways)()
    if isinstance(value, list | tuple):
        return rng.choice((value[:-1], value + value[:1], tuple(value), list(value), value[::-1]))
    return junk(rng)
