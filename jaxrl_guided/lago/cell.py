"""One cell of the online grid: reads what earlier stages wrote, runs an arm, writes its result."""

import os
from typing import Any

from jaxrl_guided.lago.config import ARMS, OnlineConfig
from jaxrl_guided.lago.online import run_arm
from jaxrl_guided.lago.stages import load_data, load_trained
from jaxrl_guided.runtime import cells
from jaxrl_guided.runtime.checkpoint import file_hash
from jaxrl_guided.runtime.config import to_dict
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag

PathLike = str | os.PathLike[str]


def cell_identity(config: OnlineConfig, prior: PathLike | None) -> dict[str, Any]:
    """What decides a cell's result: its configuration and, for guided arms, the prior's content."""
    guided = ARMS[config.arm].guided and prior is not None
    return {"config": to_dict(config), "prior": file_hash(prior) if guided and prior else None}


def run_cell(
    config: OnlineConfig,
    run: RunDir,
    stop: StopFlag,
    prior: PathLike | None,
    data: PathLike | None,
    out: PathLike | None,
) -> dict[str, Any]:
    """Runs an arm with the prior and dataset at the given paths.

    Args:
      out: the result's JSON file, as `cells.write_result` writes it; None writes the summary only.
    """
    arm = ARMS[config.arm]
    trained = load_trained(prior) if arm.guided and prior is not None else None
    expert = load_data(data, config.env) if arm.from_bc and data is not None else None
    result = run_arm(config, run, stop, trained, expert)
    record = {"config": to_dict(config), **result}
    run.write_summary(record, _text(config, result))
    if out is not None:
        cells.write_result(out, cell_identity(config, prior), record)
    return result


def _text(config: OnlineConfig, result: dict[str, Any]) -> str:
    lines = [
        f"# {ARMS[config.arm].title} on {config.env}/{config.level}, reward {config.reward}",
        "",
    ]
    for level, numbers in result["final"].items():
        successes = ", ".join(f"{100 * x:.1f}" for x in numbers["success"])
        lines.append(f"- {level}: success {successes} % (seeds {config.seeds})")
    return "\n".join(lines) + "\n"
