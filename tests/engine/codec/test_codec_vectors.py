"""The v1 codec against golden vectors of the reference modules, on the tiny checkpoint."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from engine.codec.codec import AudioCodec, load_codec
from engine.codec.stream import DecoderStream, EncoderStream

VECTORS = Path(__file__).parents[2] / "vectors" / "codec" / "v1"
STREAMS = sorted(path.stem for path in VECTORS.glob("decode_stream_*.safetensors"))


@pytest.fixture(scope="module")
def codec() -> AudioCodec:
    return load_codec(VECTORS / "tiny")


def vectors(name):
    return load_file(VECTORS / f"{name}.safetensors")


def assert_close(got, want, atol=2e-4):
    torch.testing.assert_close(got, want, atol=atol, rtol=1e-4)


def semantics_of(name):
    return "chunk_complete" if "chunkcomplete" in name else "exact"


def record_outputs(modules):
    """Collect each module's latest output, by position."""
    outputs = {}
    for index, module in enumerate(modules):

        def keep(_module, _inputs, output, index=index):
            outputs[index] = output

        module.register_forward_hook(keep)
    return outputs


def stream_decode(stream, slot, want):
    codes = want["audio_codes"].long().permute(1, 2, 0)
    chunks = codes.split(want["chunk_sizes"].tolist(), dim=1)
    return torch.cat([stream.step([slot], chunk) for chunk in chunks], 1).transpose(1, 2)


@pytest.mark.parametrize("name", ["encode_whole", "encode_odd"])
def test_encode(codec, name):
    want = vectors(name)
    codes, lengths = codec.encode(want["wav"])
    assert torch.equal(codes, want["audio_codes"].long())
    assert torch.equal(lengths, want["audio_codes_lengths"].long())


def test_encode_fewer_codebooks_is_a_prefix(codec):
    want = vectors("encode_whole")
    codes, _ = codec.encode(want["wav"], n_codebooks=5)
    assert torch.equal(codes, want["audio_codes"][:5].long())


def test_encode_batch_of_unequal_clips(codec):
    want = vectors("encode_batch")
    clips = [want[f"wav_{index}"] for index in range(4)]
    wav = torch.stack([torch.nn.functional.pad(clip, (0, 4512 - clip.shape[1])) for clip in clips])
    stages = record_outputs(codec.encoder)
    codes, lengths = codec.encode(wav, want["wav_lengths"])
    assert torch.equal(codes, want["audio_codes"].long())
    assert torch.equal(lengths, want["audio_codes_lengths"].long())
    for row, frames in enumerate(lengths.tolist()):
        hidden = stages[len(codec.encoder) - 1][row, :frames].T
        assert_close(hidden, want["encoder_hidden_states"][row, :, :frames])


def test_encode_stage_outputs(codec):
    want = vectors("encode_whole")
    stages = record_outputs(codec.encoder)
    codec.encode(want["wav"])
    for index, output in stages.items():
        assert_close(output.transpose(1, 2), want[f"encoder.{index}.out"])
    assert_close(stages[len(stages) - 1].transpose(1, 2), want["encoder_hidden_states"])


def test_quantizer_intermediates(codec):
    want, quantizer = vectors("encode_whole"), codec.quantizer
    latents = want["encoder_hidden_states"].transpose(1, 2)
    codes = quantizer.encode(latents, codec.config.n_codebooks)
    assert torch.equal(codes, want["audio_codes"].long().permute(1, 2, 0))
    projected = quantizer.input_proj(latents)
    assert_close(projected.transpose(1, 2), want["quantizer.input_proj.out"])
    first = quantizer.quantizers[0].in_proj(projected)
    assert_close(first.transpose(1, 2), want["quantizer.0.z_e"])
    assert_close(quantizer.sum_entries(codes[..., :1]).transpose(1, 2), want["quantizer.0.z_q"])
    assert_close(quantizer.decode(codes).transpose(1, 2), want["quantizer.quantized_out"])


