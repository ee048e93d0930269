"""An update of SAC with real actions against torch's automatic derivatives and Adam."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.types import Box
from jaxrl_guided.learners.replay import Transitions
from jaxrl_guided.learners.sac import SACConfig
from jaxrl_guided.learners.sac.config import make_hyper
from jaxrl_guided.learners.sac.update import init_learned, make_update
from jaxrl_guided.networks.soft import (
    LOG_STD_HIGH,
    LOG_STD_LOW,
    SoftNetworkConfig,
    make_soft_network,
)

pytestmark = pytest.mark.parity
OBS, ACTIONS, BATCH = 3, 2, 32


def tensors(params):
    """Kernels and biases of an MLP in torch's float64, which learn."""
    import torch

    layers = params["layers"]
    return [
        torch.tensor(np.float64(layers[name][part]), requires_grad=True)
        for name in sorted(layers)
        for part in ("kernel", "bias")
    ]


def each(critics):
    """The two critics, whose parameters are stacked."""
    return [jax.tree.map(lambda x, i=i: x[i], critics) for i in (0, 1)]


def mlp(weights, x):
    import torch

    for i in range(0, len(weights), 2):
        x = x @ weights[i] + weights[i + 1]
        x = torch.relu(x) if i + 2 < len(weights) else x
    return x


def policy(weights, obs, noise):
    """A sample on the unit scale, and its log-density."""
    import torch

    mean, spread = mlp(weights, obs).chunk(2, dim=-1)
    middle, half = (LOG_STD_HIGH + LOG_STD_LOW) / 2, (LOG_STD_HIGH - LOG_STD_LOW) / 2
    log_std = middle + half * torch.tanh(spread + math.atanh(-middle / half))
    normal = torch.distributions.Normal(mean, log_std.exp())
    tanh = torch.distributions.TransformedDistribution(
        normal, torch.distributions.transforms.TanhTransform(cache_size=1)
    )
    action = torch.tanh(mean + log_std.exp() * noise)
    return action, tanh.log_prob(action).sum(-1)


def value(critics, obs, action):
    import torch

    x = torch.cat([obs, action], dim=-1)
    return torch.stack([mlp(weights, x)[:, 0] for weights in critics])


def adam(weights, rate):
    """One step, by torch."""
    import torch

    torch.optim.Adam(weights, lr=rate, eps=1e-8).step()


def test_one_update_equals_torchs():
    import torch

    config = dataclasses.replace(SACConfig(1000), initial_alpha=0.4, tau=0.1)
    net = make_soft_network(Box((OBS,)), Box((ACTIONS,), -2.0, 3.0), SoftNetworkConfig((16, 16)))
    learned = init_learned(net, config, jax.random.key(0))
    learned = dataclasses.replace(
        learned,
        actor=jax.tree.map(lambda x: 3 * x, learned.actor),
        slow_critics=jax.tree.map(lambda x: 1.2 * x, learned.critics),
    )
    rng = np.random.default_rng(0)
    batch = Transitions(
        obs=rng.normal(size=(BATCH, OBS)),
        action=rng.uniform(-1, 1, (BATCH, ACTIONS)),
        reward=rng.normal(size=BATCH),
        discount=0.9 * (rng.random(BATCH) < 0.8),
        next_obs=rng.normal(size=(BATCH, OBS)),
        targets=None,
    )
    batch = jax.tree.map(jnp.float32, batch)
    key = jax.random.key(1)
    after, metrics = jax.jit(make_update(net, config, None))(
        learned, make_hyper(config), batch, None, key
    )

    noise = torch.tensor(np.float64(jax.random.normal(key, (2, BATCH, ACTIONS))))
    given = {
        field.name: torch.tensor(np.float64(getattr(batch, field.name)))
        for field in dataclasses.fields(batch)
        if field.name != "targets"
    }
    actor = tensors(learned.actor)
    critics = [tensors(one) for one in each(learned.critics)]
    slow = [tensors(one) for one in each(learned.slow_critics)]
    log_alpha = torch.tensor(math.log(0.4), dtype=torch.float64, requires_grad=True)
    alpha = log_alpha.exp().detach()

    with torch.no_grad():
        action, density = policy(actor, given["next_obs"], noise[0])
        soft = value(slow, given["next_obs"], action).min(0).values - alpha * density
        target = given["reward"] + given["discount"] * soft
    old = [[weight.detach().clone() for weight in weights] for weights in critics]
    loss = sum(
        0.5 * ((q - target) ** 2).mean() for q in value(critics, given["obs"], given["action"])
    )
    loss.backward()
    assert float(metrics["value_loss"]) == pytest.approx(loss.item(), rel=1e-4)
    for weights in critics:
        adam(weights, config.critic_rate)

    action, density = policy(actor, given["obs"], noise[1])
    policy_loss = (alpha * density - value(old, given["obs"], action).min(0).values).mean()
    policy_loss.backward()
    assert float(metrics["policy_loss"]) == pytest.approx(policy_loss.item(), rel=1e-4)
    adam(actor, config.actor_rate)
    (log_alpha.exp() * (-density.detach() + ACTIONS).mean()).backward()
    adam([log_alpha], config.alpha_rate)

    def same(ours, theirs):
        for a, b in zip(tensors(ours), theirs, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=2e-6)

    same(after.actor, actor)
    fast, lagging = each(after.critics), each(after.slow_critics)
    for i in (0, 1):
        same(fast[i], critics[i])
        moved = [0.9 * s + 0.1 * c for s, c in zip(slow[i], critics[i], strict=True)]
        same(lagging[i], moved)
    assert float(after.log_alpha) == pytest.approx(log_alpha.item(), abs=1e-6)
