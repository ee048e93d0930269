"""Two small random models in the dual loop: nothing useful is said, and everything goes on."""

import jax
import numpy as np

from jaxrl_guided.backbones.chat import NANO_TEMPLATE, Chat
from jaxrl_guided.backbones.config import BackboneConfig
from jaxrl_guided.backbones.embedders import HashedEmbedder
from jaxrl_guided.backbones.params import init_params
from jaxrl_guided.backbones.sampler import Sampler
from jaxrl_guided.backbones.tokenizer import nano_tokenizer
from jaxrl_guided.backbones.turns import Rules
from jaxrl_guided.complementary.actor import ActorConfig, Guide
from jaxrl_guided.complementary.advised import Advised
from jaxrl_guided.complementary.bank import Bank, Draft, Write
from jaxrl_guided.complementary.consolidation import MergeConfig
from jaxrl_guided.complementary.credit import GUIDED, CreditBuffer, CreditConfig
from jaxrl_guided.complementary.dual import Background, DualLoop, LanguageModel, LoopConfig
from jaxrl_guided.complementary.extractor import Extractor, ExtractorConfig
from jaxrl_guided.complementary.requests import Requests
from jaxrl_guided.complementary.retrieval import RetrievalConfig, Retriever
from jaxrl_guided.envs.text.route import Route
from jaxrl_guided.learners.language.hand_over import HandOver
from jaxrl_guided.learners.language.learner import (
    LanguageLearner,
    LanguageLearnerConfig,
    init_language,
)
from jaxrl_guided.learners.language.objectives import CISPOConfig, GRPOConfig
from jaxrl_guided.learners.language.rollouts import Rollouts
from jaxrl_guided.learners.language.run_config import ImproveConfig
from jaxrl_guided.learners.language.seeds import Seeds

EMBED = HashedEmbedder(32)
TOKENIZER = nano_tokenizer()
CHAT = Chat(TOKENIZER, NANO_TEMPLATE)
BACKBONE = BackboneConfig(TOKENIZER.vocab_size, 16, 24, 1, 2, 1, 8, tie_embeddings=True)
SIZE = 512


def model_of(seed, objective, aggregation):
    config = LanguageLearnerConfig(
        BACKBONE,
        objective,
        aggregation=aggregation,
        learning_rate=1e-3,
        micro_batch=4,
        lengths=(SIZE,),
    )
    state = init_language(config, init_params(BACKBONE, seed, std=0.2), jax.random.key(seed))
    return LanguageModel(LanguageLearner(config), HandOver(config, None), state)


def slots_of(rows, make_task, begin=None):
    rules = Rules(BACKBONE, size=SIZE, max_tokens=6, stop_ids=CHAT.stop_ids)
    return Rollouts(Sampler(rules, rows), CHAT, TOKENIZER, make_task, begin)


def test_a_loop_of_real_models_goes_on(tmp_path):
    acting = ActorConfig(instances=1, rollouts=4, guided=2, warm_up=1, questions=0)
    with Bank(tmp_path / "bank", EMBED.dim, durability="normal") as bank:
        notes = [
            Draft(f"note {i}", "go east " * 5, EMBED([str(i)])[0], generation=i) for i in (0, 1)
        ]
        bank.write(Write(tuple(notes)))
        retrieve = Retriever(RetrievalConfig(), EMBED, bank)
        buffer = CreditBuffer(CreditConfig(batch=2))
        requests = Requests()
        extractor = Extractor(
            ExtractorConfig(compact=True, merge=MergeConfig(every=1)),
            slots_of(2, requests.make_task),
            2,
            requests,
            bank,
            EMBED,
            retrieve,
            buffer,
        )
        scribe = model_of(1, CISPOConfig(), "token_mean")
        guide = Guide(acting, retrieve)
        shown = []

        def begin(start, task):
            opening = guide.begin(start, task)
            shown.append((start.part, "Notes from earlier attempts" in opening.system))
            return opening

        actor = model_of(0, GRPOConfig(), "seq_mean_token_mean")
        loop = DualLoop(
            LoopConfig(chunk=8),
            acting,
            ImproveConfig(),
            0,
            Seeds(range(0), range(0), range(100)),
            slots_of(4, lambda: Advised(Route()), begin),
            guide,
            actor,
            Background(extractor, scribe, buffer, chunk=8),
        )
        for number in range(3):
            metrics = loop.step(number)
        background = loop._background
        background.drain()
        assert all(told == (part == GUIDED) for part, told in shown)
        assert sum(told for _, told in shown) == 4
        assert extractor.counts["distilled"] == 12
        rejected = sum(n for name, n in extractor.counts.items() if name.startswith("rejected"))
        assert rejected >= 12
        assert extractor.counts["merged"] > 0
        assert [entry.title for entry in bank.entries()] == ["note 0", "note 1"]
        # Its own generations 0 and 1 stand in the notes: guided episodes credit them.
        assert sum(bank.usage(entry.id).credits for entry in bank.entries()) == 4
        assert np.isfinite(metrics["loss"])
        assert not extractor.busy