def test_encode_in_chunks_as_the_reference_streams(codec):
    want = vectors("encode_chunked_5frames")
    stages = record_outputs(codec.encoder)
    stream = EncoderStream(codec, 2, semantics="chunk_complete")
    pieces = want["wav"].split(5 * codec.config.samples_per_frame, dim=-1)
    codes, hidden = [], []
    for piece in pieces:
        codes.append(stream.step([1], piece))
        hidden.append(stages[len(codec.encoder) - 1])
    assert torch.equal(torch.cat(codes, 1).permute(2, 0, 1), want["audio_codes"].long())
    assert_close(torch.cat(hidden, 1).transpose(1, 2), want["encoder_hidden_states"])


@pytest.mark.parametrize("name", ["decode_whole", "decode_first12", "decode_first16"])
def test_decode(codec, name):
    want = vectors(name)
    assert_close(codec.decode(want["audio_codes"].long()), want["audio"])


def test_decode_stage_outputs(codec):
    want = vectors("decode_whole")
    codes = want["audio_codes"].long()
    summed = codec.quantizer.sum_entries(codes.permute(1, 2, 0))
    assert_close(summed.transpose(1, 2), want["quantizer.decode.pre_output_proj"])
    latents = codec.quantizer.decode(codes.permute(1, 2, 0))
    assert_close(latents.transpose(1, 2), want["quantizer.decode.out"])
    first = codec.decoder[0].transformer.layers[0]
    inner = record_outputs([first.self_attn, first])
    stages = record_outputs(codec.decoder)
    codec.decode(codes)
    for index, output in stages.items():
        assert_close(output.transpose(1, 2), want[f"decoder.{index}.out"])
    assert_close(inner[0], want["decoder.first_transformer.layers.0.self_attn.out"])
    assert_close(inner[1], want["decoder.first_transformer.layers.0.out"])


def test_decode_batch_of_unequal_lengths(codec):
    want = vectors("decode_whole")
    whole = want["audio_codes"].long()[:, 0]
    padded = whole.clone()
    padded[:, 20:] = 0
    audio = codec.decode(torch.stack([whole, padded], 1))
    assert_close(audio[0], want["audio"][0])
    samples = 20 * codec.config.samples_per_frame
    assert_close(audio[1, :, :samples], want["audio"][0, :, :samples])


def test_every_stream_pattern_is_covered():
    patterns = {"ramp", "one", "five", "fifteen"}
    assert {f"decode_stream_chunkcomplete_{pattern}" for pattern in patterns} <= set(STREAMS)
    assert {"decode_stream_exact_ramp", "decode_stream_exact_one"} <= set(STREAMS)


@pytest.mark.parametrize("name", STREAMS)
def test_decode_stream(codec, name):
    want = vectors(name)
    stream = DecoderStream(codec, 3, semantics=semantics_of(name))
    assert_close(stream_decode(stream, 1, want), want["audio"])
    assert stream.frames(1) == sum(want["chunk_sizes"])


@pytest.mark.parametrize("stage", [0, 3])
def test_ring_state(codec, stage):
    want = vectors("decode_stream_chunkcomplete_ramp")
    stream = DecoderStream(codec, 3, semantics="chunk_complete")
    stream_decode(stream, 2, want)
    ring, config = stream.pool.rings[stage], codec.decoder.transformers[stage]
    end = stream.frames(2) * config.tokens_per_frame
    assert end == want[f"stage{stage}.layer0.end_offset"].item()
    # The reference's ring holds `window` tokens and ours more; in both a token lies at its position
    # modulo the capacity.
    window = config.window_tokens
    positions = torch.arange(end - window, end)
    kept = ring.kv[0, 2 * ring.capacity + positions % ring.capacity]
    in_slot_order = torch.empty_like(kept)
    in_slot_order[positions % window] = kept
    keys, values = in_slot_order.permute(1, 2, 0, 3)[:, None]
    assert_close(keys, want[f"stage{stage}.layer0.ring_keys"], atol=1e-4)
    assert_close(values, want[f"stage{stage}.layer0.ring_values"], atol=1e-4)
