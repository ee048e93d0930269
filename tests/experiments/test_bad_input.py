"""Bad input of every kind: one line that names it, exit code 2, and nothing is written."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

from jaxrl_guided.backbones.hf import export_hf
from jaxrl_guided.backbones.load import NANO, load_backbone
from jaxrl_guided.backbones.tokenizer import nano_tokenizer
from jaxrl_guided.envs.clevr.env import ACTION_MAP
from jaxrl_guided.lago.cell import cell_identity
from jaxrl_guided.lago.presets import SMOKE
from jaxrl_guided.lago.sources import Sources
from jaxrl_guided.learners.presets import SMOKE as SMOKE_TRAINING
from jaxrl_guided.runtime import files
from jaxrl_guided.runtime.config import to_dict
from tests.backbones import gguf_files
from tests.experiments import scripts
from tests.lago.tiny import expert_episodes, write_prior


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Good and bad things to name on a command line."""
    root = tmp_path_factory.mktemp("place")
    expert_episodes(env="clevr/real").save(root / "data")
    expert_episodes(env="metaworld/real").save(root / "metaworld_data")
    expert_episodes(env="gym/CartPole-v1").save(root / "other_data")
    easy = expert_episodes(env="clevr/easy")
    easy = dataclasses.replace(easy, metadata=easy.metadata | {"level": "easy"})
    easy.save(root / "easy_data")
    random = expert_episodes(env="clevr/real")
    random.is_expert[:] = False
    random.save(root / "random_data")
    wide = expert_episodes(600, env="clevr/real")
    twice = {
        name: np.tile(getattr(wide, name), 2) for name in ("observations", "final_observations")
    }
    dataclasses.replace(wide, **twice).save(root / "wide_data")
    write_prior(root / "prior", horizon=20)
    write_prior(root / "short_prior")
    write_prior(root / "other_actions", action_map=ACTION_MAP | {"n": 4})
    (root / "empty").mkdir()

    export_hf(NANO, load_backbone("nano").params, root / "safetensors")
    nano_tokenizer().backend.save(str(root / "safetensors" / "tokenizer.json"))
    shutil.copytree(root / "safetensors", root / "silent")
    (root / "gguf").mkdir()
    arrays = gguf_files.tensors(np.random.default_rng(0))
    gguf_files.write(root / "gguf" / "tiny.gguf", arrays)
    for path in (root / "safetensors" / "model.safetensors", root / "gguf" / "tiny.gguf"):
        path.write_bytes(path.read_bytes()[:5000])
    for prior, backbone in (("homeless", "gone"), ("cut_backbone", "gguf/tiny.gguf")):
        card = files.read_json(write_prior(root / prior, horizon=20) / "prior.json")
        card["choice"]["name"] = backbone
        files.write_json(root / prior / "prior.json", card)

    (root / "foreign").mkdir()
    (root / "foreign" / "thesis.tex").write_text("important")
    (root / "file").write_text("important")
    (root / "list.json").write_text("[1, 2]")
    (root / "unknown.json").write_text(json.dumps({"arm": "ppo", "speed": 3}))
    (root / "trained").mkdir()
    files.write_json(root / "trained" / "config.json", to_dict(SMOKE_TRAINING))
    (root / "other_run").mkdir()
    settings = dataclasses.replace(SMOKE.online, arm="ppo", horizon=19)
    files.write_json(root / "other_run" / "config.json", cell_identity(settings, Sources()))
    (root / "other_prior_run").mkdir()
    files.write_json(root / "other_prior_run" / "config.json", to_dict(SMOKE.prior))
    (root / "damaged_run").mkdir()
    (root / "damaged_run" / "config.json").write_text('{"config": ')
    return root


def contents(folder):
    """Everything below, with bytes and times."""
    return {
        path.relative_to(folder): (path.stat().st_mtime_ns, path.is_file() and path.read_bytes())
        for path in folder.rglob("*")
    }


