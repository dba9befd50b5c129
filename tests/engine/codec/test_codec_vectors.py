"""The codecs against golden vectors of the reference modules, on tiny checkpoints."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.codec.codec import AudioCodec, load_codec
from engine.codec.stream import DecoderStream, EncoderStream

VECTORS = Path(__file__).parents[2] / "vectors" / "codec"
RELEASES = ("v1", "v2", "nano")
STREAMS = sorted(
    f"{path.parent.name}/{path.stem}" for path in VECTORS.glob("*/decode_stream_*.safetensors")
)
PREFIXES = sorted(
    f"{path.parent.name}/{path.stem}" for path in VECTORS.glob("*/decode_first*.safetensors")
)
CODECS: dict[str, AudioCodec] = {}


def codec_of(release) -> AudioCodec:
    if release not in CODECS:
        CODECS[release] = load_codec(VECTORS / release / "tiny")
    return CODECS[release]


@pytest.fixture(params=RELEASES)
def release(request) -> str:
    return request.param


@pytest.fixture
def codec(release) -> AudioCodec:
    return codec_of(release)


def vectors(release, name):
    return load_file(VECTORS / release / f"{name}.safetensors")


def assert_close(got, want, atol=2e-4):
    torch.testing.assert_close(got, want, atol=atol, rtol=1e-4)


def semantics_of(name):
    """The ring with headroom is a way to be exact."""
    return "chunk_complete" if "chunkcomplete" in name else "exact"


@pytest.fixture
def record_outputs():
    """Collect each given module's latest output, by position."""
    hooks = []

    def record(modules):
        outputs = {}
        for index, module in enumerate(modules):

            def keep(_module, _inputs, output, index=index):
                outputs[index] = output

            hooks.append(module.register_forward_hook(keep))
        return outputs

    yield record
    for hook in hooks:
        hook.remove()


def stream_decode(stream, slot, want):
    codes = want["audio_codes"].long().permute(1, 2, 0)
    chunks = codes.split(want["chunk_sizes"].tolist(), dim=1)
    return torch.cat([stream.step([slot], chunk) for chunk in chunks], 1).transpose(1, 2)


@pytest.mark.parametrize("name", ["encode_whole", "encode_odd"])
def test_encode(release, codec, name):
    want = vectors(release, name)
    codes, lengths = codec.encode(want["wav"])
    assert torch.equal(codes, want["audio_codes"].long())
    assert torch.equal(lengths, want["audio_codes_lengths"].long())


def test_encode_fewer_codebooks_is_a_prefix(release, codec):
    want = vectors(release, "encode_whole")
    codes, _ = codec.encode(want["wav"], n_codebooks=5)
    assert torch.equal(codes, want["audio_codes"][:5].long())


def test_encode_batch_of_unequal_clips(release, codec, record_outputs):
    want = vectors(release, "encode_batch")
    clips = [want[f"wav_{index}"] for index in range(4)]
    wav = torch.stack([torch.nn.functional.pad(clip, (0, 4512 - clip.shape[1])) for clip in clips])
    stages = record_outputs(codec.encoder)
    codes, lengths = codec.encode(wav, want["wav_lengths"])
    assert torch.equal(codes, want["audio_codes"].long())
    assert torch.equal(lengths, want["audio_codes_lengths"].long())
    for row, frames in enumerate(lengths.tolist()):
        hidden = stages[len(codec.encoder) - 1][row, :frames].T
        assert_close(hidden, want["encoder_hidden_states"][row, :, :frames])


def test_encode_stage_outputs(release, codec, record_outputs):
    want = vectors(release, "encode_whole")
    stages = record_outputs(codec.encoder)
    codec.encode(want["wav"])
    for index, output in stages.items():
        assert_close(output.transpose(1, 2), want[f"encoder.{index}.out"])
    assert_close(stages[len(stages) - 1].transpose(1, 2), want["encoder_hidden_states"])


