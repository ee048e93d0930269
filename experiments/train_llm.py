"""Trains a language model on a task in text: imitation, then GRPO on its own episodes.

    python -m experiments.train_llm --preset=nano --run_dir=runs/route
    python -m experiments.train_llm --preset=smollm2 --config.task=minihack/Room-Ultimate-5x5
    python -m experiments.train_llm --preset=nano --config.task=my_tasks:Corridor

`nano` is a decoder of random weights with a tokenizer of its own, on a task that needs memory;
`smollm2` trains adapters on SmolLM2-135M-Instruct, in MiniHack's rooms. `my_tasks:Corridor` is a
class of one's own in `my_tasks.py`, see `envs.text.task.TextTask`. The run directory gets
configuration, metrics, checkpoints, judged episodes, the final model (a Hugging Face directory, or
PEFT's files of the adapters), a curve and a summary. A run that was stopped goes on with the same
command and `--run_dir`. The grid `language` calls it with `--cell` and `--result`.
"""

import contextlib

from absl import flags

from jaxrl_guided.learners.language.presets import PRESETS
from jaxrl_guided.runtime import app, cell_flags, config

_FSDP = flags.DEFINE_integer(
    "fsdp", 1, "Devices among which weights, conversations and micro-batches are divided.", 1
)
_TENSOR = flags.DEFINE_integer(
    "tensor", 1, "Devices that share each matrix product, for each of --fsdp.", 1
)
_CONFIG = config.define(PRESETS)
flags.adopt_module_key_flags(cell_flags)


def run() -> None:
    """Trains, judges and prints the summary."""
    from jaxrl_guided.backbones.sharding import make_model_mesh
    from jaxrl_guided.learners.language.job import run_language, summary_text
    from jaxrl_guided.learners.language.preparation import prepare
    from jaxrl_guided.learners.language.run_config import LanguageRunConfig
    from jaxrl_guided.learners.language.table import run_cell
    from jaxrl_guided.learners.language.training import LanguageRun
    from jaxrl_guided.runtime import errors, rundir, signals

    if cell := cell_flags.read(LanguageRunConfig, _CONFIG):
        if (_FSDP.value, _TENSOR.value) != (1, 1):
            raise errors.UserError("a --cell runs on one device; leave out --fsdp and --tensor")
        settings, path = cell
        print(summary_text(settings, run_cell(settings, app.RUN_DIR.value, path)))
        return
    settings = _CONFIG.build()
    with errors.validation():
        mesh = make_model_mesh(_FSDP.value, _TENSOR.value)
    with signals.catch_signals() as stop:
        job = prepare(settings)
        with errors.validation():
            # One device has layouts of weights of its own, which are faster.
            work = LanguageRun(job, mesh if mesh.size > 1 else None)
        name = settings.task.replace("/", "-")
        with (
            contextlib.closing(work),
            rundir.open_run(app.RUN_DIR.value, name, settings) as run_dir,
        ):
            result = run_language(work, run_dir, stop)
    print(summary_text(settings, result))
    print(f"results in {run_dir.home}")


if __name__ == "__main__":
    app.main(run, uses_run_dir=True)