COLLECT = ["collect", "--preset=smoke", "--out=new"]
PRIOR = ["train_prior", "--preset=smoke", "--out=new", "--data=data"]
ONLINE = ["train_online", "--preset=smoke"]
PPO = [*ONLINE, "--config.arm=ppo", "--run_dir=new"]
LAGO = ["lago", "--preset=smoke", "--run_dir=new"]
TRAIN = ["train", "--preset=smoke", "--run_dir=new"]
TALK = ["train_llm", "--preset=smoke", "--run_dir=new"]
BOTH = ["complementary", "--preset=smoke", "--run_dir=new"]
NOT_REAL = r"easy_data is of level 'easy', but priors and cloned policies learn from level 'real'"
NO_BACKBONE = r"backbone 'gone' is neither a path nor nano or smollm2"
CUT_BACKBONE = r"tiny.gguf: truncated or corrupt GGUF file"
CASES = [
    # Unknown names.
    ([*COLLECT, "--env=mars"], r"--env=mars.*clevr"),
    ([*COLLECT, "--config.level=medium"], r"unknown 'clevr/medium'; choose one of clevr/real"),
    ([*COLLECT, "--env=metaworld"], r"--preset=smoke is of clevr, but --env=metaworld"),
    (
        ["collect", "--preset=metaworld", "--out=new", "--config.level=x"],
        r"unknown 'metaworld/x'",
    ),
    ([*COLLECT, "--preset=huge"], r"preset.*demo, smoke, full|preset.*demo\|smoke\|full"),
    ([*COLLECT, "--config.episode=3"], r"Unknown command line flag 'config.episode'"),
    ([*PPO, "--config.env=mars"], r"unknown 'mars/real'"),
    ([*PPO, "--config.level=medium"], r"--config.level: .*unknown 'clevr/medium'"),
    ([*PPO, "--config.arm=dqn"], r"--config.arm: arm must be one of .*lago_sac, not 'dqn'"),
    ([*PPO, "--config.reward=sparse"], r"--config.reward.*must be one of goal, distance"),
    ([*LAGO, "--config.arms=ppo,dqn"], r"--config.arms: .* not 'dqn'"),
    ([*LAGO, "--config.pairs=real"], r"reward must be one of goal, distance, not ''"),
    ([*LAGO, "--config.pairs=medium:goal"], r"unknown 'clevr/medium'"),
    ([*LAGO, "--config.prior.backbone.name=gpt5"], r"'gpt5' is neither a path nor nano or smollm2"),
    ([*LAGO, "--only=lago["], r"--only=lago\[ is no regular expression"),
    ([*LAGO, "--only=sac"], r"--only=sac matches no cell; ids look like \['real-goal-random-0_1'"),
    ([*LAGO, "--cores=999"], r"cores.*999"),
    ([*LAGO, "--cores=1"], r"--cores needs --config.processes=true"),
    ([*LAGO[:-1], "--run_dir=gs://bucket/run"], r"--run_dir=gs://bucket/run must be a local dir"),
    (["grid", "lago_mars"], r"unknown grid 'lago_mars'; choose one of lago_clevr, lago_clevr_30"),
    (["grid"], r"missing argument NAME"),
    (["grid", "lago_tune", "--run_dir=new"], r"--run_dir=new is not used by this script"),
    ([*LAGO, "--config.online.kickstart_end=2"], r"kickstart_end must be in \(0, 1\], not 2"),
    (
        [*LAGO, "--config.online.guidance.beta=nan"],
        r"online.guidance.beta=nan.* finite number, got nan",
    ),
    (["evaluate", "--prior=prior", "--levels=medium", "--preset=smoke"], r"'clevr/medium'"),
    (["render", "--env=clevr/medium", "--out=new"], r"unknown 'clevr/medium'"),
    ([*BOTH, "--arm=static"], r"arm: unknown 'static'; did you mean static_online"),
    ([*BOTH, "--config.task=minihack/River"], r"nobody teaches 'minihack/River' by script"),
    ([*BOTH, "--config.embedder=gpt"], r"backbone 'gpt' is neither a path nor nano or smollm2"),
    ([*BOTH, "--extractor_device=9"], r"--extractor_device must be below \d, the number of dev"),
    ([*BOTH, "--role=actor"], r"--role=actor and --role=extractor need --cluster=HOST:PORT"),
    ([*BOTH, "--cluster=a:1"], r"need --cluster=HOST:PORT, and it them"),
    ([*BOTH, "--role=actor", "--cluster=a:1", "--arm=baseline"], r"--role must be left out"),
    ([*BOTH, "--role=actor", "--cluster=here"], r"--cluster=here must be HOST:PORT"),
    ([*BOTH, "--config.credit.reward=relative", "--config.acting.guided=4"], r"no free half"),
    ([*BOTH, "--config.acting.guided=1"], r"--config.acting.* no half of one rollout"),
    ([*BOTH, "--config.actor.max_length=64"], r"actor.max_length must be at least \d+"),
    ([*BOTH, "--config.acting.warm_up=9"], r"steps must be above acting.warm_up 9"),
    ([*TALK, "--config.improve.objective.kl_weight=1"], r"kl_weight must be 0 unless finetune"),
    ([*TALK, f"--config.seed={2**63}"], r"--config.seed.* must be below 2\*\*63"),
    ([*TALK, "--config.task=no_such:task"], r"needs the module 'no_such': ModuleNotFoundError"),
    # Sizes.
    ([*COLLECT, "--config.episodes=-1"], r"--config.episodes: episodes must be at least 1, not -1"),
    ([*COLLECT, "--config.random_fraction=2"], r"--config.random_fraction: .* in \[0, 1\)"),
    ([*COLLECT, "--config.random_fraction=1"], r"--config.random_fraction: .* in \[0, 1\)"),
    ([*COLLECT, "--horizon=0"], r"horizon.*0"),
    ([*PRIOR, "--config.sft.batch_rows=-4"], r"--config.sft.batch_rows: .*at least 1, not -4"),
    ([*PRIOR, "--config.sft.lr=-1"], r"--config.sft.lr: .*positive.*, not -1"),
    ([*PRIOR, "--config.sft.max_grad_norm=0"], r"--config.sft.max_grad_norm: .*positive.*, not 0"),
    (
        [*PRIOR, "--config.sft.weight_decay=-1"],
        r"--config.sft.weight_decay: .*at least 0.*, not -1",
    ),
    ([*PRIOR, "--fsdp=99"], r"fsdp 99 and tensor 1 must be positive, their product at most the"),
    (
        [*PRIOR, "--preset=tinyllama"],
        r"backbone 'tinyllama' is a shape without weights: name a directory that has them",
    ),
    ([*PRIOR, "--config.lora.rank=0"], r"--config.lora.rank.* must be at least 1, not 0"),
    ([*PRIOR, "--config.backbone.num_layers=-2"], r"num_layers.*-2"),
    ([*PPO, "--config.ppo.num_envs=-8"], r"--config.ppo.num_envs: .*at least 1, not -8"),
    ([*PPO, "--config.ppo.minibatches=3"], r"--config.ppo.minibatches: .* do not divide into"),
    ([*PPO, "--config.eval.episodes=0"], r"--config.eval.episodes: .*at least 1, not 0"),
    ([*PPO, "--config.feature_size=-1"], r"--config.feature_size: .*at least 1, not -1"),
    ([*PPO, "--config.network.hidden=8,-8"], r"--config.network.hidden: .*positive sizes"),
    ([*PPO, "--config.seeds=0,0"], r"--config.seeds: seeds must be different"),
    ([*PPO, "--config.ppo.num_envs=many"], r"config.ppo.num_envs=many.*number"),
    (
        [*LAGO, "--config.seeds="],
        r"--config.seeds: seeds must be different numbers from 0 to 999999999, not \(\)",
    ),
    ([*LAGO, "--config.online.bc.episodes=601"], r"601 must not be above data.episodes 600"),
    ([*PPO, "--config.seeds=3000000000"], r"--config.seeds: .* numbers from 0 to 999999999"),
    ([*PPO, "--config.ppo.max_grad_norm=inf"], r"max_grad_norm=inf.* finite number, got inf"),
    ([*PRIOR, "--config.lora.alpha=nan"], r"alpha=nan.* finite number, got nan"),
    ([*PPO, "--config.feature_components=33"], r"between 1 and 32, half of the vector, not 33"),
    ([*LAGO, "--config.alone.learning_rate=-1"], r"alone: ppo.learning_rate must be positive"),
    (
        [*LAGO, "--config.online.arm=ppo"],
        r"online.arm differs from cell to cell; give --config.arms",
    ),
    ([*LAGO, "--max_minutes=-5"], r"--max_minutes=-5.0 must be at least 0"),
    ([*LAGO, "--max_minutes=nan"], r"--max_minutes=nan must be at least 0"),
    (["render", "--seed=99999999999999999999", "--out=new"], r"seed.*99999999999999999999"),
    (
        [*TRAIN, "--config.env=gymnax/Cart"],
        r"unknown 'gymnax/Cart'; did you mean gymnax/CartPole-v1",
    ),
    ([*TRAIN, "--config.env=mars"], r"unknown 'mars'; choose one of clevr/…"),
    (
        [*TRAIN, "--config.options=size=3"],
        r"--config.options=size=3: gymnax/CartPole-v1 has no option size; it has",
    ),
    (
        [*TRAIN, "--config.options=size"],
        r"--config.options: .* must be NAME=VALUE, not 'size'",
    ),
    ([*TRAIN, "--config.network.conv=8"], r"network.conv needs observations"),
    ([*TRAIN, "--config.seeds=1,1"], r"--config.seeds: seeds must be different numbers"),
    ([*TRAIN, "--config.algorithm=dqn"], r"--?config.algorithm.*one of ppo, sac"),
    ([*TRAIN, "--config.ppo.minibatches=5"], r"do not divide into ppo.minibatches 5"),
    (["sweep", *TRAIN[1:]], r"vary must name a hyper-parameter"),
    (["sweep", *TRAIN[1:], "--vary=rate=1"], r"vary must name one of learning_rate, .*'rate=1'"),
    # What a stage reads.
    ([*PRIOR, "--backbone=empty"], r"empty: has neither config.json nor a .gguf file"),
    ([*PRIOR, "--backbone=safetensors"], r"model.safetensors: truncated or corrupt"),
    ([*PRIOR, "--backbone=gguf/tiny.gguf"], r"tiny.gguf: truncated or corrupt GGUF file"),
    ([*PRIOR, "--data=other_data"], r"env must be out of clevr, metaworld, not 'gym'"),
    ([*PRIOR, "--data=easy_data"], NOT_REAL),
    ([*PRIOR, "--data=nothing"], r"nothing: is no dataset directory"),
    (PRIOR[:-1], r"--data must be given"),
    (PRIOR[:1], r"--data and --out must be given"),
    ([*PPO, "--level=real"], r"flag 'level'; there is --config.level"),
    (["render", "--run=data", "--policy=random", "--out=new"], r"one of --policy and --run"),
    (["render", "--run=nothing", "--out=new"], r"--run=nothing holds no policy"),
    ([*LAGO, "--config.prior.backbone.name=empty"], r"empty: has neither config.json"),
    ([*LAGO, "--data=easy_data"], NOT_REAL),
    ([*LAGO, "--config.data.level=easy"], r"--config.data is of level 'easy', but priors and"),
    ([*LAGO, "--data=metaworld_data"], r"of 'metaworld/real'"),
    ([*LAGO, "--data=data"], r"horizon is 20, but the dataset.* 4 steps"),
    ([*LAGO, "--prior=prior", "--data=data"], r"bc.episodes is 500, but the dataset has 60"),
    ([*LAGO, "--prior=short_prior"], r"horizon is 20, but the prior .* 4 steps"),
    ([*LAGO, "--prior=other_actions"], r"prior other_actions was trained for actions"),
    ([*LAGO, "--prior=homeless"], NO_BACKBONE),
    ([*ONLINE, "--config.arm=lago", "--prior=homeless"], NO_BACKBONE),
    ([*ONLINE, "--config.arm=lago", "--prior=cut_backbone"], CUT_BACKBONE),
    (["evaluate", "--prior=homeless"], NO_BACKBONE),
    (["evaluate", "--prior=cut_backbone"], CUT_BACKBONE),
    (["grid", "lago_tune", "--prior=homeless", "--data=data"], NO_BACKBONE),
    (["grid", "lago_tune", "--prior=cut_backbone", "--data=data"], CUT_BACKBONE),
    ([*LAGO, "--prior=empty"], r"no prior at empty: prior.json is missing"),
    ([*ONLINE, "--config.arm=lago"], r"arm 'lago' needs a prior, --prior"),
    ([*ONLINE, "--config.arm=ppo_bc"], r"arm 'ppo_bc' needs expert data, --data"),
    ([*ONLINE, "--config.arm=lago", "--prior=other_actions"], r"was trained for actions"),
    ([*ONLINE, "--config.arm=lago", "--prior=short_prior"], r"horizon is 20, but the prior"),
    ([*ONLINE, "--config.arm=bc", "--data=metaworld_data"], r"of 'metaworld/real'"),
    ([*ONLINE, "--config.arm=bc", "--data=easy_data"], NOT_REAL),
    ([*ONLINE, "--config.arm=bc", "--data=data"], r"bc.episodes is 500, but the dataset has 60"),
    (
        [*ONLINE, "--cell=list.json", "--result=new.json"],
        r"--cell holds the whole configuration; leave out --preset",
    ),
    (["train_online", "--cell=nothing.json", "--result=new.json"], r"cannot read nothing.json"),
    (
        ["train_online", "--cell=list.json", "--result=new.json"],
        r"--cell must be a group of fields",
    ),
    (["train_online", "--cell=unknown.json", "--result=new.json"], r"--cell.speed is not known"),
    (["evaluate"], r"give one of --run and --prior"),
    (["evaluate", "--run=trained"], r"trained holds no policy: the run is not finished"),
    (["evaluate", "--run=trained", "--levels=real"], r"is of train or sweep: leave out --levels"),
    (["render", "--run=trained", "--out=new"], r"--run=trained holds no policy: it is no run of"),
    (["evaluate", "--run=foreign", "--prior=prior"], r"give one of --run and --prior"),
    (["evaluate", "--run=foreign"], r"--run=foreign holds no policy"),
    (["evaluate", "--run=other_run"], r"--run=other_run holds no policy"),
    (["evaluate", "--prior=short_prior", "--preset=smoke"], r"horizon is 20, but the prior"),
    (["evaluate", "--prior=prior", "--config.arm=ppo"], r"leave out --config.arm"),
    (["grid", "lago_tune", "--prior=prior", "--data=data"], r"horizon is 50, but the prior"),
    ([*PRIOR, "--data=random_data"], r"dataset random_data holds no step of the expert"),
    ([*LAGO, "--data=random_data"], r"dataset random_data holds no step of the expert"),
    ([*ONLINE, "--config.arm=bc", "--data=wide_data"], r"states of 20 numbers, clevr/real has 10"),
    (["grid", "lago_tune", "--prior=nothing", "--data=data"], r"no prior at nothing"),
    (["grid", "lago_tune", "--prior=other_actions", "--data=data"], r"was trained for actions"),
    (["grid", "lago_tune", "--prior=prior", "--data=metaworld_data"], r"of 'metaworld/real'"),
    (["grid", "lago_tune", "--prior=prior", "--data=data", "--only=sac"], r"matches no cell"),
    (["grid", "lago_clevr", "--table_only"], r"lago_clevr holds no finished cell"),
    (["grid", "lago_tune", "--table_only"], r"lago_tune holds no finished cell"),
    (["grid", "lago_clevr", "--table_only", "--prior=prior"], r"reads no --prior; leave it out"),
    (["grid", "lago_backbones", "--table_only", "--only=nano"], r"reads no --only; leave it out"),
    (["grid", "lago_backbones", "--table_only"], r"lago_backbones holds no finished cell"),
    (["grid", "lago_backbones", "--prior=prior"], r"lago_backbones reads no --prior; leave it out"),
    (["grid", "learners", "--data=data"], r"learners reads no --data; leave it out"),
    (
        ["train", "--config.algorithm=sac", "--config.network.gru=8"],
        r"algorithm sac does not read --config.network.gru; leave it out",
    ),
    (
        ["sweep", "--vary=gamma=0.9,1", "--config.soft.critics=3"],
        r"algorithm ppo does not read --config.soft.critics; leave it out",
    ),
    (
        ["train", "--config.env=gym/CartPole-v1", "--config.options=workers=0", "--devices=2"],
        r"devices must be 1, in one process: env gym/CartPole-v1 is stepped by the host",
    ),
    (
        ["train", "--config.env=minihack/Room-5x5", "--config.options=observe=['sky']"],
        r"observe must be a list of different names out of",
    ),
    (["render", "--env=metaworld/reach", "--run=run", "--out=new"], r"--run=run holds no policy"),
    (["render", "--env=gymnax/CartPole-v1"], r"only clevr/LEVEL and metaworld/LEVEL"),
    (["train", "--result=result.json"], r"--cell and --result need each other"),
    (["grid", "lago_backbones", "--data=data", "--only=sac"], r"--only=sac matches no cell"),
    # Text tasks.
    (["play"], r"give --task to play one, or --replay to see a record, not both"),
    (["play", "--task=mars"], r"task: unknown 'mars'"),
    (["play", "--task=sokoban", "--options=size=3"], r"size must be from 5 to 8, not 3"),
    (["play", "--task=sokoban", "--options=walls=3"], r"options: sokoban has no option walls"),
    (["play", "--task=route", "--seed=99999"], r"--seed must be below 16384, the episodes of"),
    (["play", "--task=minihack/River", "--scripted"], r"nobody demonstrates 'minihack/River'"),
    (["play", "--task=route", "--record=gone/new"], r"--record=gone/new: its directory does not"),
    (["play", "--replay=gone"], r"record 'gone' cannot be read"),
    (["play", "--replay=gone", "--scripted"], r"--replay plays what is on record: no --scripted"),
    (["play", "--task=webshop", "--options=data=gone"], r"data: 'gone' is no directory"),
    # Language models.
    (
        [*TALK, "--config.task=mars"],
        r"task: unknown 'mars'; choose alfworld, route, sokoban, swe, webshop, ",
    ),
    ([*TALK, "--config.task=mars:Hall"], r"task: 'mars:Hall' needs the module 'mars': Module"),
    (
        [*TALK, "--config.task=minihack/Room-5x5", "--config.options=compact=no"],
        r"options: compact of minihack/Room-5x5 must be of type bool, not 'no'",
    ),
    ([*TALK, "--config.task=minihack/Room-5"], r"unknown 'minihack/Room-5'; did you mean .*5x5\?"),
    ([*TALK, "--config.options=size=3"], r"options: route has no option size; it has none"),
    (
        [*TALK, "--config.task=minihack/Room-5x5", "--config.options=size=3"],
        r"options: minihack/Room-5x5 has no option size; it has max_turns",
    ),
    ([*TALK, "--config.warm_up.episodes=99999"], r"warm_up.episodes must be at most 2048"),
    ([*TALK, "--config.judge.episodes=99999"], r"judge.episodes must be at most 2048"),
    ([*TALK, "--config.max_length=40"], r"max_length must be at least .* of task route, not 40"),
    ([*TALK, "--config.max_tokens=128"], r"max_length must be above max_tokens, got 128 and 128"),
    ([*TALK, "--config.improve.rollouts=1"], r"improve.rollouts must be at least 2 with compare"),
    ([*TALK, "--config.improve.temperature=0"], r"improve.temperature must be positive"),
    ([*TALK, "--config.improve.minibatches=17"], r"improve.minibatches must be at most the 16"),
    (
        [*TALK, "--config.improve.objective.clip_low=-1"],
        r"--config.improve.objective.clip_low: .* not -1.0",
    ),
    ([*TALK, "--config.finetune=lora"], r"finetune must be full with backbone scratch"),
    ([*TALK, "--config.backbone=nano"], r"max_length must be at least"),
    ([*TALK, "--config.backbone=gone"], NO_BACKBONE),
    ([*TALK, "--config.backbone=empty"], r"empty: has neither config.json nor a .gguf file"),
    ([*TALK, "--config.backbone=safetensors"], r"model.safetensors: truncated or corrupt"),
    ([*TALK, "--config.backbone=gguf/tiny.gguf"], CUT_BACKBONE),
    ([*TALK, "--config.backbone=silent"], r"backbone silent has no chat template"),
    ([*TALK, "--fsdp=99"], r"fsdp 99 and tensor 1 must be positive, their product at most"),
    ([*TALK, "--config.dtype=float16"], r"config.dtype=float16: must be one of float32, bfl"),
    (
        [*TALK, "--config.warm_up.updates=1", "--config.task=minihack/River"],
        "nobody demonstrates 'minihack/River', only alfworld, route",
    ),
    ([*TALK, "--run_dir=foreign"], r"--run_dir=foreign exists and is no run directory"),
    # What a stage writes.
    ([*COLLECT, "--out=foreign"], r"--out=foreign exists; choose another or remove it"),
    ([*PRIOR, "--out=prior"], r"--out=prior exists; choose another or remove it"),
    ([*COLLECT, "--out=file/new"], r"--out=file/new cannot be written: "),
    ([*PRIOR, "--out=file/new"], r"--out=file/new cannot be written: "),
    ([*PPO, "--result=new.json"], r"--cell and --result need each other"),
    (["compare_backbone", "--data=data"], r"--cell and --result are needed"),
    (["evaluate", "--prior=prior", "--out=file/new.json"], r"--out=file/new.json cannot be wri"),
    (["render", "--out=file"], r"--out=file cannot be made: "),
    ([*PPO[:-1], "--run_dir=new[1]"], r"--run_dir=new\[1\]: checkpoints cannot lie below a '\['"),
    ([*PRIOR, "--run_dir=foreign"], r"--run_dir=foreign exists and is no run directory"),
    ([*PPO, "--run_dir=foreign"], r"--run_dir=foreign exists and is no run directory"),
    ([*PPO, "--run_dir=file"], r"--run_dir=file is a file; name a directory"),
    ([*LAGO, "--run_dir=foreign"], r"--run_dir=foreign exists and is no run directory"),
    (["evaluate", "--prior=prior", "--out=file"], r"--out=file exists"),
]