def test_quantizer_intermediates(release, codec):
    want, quantizer = vectors(release, "encode_whole"), codec.quantizer
    latents = want["encoder_hidden_states"].transpose(1, 2)
    codes = quantizer.encode(latents, codec.config.n_codebooks)
    assert torch.equal(codes, want["audio_codes"].long().permute(1, 2, 0))
    projected = quantizer.input_proj(latents)
    assert_close(projected.transpose(1, 2), want["quantizer.input_proj.out"])
    first = quantizer.quantizers[0].in_proj(projected)
    assert_close(first.transpose(1, 2), want["quantizer.0.z_e"])
    assert_close(quantizer.sum_entries(codes[..., :1]).transpose(1, 2), want["quantizer.0.z_q"])
    assert_close(quantizer.decode(codes).transpose(1, 2), want["quantizer.quantized_out"])


def test_encode_in_chunks_as_the_reference_streams(release, codec, record_outputs):
    want = vectors(release, "encode_chunked_5frames")
    stages = record_outputs(codec.encoder)
    semantics = "chunk_complete" if release == "v1" else "exact"
    stream = EncoderStream(codec, 2, semantics=semantics)
    pieces = want["wav"].split(5 * codec.config.samples_per_frame, dim=-1)
    codes, hidden = [], []
    for piece in pieces:
        codes.append(stream.step([1], piece))
        hidden.append(stages[len(codec.encoder) - 1])
    assert torch.equal(torch.cat(codes, 1).permute(2, 0, 1), want["audio_codes"].long())
    assert_close(torch.cat(hidden, 1).transpose(1, 2), want["encoder_hidden_states"])


def test_decode(release, codec):
    want = vectors(release, "decode_whole")
    assert_close(codec.decode(want["audio_codes"].long()), want["audio"])


def test_decode_of_fewer_codebooks_is_covered():
    assert PREFIXES == [
        "nano/decode_first12",
        "nano/decode_first8",
        "v1/decode_first12",
        "v1/decode_first16",
        "v2/decode_first12",
        "v2/decode_first16",
    ]


@pytest.mark.parametrize("name", PREFIXES)
def test_decode_of_fewer_codebooks(name):
    release, name = name.split("/")
    want = vectors(release, name)
    assert len(want["audio_codes"]) == int(name.removeprefix("decode_first"))
    assert_close(codec_of(release).decode(want["audio_codes"].long()), want["audio"])


def test_decode_stage_outputs(release, codec, record_outputs):
    want = vectors(release, "decode_whole")
    codes = want["audio_codes"].long()
    summed = codec.quantizer.sum_entries(codes.permute(1, 2, 0))
    assert_close(summed.transpose(1, 2), want["quantizer.decode.pre_output_proj"])
    latents = codec.quantizer.decode(codes.permute(1, 2, 0))
    assert_close(latents.transpose(1, 2), want["quantizer.decode.out"])
    first = next(stage for stage in codec.decoder if hasattr(stage, "transformer"))
    first = first.transformer.layers[0]
    inner = record_outputs([first.self_attn, first])
    stages = record_outputs(codec.decoder)
    codec.decode(codes)
    for index, output in stages.items():
        assert_close(output.transpose(1, 2), want[f"decoder.{index}.out"])
    assert_close(inner[0], want["decoder.first_transformer.layers.0.self_attn.out"])
    assert_close(inner[1], want["decoder.first_transformer.layers.0.out"])


def test_decode_batch_of_unequal_lengths(release, codec):
    want = vectors(release, "decode_whole")
    whole = want["audio_codes"].long()[:, 0]
    padded = whole.clone()
    padded[:, 20:] = 0
    audio = codec.decode(torch.stack([whole, padded], 1))
    assert_close(audio[0], want["audio"][0])
    samples = 20 * codec.config.samples_per_frame
    assert_close(audio[1, :, :samples], want["audio"][0, :, :samples])


def test_every_stream_pattern_is_covered():
    patterns = {
        "v1": {"chunkcomplete": ("ramp", "one", "five", "fifteen"), "exact": ("ramp", "one")},
        "v2": {
            "chunkcomplete": ("ramp", "one", "five", "fifteen"),
            "exact": ("ramp", "one"),
            "headroom15": ("ramp", "one"),
        },
        "nano": {"exact": ("ramp", "one")},
    }
    assert set(STREAMS) == {
        f"{release}/decode_stream_{semantics}_{pattern}"
        for release, kinds in patterns.items()
        for semantics, names in kinds.items()
        for pattern in names
    }


