"""Contracts of the embeddings, on four rows of each of three sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.contracts.case_finder import case_of, make, over
from tests.contracts.material import GRID, embedded_fields, travelled
from workbench.models.initialisation import initialise


def embed(name: str, **more: Tensor) -> tuple[nn.Module, dict[str, Tensor], Tensor]:
    """The embedding, evaluating; fields of three sequences of equal length; what it makes of them."""
    embedding: nn.Module = make("embedding", name).eval()
    fields = {**embedded_fields(case_of("embedding", name).content), **more}
    return embedding, fields, embedding(fields)


@over("embedding")
def test_each_sequence_is_embedded_by_itself(name: str) -> None:
    embedding, fields, together = embed(name)
    assert together.shape == (3 * GRID * GRID, embedding.hidden_size)
    assert together.isfinite().all()
    for i in range(3):
        alone = embedding({field: value.chunk(3)[i] for field, value in fields.items()})
        torch.testing.assert_close(alone, together.chunk(3)[i], atol=1e-5, rtol=1e-5)


@over("embedding", "no rows")
def test_a_stream_without_rows(name: str) -> None:
    embedding, fields, _ = embed(name)
    assert embedding({field: value[:0] for field, value in fields.items()}).shape == (0, embedding.hidden_size)


@over("embedding", "gradients")
def test_trainable_parameters_get_finite_gradients(name: str) -> None:
    embedding, fields, _ = embed(name)
    masked = torch.arange(3 * GRID * GRID) % 5 == 1
    out = embedding.train()({**fields, "masked": masked})
    (out * torch.randn(out.shape)).sum().backward()
    for parameter_name, parameter in embedding.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.isfinite().all(), parameter_name
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in embedding.parameters())


@over("embedding")
def test_excuses_of_embeddings_are_true(name: str) -> None:
    embedding, excused = make("embedding", name), case_of("embedding", name).excused
    learned = [p.requires_grad for p in embedding.parameters()]
    assert ("gradients" in excused) == (not any(learned))
    assert ("frozen" in excused) == (all(learned) and not list(embedding.buffers()))


@over("embedding", "masked")
def test_masked_rows_do_not_know_their_content(name: str) -> None:
    masked = torch.arange(3 * GRID * GRID) >= 2 * GRID * GRID
    embedding, fields, hidden = embed(name, masked=masked)
    content = case_of("embedding", name).content
    changed = fields[content].clone()
    changed[2 * len(changed) // 3 :] = 7
    torch.testing.assert_close(embedding({**fields, content: changed})[masked], hidden[masked])
    shown = embedding({field: value for field, value in fields.items() if field != "masked"})
    torch.testing.assert_close(shown[~masked], hidden[~masked])
    assert not torch.isclose(shown[masked], hidden[masked]).all(1).any()


@over("embedding", "frozen")
def test_what_is_frozen_stays(name: str) -> None:
    embedding, fields, _ = embed(name)
    learned = {n: p for n, p in embedding.named_parameters() if p.requires_grad}
    everything = {**dict(embedding.named_parameters()), **dict(embedding.named_buffers())}
    frozen = {n: t.clone() for n, t in everything.items() if n not in learned}
    assert frozen
    initialise(embedding, 0.5)
    out = embedding.train()(fields)
    if learned:
        out.square().sum().backward()
        torch.optim.SGD(learned.values(), 0.1).step()
    assert all(torch.equal(t, everything[n]) for n, t in frozen.items())


@over("embedding")
def test_embeddings_are_saved_and_loaded(name: str) -> None:
    embedding, fields, wanted = embed(name)
    assert torch.equal(travelled(embedding)(fields), wanted)
    other = make("embedding", name).eval()
    for tensor in other.state_dict().values():
        tensor.zero_()
    other.load_state_dict(embedding.state_dict())
    assert torch.equal(other(fields), wanted)
