"""The sub-commands of `workbench prepare`."""

from __future__ import annotations

import logging
import os

import typer

from pipelines.commands.answers import answers
from pipelines.commands.clip_tokens import clip_tokens
from pipelines.commands.clip_vocabulary import clip_vocabulary
from pipelines.commands.clips import clips
from pipelines.commands.corpus import corpus
from pipelines.commands.entity_vectors import entity_vectors
from pipelines.commands.entity_vocabulary import entity_vocabulary
from pipelines.commands.facts import facts
from pipelines.commands.graphs import graph
from pipelines.commands.image_text import image_text
from pipelines.commands.import_regions import import_regions
from pipelines.commands.join import join
from pipelines.commands.joint_vectors import joint_vectors
from pipelines.commands.link import link
from pipelines.commands.linker import linker
from pipelines.commands.parses import parses
from pipelines.commands.phrases import phrases
from pipelines.commands.regions import regions
from pipelines.commands.sentiment import sentiment
from pipelines.commands.sentiment_lexicon import sentiment_lexicon
from pipelines.commands.similar_words import similar_words
from pipelines.commands.speech_text import speech_text
from pipelines.commands.supersenses import supersenses
from pipelines.commands.text import text
from pipelines.commands.token_counts import token_counts
from pipelines.commands.tokenizer import tokenizer
from pipelines.commands.triples import triples
from pipelines.commands.vectors import vectors
from pipelines.commands.video_text import video_text
from pipelines.commands.word_pairs import word_pairs
from workbench.options.command import command

app = typer.Typer(
    name="prepare",
    help="Turn raw text, images, films, speech or triples into a corpus; link entities, extract features, tokenizers.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


@app.callback()
def tell() -> None:
    """Commands say what they made, unless the environment's WORKBENCH_LOG chooses what is said."""
    if "WORKBENCH_LOG" not in os.environ:
        logging.getLogger("pipelines").setLevel(logging.INFO)


for function in (
    text,
    image_text,
    corpus,
    video_text,
    speech_text,
    triples,
    tokenizer,
    graph,
    vectors,
    joint_vectors,
    entity_vectors,
    entity_vocabulary,
    linker,
    link,
    facts,
    regions,
    import_regions,
    join,
    clips,
    clip_vocabulary,
    clip_tokens,
    similar_words,
    token_counts,
    phrases,
    parses,
    supersenses,
    word_pairs,
    sentiment_lexicon,
    sentiment,
    answers,
):
    app.command()(command(function))
