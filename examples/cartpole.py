"""Learn to balance a pole on a cart, by policy gradients.

    python examples/cartpole.py

The cart, its pole and their physics are NumPy below (Barto, Sutton & Anderson, 1983); many carts
run side by side.  The policy is trained by proximal policy optimisation (Schulman et al., 2017):
the loss is a pure function of the policy and of what was recorded, so several gradient steps over
one record need nothing special.  ``return`` is how many steps the pole stayed up, 500 at most.
"""

import argparse
import math
from typing import Any

import numpy as np
from recording import command_line, record, run_command

import fdbr
from fdbr import nn, ops, random, train
from fdbr.distributions import Categorical

LONGEST = 500  # steps of an episode


def physics(state: Any, action: Any) -> Any:
    """The state of carts 0.02 s later: place, speed, angle and its speed, shape ``(carts, 4)``."""
    speed, angle, turning = state.T[1:]
    force = np.where(action == 1, 10.0, -10.0)
    cosine, sine = np.cos(angle), np.sin(angle)
    push = (force + 0.05 * turning**2 * sine) / 1.1
    swing = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    acceleration = push - 0.05 * swing * cosine / 1.1
    slopes = np.stack([speed, acceleration, turning, swing], axis=1)
    return state + 0.02 * slopes


def fallen(state: Any) -> Any:
    """Whether a cart is too far out, or its pole too low."""
    return (abs(state[:, 0]) > 2.4) | (abs(state[:, 2]) > math.radians(12))


@fdbr.frozen
class ActorCritic(nn.Layer):
    """What to do in a state, and how many more steps to expect."""

    actor: nn.Sequential
    critic: nn.Sequential

    @classmethod
    def init(cls, key: Any, units: int = 64) -> "ActorCritic":
        """A policy with fresh parameters."""
        keys = random.split(key, 4)
        return cls(
            nn.Sequential(
                nn.Linear.init(keys[0], 4, units), ops.tanh, nn.Linear.init(keys[1], units, 2)
            ),
            nn.Sequential(
                nn.Linear.init(keys[2], 4, units), ops.tanh, nn.Linear.init(keys[3], units, 1)
            ),
        )

    def __call__(self, states: Any) -> tuple[Any, Any]:
        """The distribution of actions, and the value of states."""
        return Categorical(logits=self.actor(states)), self.critic(states)[..., 0]


def rollout(policy: Any, state: Any, ages: Any, key: Any, steps: int) -> tuple[Any, ...]:
    """What happens in some steps of all carts, and the lengths of the episodes that ended."""
    keys = random.split(key, steps + 1)
    starts = random.uniform(keys[steps], (steps, *state.shape), "float64", -0.05, 0.05)
    recorded: dict[str, list[Any]] = {n: [] for n in ("state", "action", "log", "value", "end")}
    lengths: list[int] = []
    for i in range(steps):
        seen = state.astype(np.float32)
        actions, value = policy(seen)
        action = actions.sample(keys[i])
        log = actions.log_prob(action)
        state, ages = physics(state, action), ages + 1
        end = fallen(state) | (ages >= LONGEST)
        for name, part in zip(recorded, (seen, action, log, value, end), strict=True):
            recorded[name].append(part)
        lengths += ages[end].tolist()
        state, ages = np.where(end[:, None], starts[i], state), np.where(end, 0, ages)
    _, last = policy(state.astype(np.float32))
    return {name: np.stack(parts) for name, parts in recorded.items()}, last, state, ages, lengths


def advantages(recorded: dict[str, Any], last: Any, discount: float, mix: float) -> Any:
    """How much better each action was than expected (Schulman et al., ICLR 2016)."""
    found, ahead, following = [], np.zeros_like(last), last
    for value, end in zip(recorded["value"][::-1], recorded["end"][::-1], strict=True):
        going = 1.0 - end
        ahead = 1.0 + discount * going * following - value + discount * mix * going * ahead
        found.append(ahead)
        following = value
    return np.stack(found[::-1]).astype(np.float32)


def loss(policy: ActorCritic, batch: dict[str, Any]) -> Any:
    """The clipped objective, the error of the critic, and a reward for surprise."""
    actions, value = policy(batch["state"])
    ratio = ops.exp(actions.log_prob(batch["action"]) - batch["log"])
    better = batch["advantage"]
    better = (better - better.mean()) / (better.std() + 1e-6)
    gain = ops.minimum(ratio * better, ops.clip(ratio, 0.8, 1.2) * better)
    error = (value - batch["advantage"] - batch["value"]) ** 2
    return ops.mean(0.5 * error / LONGEST - gain - 0.01 * actions.entropy())


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line(__doc__ or "", epochs=30, size=256, rate=3e-3)
    made.add_argument("--carts", type=int, default=16)
    made.add_argument("--steps", type=int, default=128, help="of each cart in an epoch")
    return made


def run(options: argparse.Namespace) -> float:
    """Train as the command line says; return the mean length of the last episodes."""
    keys = random.split(random.key(options.seed), 3)
    policy = ActorCritic.init(keys[0])
    optimizer = train.optim.adam(options.learning_rate)

    @fdbr.jit
    def improve(policy: Any, opt: Any, batch: Any) -> Any:
        value, grads = fdbr.value_and_grad(loss)(policy, batch)
        updates, opt = optimizer.update(grads, opt, policy)
        return train.optim.apply_updates(policy, updates), opt, value

    def step(state: Any, _: Any) -> Any:
        policy, opt, key, carts, ages, length = state
        key, own, order = random.split(key, 3)
        recorded, last, carts, ages, lengths = rollout(policy, carts, ages, own, options.steps)
        recorded["advantage"] = advantages(recorded, last, 0.99, 0.95)
        flat = {n: x.reshape(-1, *x.shape[2:]) for n, x in recorded.items() if n != "end"}
        batches = train.Batches(flat, options.batch_size, key=order, drop_last=True)
        for _ in range(4):
            for batch in batches:
                policy, opt, value = improve(policy, opt, batch)
        length = float(np.mean(lengths)) if lengths else length
        return (policy, opt, key, carts, ages, length), {"loss": value, "return": length}

    carts = random.uniform(keys[2], (options.carts, 4), "float64", -0.05, 0.05)
    ages = np.zeros(options.carts, int)
    state = (policy, optimizer.init(policy), keys[1], carts, ages, 0.0)
    one = train.Batches(np.zeros(1), 1)  # an epoch is one step, which makes its own data
    return float(record(options.out, step, state, one, options.epochs)[-1])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print how long the pole stays up."""
    run_command(parser(), run, "mean return {:.0f}", arguments)


if __name__ == "__main__":
    main()
