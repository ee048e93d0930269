"""transformers (and peft) as a contender of `benchmarks.sampler` and `benchmarks.llm_train`.

A task has `config` (a Hugging Face configuration), `work` (`sample` or `train`) and its sizes.
Weights are random: their values cost no time.
"""

import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.peers import protocol


def make_model(task: dict[str, Any]) -> Any:
    """A causal language model of the task's shape."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**task["config"])
    return transformers.LlamaForCausalLM(config)


class Generate(protocol.Contender):
    """Answers turn by turn with `generate`; each turn reads the whole conversation."""

    def prepare(self) -> float | None:
        self.model = make_model(self.task).eval()
        return None

    def run(self, seed: int) -> tuple[int, float]:
        task = self.task
        rows, vocabulary = task["rows"], task["config"]["vocab_size"]
        random = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        drawn = task["answer_tokens"]
        start, said = time.perf_counter(), torch.zeros((rows, 0), dtype=torch.long)
        for _ in range(task["turns"]):
            shape = (rows, task["new_tokens"])
            told = torch.randint(3, vocabulary, shape, generator=random)
            read = torch.cat([said, told], dim=1)
            with torch.inference_mode():
                said = self.model.generate(
                    read,
                    attention_mask=torch.ones_like(read),
                    max_new_tokens=drawn,
                    min_new_tokens=drawn,
                    do_sample=True,
                    temperature=1.0,
                    top_k=0,
                    top_p=1.0,
                    eos_token_id=None,
                    pad_token_id=0,
                )
        return rows * task["turns"] * drawn, time.perf_counter() - start

    def note(self) -> str:
        return protocol.versions("transformers", "torch")


class Train(protocol.Contender):
    """One GRPO step on adapters: loss of all spoken tokens, backward pass, AdamW."""

    def prepare(self) -> float | None:
        import peft

        task = self.task
        options = peft.LoraConfig(
            r=task["rank"],
            lora_alpha=2 * task["rank"],
            lora_dropout=0.0,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        )
        self.model = peft.get_peft_model(make_model(task), options)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.trained = trained
        self.optimizer = torch.optim.AdamW(trained, lr=1e-5, weight_decay=0.0)
        return None

    def run(self, seed: int) -> tuple[int, float]:
        task = self.task
        random = torch.Generator().manual_seed(seed)
        shape = (task["rows"], task["length"])
        tokens = torch.randint(3, task["config"]["vocab_size"], shape, generator=random)
        behaviour = -torch.rand(shape, generator=random)[:, 1:]
        advantage = torch.randn((task["rows"], 1), generator=random)
        start = time.perf_counter()
        for _ in range(task["steps"]):
            logits = self.model(tokens).logits[:, :-1]
            chosen = torch.gather(torch.log_softmax(logits, -1), 2, tokens[:, 1:, None])[..., 0]
            old = chosen.detach()
            ratio = torch.exp(chosen - old)
            gain = torch.minimum(ratio * advantage, ratio.clip(0.8, 1.2) * advantage)
            loss = -(torch.exp(old - behaviour).clip(max=2.0) * gain).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return task["steps"] * tokens.numel(), time.perf_counter() - start

    def note(self) -> str:
        return protocol.versions("transformers", "torch", "peft")


if __name__ == "__main__":
    protocol.serve(lambda task: {"sample": Generate, "train": Train}[task["work"]](task))