def check(code, out, err, pattern):
    assert code == 2, err
    assert re.fullmatch(r"error: .*\n", err), err
    assert re.search(pattern, err), err
    assert out == ""


@pytest.mark.parametrize(
    "arguments, pattern", CASES, ids=lambda x: " ".join(x) if isinstance(x, list) else ""
)
def test_bad_input_is_one_line_and_writes_nothing(arguments, pattern, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    before = contents(place)
    code = scripts.call(*arguments)
    check(code, *capsys.readouterr(), pattern)
    assert contents(place) == before


LOCKED = [
    # Opening a directory of another configuration locks it first; nothing else may change.
    ([*PPO, "--run_dir=other_run"], r"a run of another configuration \(config.horizon: 19, not 20"),
    (
        [*PRIOR, "--run_dir=other_prior_run", "--config.sft.lr=0.5"],
        r"another configuration \(sft.lr: 0.001, not 0.5\)",
    ),
    ([*LAGO, "--run_dir=other_prior_run"], r"a run of another script; name another directory"),
    ([*PPO, "--run_dir=damaged_run"], r"damaged_run/config.json is damaged"),
]


@pytest.mark.parametrize(
    "arguments, pattern", LOCKED, ids=lambda x: " ".join(x) if isinstance(x, list) else ""
)
def test_a_run_of_another_configuration_is_left_alone(
    arguments, pattern, place, monkeypatch, capsys
):
    monkeypatch.chdir(place)
    before = contents(place)
    code = scripts.call(*arguments)
    check(code, *capsys.readouterr(), pattern)
    after = contents(place)
    for path in set(after) - set(before):
        assert path.name == ".lock"
    assert {p: data for p, (_, data) in after.items() if p in before} == {
        p: data for p, (_, data) in before.items()
    }


def test_a_script_says_so_in_a_process_of_its_own(place):
    result = scripts.run(place, *PPO, "--config.level=medium", check=False)
    check(result.returncode, result.stdout, result.stderr, r"unknown 'clevr/medium'")
    assert not (place / "new").exists()
