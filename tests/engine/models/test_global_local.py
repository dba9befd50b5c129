"""MOSS-TTS-Local-Transformer and MOSS-TTS-Nano against the golden vectors of the released modules.

Every vector was made in float32 on a CPU; tolerances are those stated with them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.checkpoint import CheckpointError
from engine.models.global_local import GlobalLocalModel
from engine.models.local import LocalModel, load_local, local_config
from engine.models.nano import NanoModel, load_nano, nano_config
from kernels.sampling import SamplingParams, distribution
from tests.engine.models.global_local import (
    DIRECTORIES,
    LOADERS,
    VECTORS,
    Family,
    WholeSequence,
    family,
    hidden_states,
)

CLOSE = {"atol": 2e-5, "rtol": 1e-4}
FULL_SIZE_LOCAL = {
    "n_vq": 12,
    "audio_vocab_size": 1024,
    "audio_pad_token_id": 1024,
    "pad_token_id": 151643,
    "audio_start_token_id": 151669,
    "audio_end_token_id": 151670,
    "audio_assistant_slot_token_id": 151656,
    "local_transformer_layers": 1,
    "qwen3_config": {
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 9728,
        "vocab_size": 151936,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 40960,
    },
    "gpt2_config": {
        "n_embd": 2560,
        "n_head": 32,
        "n_inner": 9728,
        "n_layer": 4,
        "n_positions": 13,
        "activation_function": "silu",
        "layer_norm_epsilon": 1e-6,
        "position_embedding_type": "rope",
        "rope_base": 1e6,
    },
}
FULL_SIZE_NANO = {
    "n_vq": 16,
    "audio_vocab_size": 1024,
    "audio_pad_token_id": 1024,
    "pad_token_id": 3,
    "audio_start_token_id": 6,
    "audio_end_token_id": 7,
    "audio_assistant_slot_token_id": 9,
    "vocab_size": 16384,
    "local_transformer_layers": 1,
    "gpt2_config": {
        "n_embd": 768,
        "n_head": 12,
        "n_inner": 3072,
        "n_layer": 12,
        "n_positions": 32768,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "position_embedding_type": "rope",
        "rope_base": 1e4,
    },
}


@pytest.fixture(scope="module", params=["local", "nano"])
def tiny(request: pytest.FixtureRequest) -> Family:
    return family(request.param)


def cases(vectors: dict[str, torch.Tensor], suffix: str) -> dict[str, torch.Tensor]:
    return {
        name.removesuffix(suffix): tensor
        for name, tensor in vectors.items()
        if name.endswith(suffix) and not name.startswith("batch")
    }


def test_input_embeddings(tiny):
    prompts, want = tiny.vectors("prompts"), cases(tiny.vectors("forward"), ".inputs_embeds")
    assert len(want) >= 2
    for case, embeds in want.items():
        torch.testing.assert_close(
            tiny.model.embed(prompts[f"{case}.input_ids"]), embeds, **CLOSE, msg=case
        )


def test_hidden_states_of_every_prompt(tiny):
    prompts, want = tiny.vectors("prompts"), cases(tiny.vectors("forward"), ".hidden")
    assert len(want) == len(cases(prompts, ".input_ids"))
    for case, hidden in want.items():
        got = hidden_states(tiny.model, prompts[f"{case}.input_ids"])
        torch.testing.assert_close(got, hidden, **CLOSE, msg=case)


def test_padded_prompts_of_a_batch_equal_unpadded_ones(tiny):
    prompts, want = tiny.vectors("prompts"), tiny.vectors("forward")
    for row in range(2):
        used = prompts["batch2.attention_mask"][row].bool()
        grid = prompts["batch2.input_ids"][row][used]
        hidden = hidden_states(tiny.model, grid)
        torch.testing.assert_close(hidden, want["batch2.hidden"][row][used], **CLOSE)
        x = tiny.model.embed(grid)
        torch.testing.assert_close(x, want["batch2.layer_state.0"][row][used], **CLOSE)
        backbone = tiny.model.transformer
        first = backbone.layers[0] if tiny.name == "local" else backbone.h[0]
        rotation = tiny.model.config.backbone.rotations(len(grid), like=x)
        after = first(0, x, rotation, WholeSequence())
        torch.testing.assert_close(after, want["batch2.layer_state.1"][row][used], **CLOSE)


def test_depth_teacher_forced(tiny):
    want, model = tiny.vectors("depth"), tiny.model
    logits, stop_logits, states = [], [], []

    def decide(seen):
        stop_logits.append(seen)
        return torch.ones(len(seen), dtype=torch.bool)

    def choose(codebook, seen):
        logits.append(seen)
        return want["codes"][:, codebook]

    hook = model.local_transformer.register_forward_hook(lambda *args: states.append(args[2]))
    try:
        speaks, codes = model.depth(want["global_hidden"], decide, choose)
    finally:
        hook.remove()
    assert speaks.all()
    assert torch.equal(codes, want["codes"])
    torch.testing.assert_close(torch.stack(states, 1), want["local_hidden"], **CLOSE)
    torch.testing.assert_close(stop_logits[0], want["stop_logits"], **CLOSE)
    torch.testing.assert_close(torch.stack(logits, 1), want["audio_logits"], **CLOSE)
    if "text_logits" in want:
        text = states[0] @ model.text_embedding.weight.T
        torch.testing.assert_close(text, want["text_logits"], **CLOSE)


def test_nano_code_0_depends_on_the_decision_and_locals_does_not(tiny):
    want, seen = tiny.vectors("depth"), []

    def choose(codebook, logits):
        if codebook == 0:
            seen.append(logits)
        return logits.argmax(-1)

    for decision in (True, False):
        tiny.model.depth(
            want["global_hidden"], lambda logits, d=decision: torch.full((len(logits),), d), choose
        )
    assert torch.equal(*seen) == (tiny.name == "local")


def probabilities(tiny, logits, history, settings):
    recent = torch.zeros_like(logits, dtype=torch.bool)
    for row, codes in enumerate(history):
        recent[row, codes[codes < logits.shape[1]]] = True
    rows = len(logits)
    params = SamplingParams(
        torch.full((rows,), settings["temperature"]),
        torch.full((rows,), settings["top_p"]),
        torch.full((rows,), settings["top_k"]),
        torch.full((rows,), settings["penalty"]),
    )
    return distribution(logits, recent, params)


def same_distribution(got, want):
    torch.testing.assert_close(got, want, atol=1e-6, rtol=0)
    assert torch.equal(got == 0, want == 0)


def test_sampling_probabilities(tiny):
    want, settings = tiny.vectors("sampling"), tiny.info()["sampling"]
    assert len(settings) >= 5
    for name, given in settings.items():
        got = probabilities(tiny, want["logits"], want["history"], given)
        same_distribution(got, want[f"{name}.probs"])
        assert (got > 0).sum(1).tolist() == given["kept"]


def test_all_that_tie_at_the_top_k_threshold_survive():
    want = load_file(DIRECTORIES["local"] / "sampling.safetensors")
    plain = {"temperature": 1.0, "top_p": 1.0, "top_k": 2, "penalty": 1.0}
    got = probabilities(None, want["tie.logits"], [torch.zeros(0, dtype=torch.int64)], plain)
    same_distribution(got, want["tie_topk2.probs"])
    binary = {**plain, "top_k": 50}
    got = probabilities(None, want["binary.logits"], torch.zeros(2, 0, dtype=torch.int64), binary)
    same_distribution(got, want["binary.probs"])


def test_nano_distribution_inverted_in_descending_order():
    """The released ONNX sampler walks the same probabilities from the largest down."""
    directory = DIRECTORIES["nano"]
    want = load_file(directory / "sampling.safetensors")
    settings = json.loads((directory / "info.json").read_text())["sampling"]["app_default"]
    got = probabilities(None, want["logits"], want["history"], settings)
    ordered = got.sort(descending=True)
    picks = torch.searchsorted(ordered.values.cumsum(1), want["icdf.u"].expand(2, -1).contiguous())
    assert torch.equal(ordered.indices.gather(1, picks), want["icdf.tokens_app_default"])


@pytest.mark.parametrize(
    ("model", "config", "manifest"),
    [
        (LocalModel, local_config(FULL_SIZE_LOCAL), "manifest_local_v15"),
        (NanoModel, nano_config(FULL_SIZE_NANO), "manifest_nano"),
    ],
    ids=["local", "nano"],
)
def test_full_size_model_has_exactly_the_released_tensors(model, config, manifest):
    released = json.loads((VECTORS / f"{manifest}.json").read_text())
    shapes = {name: tuple(shape) for name, shape in released["tensors"].items()}
    with torch.device("meta"):
        built: GlobalLocalModel = model(config)
    ours = {name: tuple(tensor.shape) for name, tensor in built.state_dict().items()}
    sources = {f"audio_lm_heads.{i}.weight": f"audio_embeddings.{i}.weight" for i in range(16)}
    text = "transformer.embed_tokens" if model is LocalModel else "transformer.wte"
    sources["text_lm_head.weight"] = f"{text}.weight"
    for head in config.tied:
        assert shapes.pop(head) == ours[sources[head]]
    assert ours == shapes
    parameters = sum(tensor.numel() for tensor in built.state_dict().values())
    assert parameters == released["_meta"]["unique_parameters"]


def changed(tmp_path: Path, name: str, change) -> Path:
    """A copy of a tiny checkpoint whose tensors went through `change`."""
    directory = tmp_path / "model"
    shutil.copytree(DIRECTORIES[name] / "tiny", directory)
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")
    return directory


@pytest.mark.parametrize("name", ["local", "nano"])
def test_heads_that_are_not_stored_are_the_input_tables(tmp_path, name):
    def drop_heads(tensors):
        for head in [key for key in tensors if key.split(".")[0].endswith("lm_heads")]:
            del tensors[head]
        del tensors["text_lm_head.weight"]

    want = LOADERS[name](DIRECTORIES[name] / "tiny")
    got = LOADERS[name](changed(tmp_path, name, drop_heads))
    for key, tensor in want.state_dict().items():
        assert torch.equal(got.state_dict()[key], tensor)


@pytest.mark.parametrize("name", ["local", "nano"])
def test_of_two_tied_tensors_the_input_table_wins(tmp_path, name):
    def spoil(tensors):
        tensors["audio_lm_heads.3.weight"] = torch.zeros_like(tensors["audio_lm_heads.3.weight"])

    hidden = load_file(DIRECTORIES[name] / "depth.safetensors")["global_hidden"]

    def greedy(model):
        everywhere = torch.ones(len(hidden), dtype=torch.bool)
        return model.depth(hidden, lambda _: everywhere, lambda _, logits: logits.argmax(-1))[1]

    want = greedy(LOADERS[name](DIRECTORIES[name] / "tiny"))
    assert torch.equal(greedy(LOADERS[name](changed(tmp_path, name, spoil))), want)


def test_without_a_stop_head_the_text_embeddings_decide(tmp_path):
    directory = changed(tmp_path, "local", lambda tensors: tensors.pop("local_text_lm_head.weight"))
    model = load_local(directory)
    y = torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    rows = model.text_embedding.weight[[384, 386]]
    torch.testing.assert_close(model.stop_logits(y), y @ rows.T)
    settings = json.loads((directory / "config.json").read_text())
    settings["local_text_head_mode"] = "full_vocab"
    shutil.copy(DIRECTORIES["local"] / "tiny" / "model.safetensors", directory)
    (directory / "config.json").write_text(json.dumps(settings))
    torch.testing.assert_close(load_local(directory).stop_logits(y), y @ rows.T)


def test_nano_tolerates_the_unused_text_table(tmp_path):
    load_nano(
        changed(
            tmp_path,
            "nano",
            lambda tensors: tensors.update({"local_transformer.wte.weight": torch.zeros(2, 64)}),
        )
    )


@pytest.mark.parametrize("name", ["local", "nano"])
def test_tensors_that_do_not_fit_are_named(tmp_path, name):
    def spoil(tensors):
        del tensors["local_transformer.h.0.ln_1.bias"]
        tensors["audio_embeddings.2.weight"] = torch.zeros(7, 64)
        tensors["adapter.weight"] = torch.zeros(1)

    with pytest.raises(CheckpointError) as error:
        LOADERS[name](changed(tmp_path, name, spoil))
    assert "missing local_transformer.h.0.ln_1.bias [64]" in str(error.value)
    assert "misshapen audio_embeddings.2.weight: [7, 64]" in str(error.value)
    assert "unexpected adapter.weight [1]" in str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"audio_pad_token_id": 1030}, "the audio pad 1030 is not supported"),
        ({"audio_codebook_sizes": [1024] * 15 + [512]}, "audio_codebook_sizes"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings false"),
        (
            {"gpt2_config": {**FULL_SIZE_NANO["gpt2_config"], "position_embedding_type": None}},
            "position_embedding_type None",
        ),
        (
            {"gpt2_config": {**FULL_SIZE_NANO["gpt2_config"], "activation_function": "relu"}},
            "activation_function 'relu'",
        ),
        ({"model_architecture": "flat"}, "model_architecture 'flat'"),
    ],
)
def test_settings_that_cannot_be_honoured_are_named(change, said):
    with pytest.raises(ValueError, match=said):
        nano_config({**FULL_SIZE_NANO, **change})


def test_aliases_of_settings():
    """The aliases that newer files write win over the older names."""
    config = local_config(
        {
            **FULL_SIZE_LOCAL,
            "audio_pad_code": 1024,
            "audio_pad_token_id": 7,
            "audio_assistant_gen_slot_token_id": 5,
            "language_config": {"hidden_size": 1},
        }
    )
    assert (config.audio_pad, config.continue_id, config.backbone.rope_theta) == (1024, 5, 1e6)
    assert config.local.layers == 1
