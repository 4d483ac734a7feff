"""A model in Python: `workbench.load` and `workbench.create_model` return it, and its methods are the commands that use
a trained model (encode, generate, export) and what those commands have no place for.

Inputs are texts, images (a path, bytes, a PIL image), pairs (a tuple of both, or of two texts) and samples of a corpus,
one or a list of them. A string is a text, except where a method wants images alone.
Vectors come as float32 arrays of numpy.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from torch import cat, device, inference_mode

from workbench.components.trust import allow
from workbench.core.errors import WorkbenchError, unknown
from workbench.core.options.arguments import checked
from workbench.core.options.bounds import Count, Name, NotNegative, Question
from workbench.core.options.path_options import path_here
from workbench.core.options.values import check
from workbench.core.packages import library
from workbench.evaluation.analysis.encoding import AttentionMap, Encoder, TokenStates
from workbench.evaluation.analysis.generation import Generator
from workbench.evaluation.cloze import Guess, fill_masks
from workbench.evaluation.scoring.evaluated_run import find_objective
from workbench.evaluation.scoring.inputs import batches_of, captioned, images_of, is_one, one_kind, samples_of, texts_of
from workbench.evaluation.scoring.prediction import graph_of, linked, predictions
from workbench.generation.decoding import Decoding
from workbench.interop.checkpoint_files import Also, check_checkpoint_folder, family_of
from workbench.interop.checkpoint_writer import export
from workbench.interop.init_from import initialise
from workbench.objectives.mlm import Mlm
from workbench.parallel.sharded_table import count_parameters
from workbench.pretraining.assembly import make_model, tasks_of
from workbench.pretraining.forward import NetworkOutput, read
from workbench.pretraining.model import PretrainingModel
from workbench.pretraining.segmentation import cut_by
from workbench.pretraining.task import Task
from workbench.pretraining.task_corpora import learning_signals
from workbench.recipe.recipe_listing import stack
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import with_overrides
from workbench.runs.loaded_run import LoadedRun
from workbench.runs.names import is_run
from workbench.sequences.batch import Batch, collate
from workbench.sequences.sequence import Sample, Sequence
from workbench.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from workbench.keywords import Decode, Predict


class Model:
    """A model with its tokenizer, its recipe and its transforms, in evaluation mode.

    Attributes:
        torch: the module, with all networks and heads; train it, move it or look into it as any other.
        tokenizer: None where the model reads no text.
        recipe: what it was built from.
        tasks: by name the half of a task in the loader: `tasks[name].micro_batch(samples, number)`, or
            `.sequences(samples)` for sequences without objectives.
    """

    def __init__(self, loaded: LoadedRun, place: str | Path) -> None:
        self._loaded, self.place = loaded, Path(place)

    def __repr__(self) -> str:
        count = count_parameters(self.torch)
        return f"<Model {self.recipe.name}: {stack(self.recipe)}; {count:,} parameters on {self._device}>"

    @property
    def torch(self) -> PretrainingModel:
        return self._loaded.model

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self._loaded.tokenizer

    @property
    def recipe(self) -> Recipe:
        return self._loaded.recipe

    @property
    def tasks(self) -> dict[str, Task]:
        return self._loaded.tasks

    @property
    def data_identities(self) -> dict[str, dict[str, str]]:
        """The identity of the files that were opened for it: the tokenizer, graphs, vectors."""
        return self._loaded.data_identities

    @property
    def _device(self) -> device:
        return next(self.torch.parameters()).device

    @checked
    def to(self, place: str | device) -> Model:
        """The same model, moved to a device: `model.to("cuda")`."""
        self.torch.to(place)
        return self

    @checked
    def encode(
        self,
        inputs: Any,
        pool: Name | None = None,
        *,
        stream: Name | None = None,
        network: Name | None = None,
        batch_size: Count = 64,
    ) -> np.ndarray:
        """A vector of each input [inputs, size].

            >>> model.encode(["Oslo is a city", "a river"], pool="summary").shape
            (2, 32)

        Args:
            inputs: texts, images, or pairs, which are read together.
            pool: `mean` of the rows, the `summary` row ([CLS]; the last one of a text that is read from left to right),
                the `pooled` output, or an objective with vectors of its own (`itc`). By default such an objective: its
                vectors of texts and images can be compared, and rank as `similarity` does. Else, and for pairs, `mean`.
            stream: whose rows are pooled; by default the image's where images are given alone, else the text's.

        Raises:
            WorkbenchError: the model has no such stream, pooling or network, or several objectives with vectors and
                none is named; or an input has no token
                (an empty text has its special tokens).
        """
        samples = one_kind(samples_of(inputs))
        texts = all("text" in sample and not {"second", "image"} & sample.keys() for sample in samples)
        images = all("image" in sample and not any(sample.get("captions", ())) for sample in samples)
        loaded = self._reading(any("image" in sample for sample in samples), network)
        together = not (texts or images)
        pool = "mean" if together and pool is None else pool
        encoder = Encoder(loaded, stream or ("image" if images else "text"), pool, network)
        keys, vectors = encoder(batches_of(samples, batch_size), built=not texts, alone=not together)
        if len(keys) != len(samples):
            lost = next(number for number, sample in enumerate(samples) if sample["key"] not in keys)
            raise WorkbenchError(f"input {lost} is empty; leave it out")
        return vectors.numpy()

    def _reading(self, images: bool, network: str | None) -> LoadedRun:
        """The model with the tasks that read images, or with all.

        Raises:
            WorkbenchError: it reads none.
        """
        streams = self.torch.network(self.torch.network_name(network)).sizes
        if images and "image" not in streams:
            raise WorkbenchError(f"the model reads no images, but {', '.join(streams)}; take a vision-language model")
        tasks = {name: task for name, task in self.tasks.items() if hasattr(task.builder, "image") or not images}
        if not tasks:
            raise WorkbenchError(f"{self.place} was opened to read texts; {self._family_model}")
        return replace(self._loaded, tasks=tasks)

    @property
    def _family_model(self) -> str:
        """What to do with a Hugging Face checkpoint of images, whose texts alone `load` reads; nothing for a run."""
        if is_run(self.place) or not self.place.exists():
            return "take another model"
        return f"workbench.create_model({str(self.place)!r}) opens it as its family is pretrained"

    @checked
    def states(self, texts: Any, *, network: Name | None = None, batch_size: Count = 64) -> list[TokenStates]:
        """The tokens of each text with their vectors, and the characters that each token stands for.

            >>> found = model.states("a river")[0]
            >>> [text for text, (start, end) in zip(found.tokens, found.spans) if start >= 0]
            ['a', 'river']

        Raises:
            WorkbenchError: the model reads no text, or a sample has none. An empty text has its special tokens alone.
        """
        samples = samples_of(texts)
        return list(Encoder(self._loaded, "text", network_name=network).states(batches_of(samples, batch_size)))

    @checked
    def fill_mask(self, texts: Any, k: Count = 5, *, task: Name | None = None) -> list[Any]:
        """The `k` most probable tokens (`Guess`) at each mask of a text, which spells the tokenizer's mask token.

        One text returns a list of guesses for each mask; a list of texts returns such a list for each text.

            >>> model.fill_mask("Oslo lies in [MASK].", k=1)
            [[Guess(token='...', probability=0..., id=...)]]

        Args:
            task: the task that reads the texts, where several mask words.

        Raises:
            WorkbenchError: the model has no objective `mlm`, or several, or the text has no mask.
        """
        wanted = "take a model that was pretrained with it; a model of next tokens has `generate`"
        run = find_objective(self._loaded, self.place, Mlm, wanted, task=task)
        found: list[list[list[Guess]]] = [fill_masks(run, sample, k) for sample in texts_of(texts)]
        return found[0] if is_one(texts) else found

    @checked
    def generate(
        self,
        prompts: Any,
        *,
        network: Name | None = None,
        stream: Name | None = None,
        objective: Name | None = None,
        batch_size: Count = 16,
        **decoding: Unpack[Decode],
    ) -> list[str]:
        """The text that follows each prompt, or what the model writes of it (a translation, a caption).

            >>> model.generate("Oslo lies", max_new_tokens=2)
            ['...']

        Args:
            prompts: texts, or images to be captioned.
            decoding: the options of `workbench generate`: max_new_tokens, beams, sample, temperature, top_k, top_p,
                seed, length_penalty, early_stopping.

        Raises:
            WorkbenchError: no objective predicts tokens one after another, or a prompt is too long. An empty prompt is
                continued from the start token.
        """
        how = check(Decoding, decoding, "")
        generator = Generator(self._loaded, how, network, stream, objective)
        return [
            generator.spelling.text(made.tokens)
            for group in batches_of(samples_of(prompts), batch_size)
            for made in generator(group)
        ]

    @checked
    def predict(self, inputs: Any, task: Name | None = None, **options: Unpack[Predict]) -> Any:
        """What a fine-tuned head says of inputs without right answers: as `workbench predict`.

            >>> model.predict("Oslo is a city")
            {'key': '1', 'prediction': ..., 'probabilities': {...}}

        Args:
            inputs: texts, images, pairs, samples (such as `{"text": ..., "second": ...}`) or a corpus.
            task: the downstream task; by default the one that the model was fine-tuned for.
            options: those of `workbench predict TASK`, such as `question`, `linker`, `batch_size`.

        Returns:
            A dict for each item, with its `key`, the `prediction`, and how probable it is. One for one input, a list
            for several.

        Raises:
            WorkbenchError: the model has no head for the task, or an input lacks what is asked about.
        """
        lines = predictions(self._loaded, self.place, self._device, inputs, task, options)
        return lines[0] if is_one(inputs) and len(lines) == 1 else lines

    @checked
    def similarity(
        self, texts: Any, images: Any, *, objective: Name | None = None, batch_size: Count = 64
    ) -> np.ndarray:
        """How well each text fits each image [texts, images]; the higher, the better.

        A model with vectors of both (CLIP's `itc`) returns their products, which are cosines. A model that matches
        pairs (`itm`) reads every pair and returns its score.

            >>> model.similarity(["a red circle", "a blue square"], ["photos/000.png"]).shape
            (2, 1)

        Args:
            objective: the name of the one that compares, where several do.

        Raises:
            WorkbenchError: no objective compares texts with images.
        """
        texts, images = texts_of(texts, pairs=False), images_of(images)
        heads: dict[str, Any] = dict(self.torch.heads.items())
        apart = [name for name, head in heads.items() if hasattr(head, "vectors")]
        name = self._comparing([*apart, *(n for n, head in heads.items() if hasattr(head, "match"))], objective)
        if name in apart:
            streams = heads[name].streams
            sides = ((texts, streams["text"]), (images, streams["image"]))
            found = [self.encode(each, name, stream=stream, batch_size=batch_size) for each, stream in sides]
            if found[1].ndim == 2:
                return np.asarray(found[0] @ found[1].T)
            return np.asarray(np.einsum("td,iqd->tiq", *found).max(2))  # several vectors of an image: the best counts
        return self._matched(name, heads[name], texts, images, batch_size)

    def _comparing(self, names: list[str], objective: str | None) -> str:
        """
        Raises:
            WorkbenchError: none compares, or not the one that is named.
        """
        if not names:
            raise WorkbenchError(
                "no objective of this model compares texts with images, as itc, itm and fine-tuning on retrieval do; "
                f"{self._family_model}"
            )
        if objective is not None and objective not in names:
            raise unknown("objective", objective, names, "those that compare texts with images")
        return objective or names[0]

    @inference_mode()
    def _matched(self, name: str, head: Any, texts: list[Sample], images: list[Sample], size: int) -> np.ndarray:
        """The scores of a head that reads pairs [texts, images]."""
        task, network = self._placed(name)
        pairs = samples_of([{**image, "captions": [text["text"]]} for text in texts for image in images])
        scores = [
            head.match(found.network, found.states, found.batch).float().cpu()
            for group in batches_of(pairs, size)
            for found in [self._read(task.sequences(group), network)]
        ]
        return cat(scores).reshape(len(texts), len(images)).numpy()

    def _placed(self, name: str) -> tuple[Task, str]:
        """The task of an objective in evaluation mode, and the network that its head reads."""
        each = ((task, placed) for task in self.tasks.values() for placed in task.objectives)
        task, placed = next((task, placed) for task, placed in each if placed.name == name)
        return task.evaluating(), placed.network

    @inference_mode()
    def _read(self, sequences: list[Sequence], network: str, **kept: Any) -> NetworkOutput:
        return read(self.torch.network(network), collate(sequences).to(self._device), **kept)

    @checked
    def attention(
        self, text: Question | Sample, image: Any = None, *, network: Name | None = None
    ) -> list[AttentionMap]:
        """The weights of every attention call, from the first layer to the last.

            >>> first = model.attention("a river")[0]
            >>> first.queries, first.weights.shape
            (['[CLS]', 'a', 'river', '[SEP]'], (2, 4, 4))

        Args:
            image: read with the text, by a model that reads images.

        Raises:
            WorkbenchError: the text is longer than one sequence, or the model reads no images.
        """
        encoder = Encoder(self._reading(image is not None, network), "text", network_name=network)
        (sample,) = texts_of(text) if image is not None else samples_of(text)
        samples = [sample] if image is None else samples_of({**sample, **captioned(image, sample["text"])})
        sequences = encoder.sequences(samples, built=image is not None)
        if len(sequences) != 1:
            raise WorkbenchError(f"the text takes {len(sequences)} sequences; give a shorter one, which fits into one")
        found = self._read(sequences, self.torch.network_name(network), keep_attention=True)
        names = self._row_names(sequences[0], found.batch)
        return [
            AttentionMap(
                call.layer,
                [row for name in call.queries for row in names[name]],
                [row for name in call.keys for row in names[name]],
                call.weights[0].float().cpu().numpy(),
            )
            for call in found.attention
        ]

    def _row_names(self, sequence: Sequence, batch: Batch) -> dict[str, list[str]]:
        """What the rows of each stream stand for."""
        names: dict[str, list[str]] = {}
        for stream, rows in batch.streams.items():
            ids = sequence.streams[stream].get("input_ids") if stream in sequence.streams else None
            if self.tokenizer is not None and ids is not None and len(ids) == rows.rows:
                names[stream] = self.tokenizer.tokens(ids)
            else:
                names[stream] = [f"{stream} {row}" for row in range(rows.rows)]
        return names

    @checked
    def link(self, texts: Any, linker: Any = None, *, min_score: NotNegative = 0.0) -> list[Sample]:
        """The texts with the entities that they mention, as samples: `spans` are (start, end, entity, score).

        A model that reads a graph takes these samples in place of texts.

            >>> model.link("Oslo lies by a river")[0]["spans"]
            [[0, 4, 'oslo', ...]]

        Args:
            linker: the folder of `workbench prepare linker`, or of a graph; by default the graph that the model reads.
            min_score: the least score of a link.

        Raises:
            WorkbenchError: there is no such linker or graph, or none is given and the model reads no graph.
        """
        linking = library("kg.linking.linker", "kg", "links of entities")
        place = linker if linker is not None else graph_of(self.recipe)
        if isinstance(place, str | Path):
            place = linking.open_linker(place)
        samples = [linked(sample, place, min_score) for sample in texts_of(texts)]
        return [{name: value for name, value in sample.items() if name != "draw"} for sample in samples]

    @checked
    def export(
        self,
        folder: str | Path,
        family: str,
        *,
        network: Name | None = None,
        stream: Name | None = None,
        objective: Name | None = None,
        also: Also | list[Also] | None = None,
        int8: bool = False,
        pool: Name | None = None,
        trust: bool = False,
    ) -> Path:
        """Write a network as a Hugging Face folder of a checkpoint family; returns the folder.

            >>> sorted(file.name for file in model.export("exported", "bert").iterdir())
            ['README.md', 'config.json', 'model.safetensors', ..., 'tokenizer.json', 'tokenizer_config.json']

        Args:
            network, stream, objective, also, int8, pool: as the options of `workbench export`.

        Raises:
            WorkbenchError: the family cannot express the network (the message lists what differs), or the folder is the
                source, or has files that no export wrote or the export of another run.
        """
        folder, family = path_here(folder, "folder"), family_of(family)
        check_checkpoint_folder(folder, self.place)
        allow([family], Path.cwd(), f"the family {family!r}", trust=trust)
        own = replace(self._loaded, model=copy.deepcopy(self.torch))  # adapters are merged into what is written alone
        which = {"network": network, "stream": stream, "objective": objective}
        libraries = [also] if isinstance(also, str) else also or ()
        export(own, folder, family, **which, also=libraries, int8=int8, pool=pool, place=self.place)
        return folder


def create(recipe: Recipe, tokenizer: str | Path | Tokenizer | None, weights: str | Path | None) -> Model:
    """As `workbench.create_model`, from a recipe that is read."""
    if weights is not None:
        names = list(recipe.networks)
        if len(names) > 1:
            raise WorkbenchError(
                f"the recipe has the networks {', '.join(names)}; say in it which one starts from {weights}: "
                f"model.{names[0]}.init_from"
            )
        recipe = with_overrides(recipe, [f"model.init_from={weights}"])
    if tokenizer is None and recipe.tokenizer is not None:
        tokenizer = recipe.tokenizer
    if isinstance(tokenizer, str | Path):
        tokenizer = Tokenizer.load(tokenizer)
    tokenizer = None if tokenizer is None else cut_by(recipe, tokenizer)
    tasks = tasks_of(recipe, tokenizer)
    root = make_model(recipe, tasks, tokenizer)
    for name, spec in recipe.networks.items():
        initialise(root, name, spec, tokenizer, learning_signals(recipe, name))
    root.start_followers()
    return Model(LoadedRun(root.eval(), tokenizer, recipe, tasks), recipe.name)
