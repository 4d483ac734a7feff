"""Descriptions of recipes on the pages of systems."""

from __future__ import annotations

from workbench.recipe.reading import load_recipe
from workbench.recipe.recipe_listing import expected, stack
from workbench.recipe.trees import recipe_from_dict


def test_a_component_among_the_options_of_a_layer_is_no_stream() -> None:
    score_bias = {"score_bias": "buckets", "bidirectional": False}
    layers = [
        {
            "layer": "self",
            "stream": "text",
            "num_heads": 2,
            "score_bias": score_bias,
            "repeat": 3,
            "share": "score_bias",
        },
        {"layer": "cross", "stream": "target", "to": "text", "num_heads": 2, "score_bias": score_bias},
    ]
    streams = {name: {"embedding": "token", "hidden_size": 8} for name in ("text", "target")}
    sequence = {"builder": "document", "max_length": 8}
    tree = {
        "tokenizer": "a.json",
        "model": {"streams": streams, "layers": layers},
        "tasks": {"text": {"corpora": ["a"], "sequence": sequence, "objectives": [{"objective": "mlm"}]}},
        "train": {"max_steps": 1, "global_batch_size": 1, "micro_batch_size": 1, "lr": 1e-3},
    }
    assert stack(recipe_from_dict(tree)) == "3 x self(text) (share: score_bias), cross(target, text)"


def test_what_a_recipe_expects_is_all_that_it_names_of_the_prepared_data() -> None:
    assert expected(load_recipe("macbert")) == [
        "corpora/similar-words.safetensors",
        "corpora/text",
        "corpora/tokenizer.json",
    ]
    assert expected(load_recipe("ernie-baidu")) == ["corpora/linked-phrases", "corpora/tokenizer.json"]
