"""One step of torch's optimisers from a given state; LAMB and the variants that torch lacks are written out."""

from __future__ import annotations

import torch

from abele.ops.optim.op import HYPER


def one_step(make, param, grad, state):
    """The parameter and the state after a step of an optimiser of ``torch.optim``."""
    p = param.clone().requires_grad_()
    p.grad = grad.clone()
    optimiser = make([p])
    optimiser.state[p] = {k: v.clone() for k, v in state.items()}
    optimiser.step()
    return p.detach(), optimiser.state[p]


def sgd(param, grad, velocity, lr, momentum, dampening, weight_decay, *, nesterov, use_momentum):
    lr, momentum, dampening, decay = (float(h) for h in (lr, momentum, dampening, weight_decay))
    if nesterov:  # torch wants dampening 0 here; the formula does not
        g = grad + decay * param
        velocity = momentum * velocity + (1 - dampening) * g
        return param - lr * (g + momentum * velocity), velocity
    more = {"momentum": momentum, "dampening": dampening} if use_momentum else {}
    new, state = one_step(
        lambda p: torch.optim.SGD(p, lr, weight_decay=decay, **more), param, grad, {"momentum_buffer": velocity}
    )
    return new, state["momentum_buffer"]


def adam(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay, *, decoupled, bias_correction):
    lr, beta1, beta2, eps, decay = (float(h) for h in (lr, beta1, beta2, eps, weight_decay))
    if not bias_correction:
        g = grad if decoupled else grad + decay * param
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        new = param * (1 - lr * decay) if decoupled else param
        return new - lr * m / (v.sqrt() + eps), m, v
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    state = {"step": step - 1, "exp_avg": m, "exp_avg_sq": v}
    new, state = one_step(lambda p: kind(p, lr, (beta1, beta2), eps, decay), param, grad, state)
    return new, state["exp_avg"], state["exp_avg_sq"]


def rmsprop(
    param, grad, square, buffer, mean, lr, alpha, eps, momentum, weight_decay, *, centered, use_momentum, **how
):
    lr, alpha, eps, momentum, decay = (float(h) for h in (lr, alpha, eps, momentum, weight_decay))
    if how["tf_variant"]:
        g = grad + decay * param
        square = alpha * square + (1 - alpha) * g * g
        step = lr * g / (square + eps).sqrt()
        if use_momentum:
            step = buffer = momentum * buffer + step
        return param - step, square, buffer, mean
    momentum = momentum if use_momentum else 0.0
    state = {"step": torch.tensor(0.0), "square_avg": square, "momentum_buffer": buffer, "grad_avg": mean}
    make = torch.optim.RMSprop
    new, state = one_step(lambda p: make(p, lr, alpha, eps, decay, momentum, centered), param, grad, state)
    return new, state["square_avg"], state["momentum_buffer"], state["grad_avg"]


def lamb(param, grad, m, v, step, lr, beta1, beta2, eps, weight_decay, max_weight_norm, *, bias_correction):
    m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad * grad
    first, second = (m / (1 - beta1**step), v / (1 - beta2**step)) if bias_correction else (m, v)
    move = first / (second.sqrt() + eps) + weight_decay * param
    norms = torch.minimum(param.norm(), max_weight_norm), move.norm()
    ratio = norms[0] / norms[1] if norms[0] > 0 and norms[1] > 0 else 1.0
    return param - lr * ratio * move, m, v


def lars(param, grad, velocity, lr, momentum, weight_decay, eta):
    if param.ndim < 2:
        velocity = momentum * velocity + lr * grad
        return param - velocity, velocity
    norms = param.norm(), grad.norm()
    scale = eta * norms[0] / (norms[1] + weight_decay * norms[0]) if norms[0] > 0 and norms[1] > 0 else 1.0
    velocity = momentum * velocity + lr * scale * (grad + weight_decay * param)
    return param - velocity, velocity


def zeroed(name, step):
    """The twin of an operation whose attribute ``zero`` names numbers that count as 0, whatever is given for them."""

    def twin(*operands, zero, **attributes):
        first = len(operands) - len(HYPER[name])
        given = list(operands)
        for label in zero:
            given[first + HYPER[name].index(label)] = torch.tensor(0.0, dtype=torch.float64)
        return step(*given, **attributes)

    return twin


TWINS = {
    name: zeroed(name, step)
    for name, step in (("sgd", sgd), ("adam", adam), ("rmsprop", rmsprop), ("lamb", lamb), ("lars", lars))
}