@pytest.mark.parametrize("name", STREAMS)
def test_decode_stream(name):
    release, name = name.split("/")
    want = vectors(release, name)
    stream = DecoderStream(codec_of(release), 3, semantics=semantics_of(name))
    assert_close(stream_decode(stream, 1, want), want["audio"])
    assert stream.frames(1) == sum(want["chunk_sizes"])


def test_a_session_of_streams_that_come_and_go():
    """The reference's own multi-stream session, in two slots: [(stream, first frame, frames)]."""
    want, codec = vectors("nano", "decode_session"), codec_of("nano")
    stream, slots = DecoderStream(codec, 2), {0: 1, 1: 0, 2: 0}
    calls = [
        [(0, 1)],
        [(0, 4), (1, 4)],
        [(1, 11)],
        [(0, 15), (1, 15)],
        [(0, 7), (2, 7)],
        [(0, 8)],
        [(0, 12)],
    ]
    sound = {name: [] for name in slots}
    for call in calls:
        if call[-1][0] == 2:
            stream.reset(slots[2])
        chunks = []
        for name, frames in call:
            first, codes = stream.frames(slots[name]), want[f"audio_codes_{name}"].long()
            chunks.append(codes[:, first : first + frames].T)
        pcm = stream.step([slots[name] for name, _ in call], torch.stack(chunks))
        for (name, _), part in zip(call, pcm, strict=True):
            sound[name].append(part)
    for name, parts in sound.items():
        assert_close(torch.cat(parts).T[None], want[f"audio_{name}"])


def whole_window(codec, stream, slot, stage):
    """Layer 0's last `window` keys and values [1, heads, window, head_dim], oldest first.

    And how many tokens came before their end.
    """
    ring, config = stream.pool.rings[stage], codec.decoder.transformers[stage]
    end = stream.frames(slot) * config.tokens_per_frame
    positions = torch.arange(end - config.window_tokens, end)
    kept = ring.kv[0, slot * ring.capacity + positions % ring.capacity]
    keys, values = kept.permute(1, 2, 0, 3)[:, None]
    return keys, values, end


@pytest.mark.parametrize("stage", [0, 3])
def test_state_of_a_ring_that_is_written_before_it_is_read(stage):
    want, codec = vectors("v1", "decode_stream_chunkcomplete_ramp"), codec_of("v1")
    stream = DecoderStream(codec, 3, semantics="chunk_complete")
    stream_decode(stream, 2, want)
    keys, values, end = whole_window(codec, stream, 2, stage)
    assert end == want[f"stage{stage}.layer0.end_offset"].item()
    # The reference's ring holds `window` tokens and ours more; in both a token lies at its position
    # modulo the capacity.
    assert_close(keys.roll(end, 2), want[f"stage{stage}.layer0.ring_keys"], atol=1e-4)
    assert_close(values.roll(end, 2), want[f"stage{stage}.layer0.ring_values"], atol=1e-4)


@pytest.mark.parametrize(("release", "stage"), [("v2", 0), ("v2", 5), ("nano", 0), ("nano", 3)])
def test_state_of_an_exact_window(codec, release, stage):
    want = vectors(release, "decode_stream_exact_ramp")
    stream = DecoderStream(codec, 3)
    stream_decode(stream, 2, want)
    keys, values, end = whole_window(codec, stream, 2, stage)
    assert end == want[f"stage{stage}.layer0.offset"].item()
    positions = torch.arange(end - keys.shape[2], end, dtype=torch.int32)
    assert torch.equal(want[f"stage{stage}.layer0.cached_positions"][0], positions)
    assert_close(keys, want[f"stage{stage}.layer0.cached_keys"], atol=1e-4)
    assert_close(values, want[f"stage{stage}.layer0.cached_values"], atol=1e-4)
