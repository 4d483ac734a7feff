"""The Python API: what `import workbench` offers. docs/python.md shows the jobs of the command line in Python.

Each function is a door to the module that does the work, and imports it when it is called: torch takes seconds.
Options have the names of the command line's, with `_` for `-`, and are checked alike. A run, a corpus or a recipe may
be given as what these functions return, or as a path.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from annotated_types import Ge, Le

from workbench.core.errors import WorkbenchError, unknown
from workbench.core.files.urls import HUB, local_path, url_of
from workbench.core.files.yaml_values import assignments
from workbench.core.options.arguments import checked
from workbench.core.options.bounds import Means, OutputPlace
from workbench.core.options.command import call_from_python, options_of
from workbench.core.options.path_options import path_here
from workbench.core.options.values import check
from workbench.core.packages import PREFIX, library
from workbench.corpora.corpus import Corpus
from workbench.interop.checkpoint_recipe import recipe_named
from workbench.optimization.lr_schedules import make_lr_schedule
from workbench.pretraining.task_corpora import check_corpora, check_held_out, places_named
from workbench.recipe.reading import shipped
from workbench.recipe.sizes import sizes_of
from workbench.recipe.spec import Recipe
from workbench.recipe.trees import with_overrides
from workbench.report.panels import find_panel
from workbench.report.run import Run, load_run
from workbench.runs.names import TOKENIZER
from workbench.runs.stored_run import fetched_run

if TYPE_CHECKING:
    from webdataset import WebDataset

    from workbench.keywords import Link, PrepareImageText, PrepareText, PrepareTriples
    from workbench.model_api import Model
    from workbench.sequences.batch import MicroBatch
    from workbench.text.tokenizer import Tokenizer
    from workbench.training.callbacks import Callback
    from workbench.training.verify_resume import ResumeVerdict

Place = Annotated[str | os.PathLike[str], Means("a path, or the run or corpus that a function returned")]
Overrides = Mapping[str, Any] | Sequence[str]
"""Changes to a recipe: a mapping of dotted keys to values. The command line has strings, `key=value`."""


def list_recipes() -> list[str]:
    """The names of the recipes that ship, each followed by those of its sizes.

    >>> "bert-large" in list_recipes()
    True
    """
    return [name for recipe, path in shipped().items() for name in (recipe, *(f"{recipe}-{s}" for s in sizes_of(path)))]


@checked
def load_recipe(name: Place | Recipe, overrides: Overrides = (), *, trust: bool = False) -> Recipe:
    """A recipe by its name, from a YAML file, or of a Hugging Face folder, with changes applied.

        >>> recipe = load_recipe("tiny-text", {"train.max_steps": 2, "model.layers[0].num_heads": 4})
        >>> recipe.train.max_steps
        2

    Args:
        overrides: a mapping of dotted keys to values.
        trust: whether code that lies next to the recipe may be run for the components that it names.

    Raises:
        WorkbenchError: no such recipe, an unknown key, or a value that is not allowed; says what is.
    """
    listed = assignments(overrides) if isinstance(overrides, Mapping) else list(overrides)
    if isinstance(name, Recipe):
        return with_overrides(name, listed) if listed else name
    if not os.fspath(name).startswith(HUB):
        path_here(name, "name")
    return recipe_named(os.fspath(name), listed, trust=trust)


@checked
def create_model(
    recipe: Place | Recipe,
    tokenizer: Place | Tokenizer | None = None,
    weights: Place | None = None,
    *,
    trust: bool = False,
) -> Model:
    """A model that a recipe describes, with fresh weights, or with those that it or `weights` names.

        >>> create_model("bert-tiny", "corpora/tokenizer.json")
        <Model bert-tiny: 2 x self(text); ... parameters on cpu>

    Args:
        tokenizer: a tokenizer, or its file or URL; by default the recipe's.
        weights: a run or a Hugging Face folder, here or at a URL, that the only network starts from
            (`model.init_from`).

    Raises:
        WorkbenchError: a wrong recipe, a file that it names is not there, or weights that do not fit.
    """
    from workbench.model_api import create

    given = _place(tokenizer) if isinstance(tokenizer, str | os.PathLike) else tokenizer
    return create(load_recipe(recipe, trust=trust), given, None if weights is None else _place(weights))


def _place(place: Place) -> str:
    """A place as a recipe names it, also of a path object that was built from a URL."""
    return url_of(place) or str(local_path(place))


@checked
def load(place: Place, overrides: Overrides = (), *, control: str | None = None, trust: bool = False) -> Model:
    """The model of a run, from its best checkpoint or else the last one, or of a Hugging Face folder. `hub:ORG/NAME`
    is one of the Hugging Face hub, and `package:NAME` one of an installed package.

        >>> load("runs/tiny-text").recipe.name
        'tiny-text'

    Args:
        overrides: changes to its recipe that need no training: data places, options of builders and transforms.
        control: a negative control, such as `no-kg`, under which the model is opened (of a run alone).
        trust: whether the code that the run brings along may be run.

    Raises:
        WorkbenchError: there is no such thing, it has no checkpoint, or a file that it was trained with has changed.
    """
    from workbench.interop.run_or_checkpoint import load as load_run_or_checkpoint
    from workbench.model_api import Model

    listed = assignments(overrides) if isinstance(overrides, Mapping) else list(overrides)
    path = fetched_run(os.fspath(place))
    if not path.exists() and os.fspath(place) in list_recipes():
        raise WorkbenchError(
            f"{path} is a recipe, which has no trained weights; allowed: a run, a Hugging Face folder, hub:ORG/NAME or "
            "package:NAME. "
            f"workbench.create_model({os.fspath(place)!r}) builds a model with fresh weights"
        )
    return Model(load_run_or_checkpoint(path, listed or None, control=control, trust=trust), path)


class OpenCorpus(Corpus):
    """A corpus in Python: its records are samples (dicts) by number and in order, and `batches` is what a model reads.

    It stands for its folder wherever a path is wanted.

    >>> corpus = open_corpus("corpora/text")
    >>> len(corpus), "lies in" in corpus[0]["text"], sum("river" in sample["text"] for sample in corpus)
    (120, True, 120)
    """

    def __fspath__(self) -> str:
        return self.place

    def batches(
        self, recipe: Place | Recipe, task: str | None = None, *, tokenizer: Place | None = None, trust: bool = False
    ) -> Iterator[MicroBatch]:
        """The micro-batches that a training of this recipe on this corpus alone reads, in their order.

            >>> batch = next(open_corpus("corpora/text").batches("tiny-text"))
            >>> batch.views["main"].streams["text"].fields["input_ids"].dtype
            torch.int64

        Args:
            task: one of the recipe's, where it has several.
            tokenizer: a file; by default the recipe's.

        Raises:
            WorkbenchError: there is no such task, or the corpus lacks what it reads.
        """
        from workbench.training.data import training_batches

        loaded = load_recipe(recipe, {} if tokenizer is None else {"tokenizer": tokenizer}, trust=trust)
        name = task or next(iter(loaded.tasks))
        if name not in loaded.tasks or (task is None and len(loaded.tasks) > 1):
            raise unknown("task", str(task), loaded.tasks, f"the recipe {loaded.name!r}")
        spec = replace(loaded.tasks[name], corpora={self.place: 1.0}, held_out=[])
        return training_batches(replace(loaded, tasks={name: spec}, schedule="together"))

    def webdataset(self, **options: Any) -> WebDataset:
        """The shards as a `webdataset.WebDataset`, for pipelines of that library: records as dicts of bytes.

            >>> sample = next(iter(open_corpus("corpora/text").webdataset(shardshuffle=False).decode()))
            >>> "lies in" in sample["json"]["text"]
            True

        Order, shuffling and the fetching of URLs are that library's. Checksums are not compared.

        Args:
            options: those of `webdataset.WebDataset`.
        """
        from webdataset import WebDataset

        return WebDataset([self._where(shard.name) for shard in self.shards], **options)


@checked
def open_corpus(place: Place) -> OpenCorpus:
    """A corpus at a path or a URL.

        >>> open_corpus("corpora/text")
        <OpenCorpus .../corpora/text: 120 records of kind text>

    Raises:
        WorkbenchError: there is none.
    """
    return OpenCorpus.open(os.fspath(place))


@checked
def open_run(folder: Place) -> Run:
    """A run folder: its recipe, the lines of its metrics, its evaluations.

        >>> open_run("runs/tiny-text").series("mlm/loss")
        [(2.0, ...)]

    Raises:
        WorkbenchError: it is no run.
    """
    return load_run(fetched_run(os.fspath(folder)))


@checked
def prepare(command: str, **options: Any) -> Any:
    """Run a command of `workbench prepare`; returns the corpus that it writes, or else the path or URL of its
    output.

        >>> prepare("tokenizer", corpora="corpora/text", output="tokenizer.json", vocab_size=200)
        PosixPath('tokenizer.json')

    Args:
        options: those of the command by their names, arguments included. A list of NAME=VALUE may be a mapping. The
            work is done in this process unless `workers` or `engine="ray"` says otherwise; 0 workers stand for one
            process per core.

    Raises:
        WorkbenchError: no such command or option, or as the command.
    """
    commands: Any = library("pipelines.commands.app", "text", "commands that prepare corpora").app
    function = commands.target("workbench prepare", command)
    if options.get("engine") != "ray" and any(parameter.name == "workers" for parameter in options_of(function)):
        options = {"workers": 1, **options}
    call_from_python(function, **options)
    output = options.get("output")
    if output is None:
        return None
    try:
        return open_corpus(output)
    except WorkbenchError:  # a tokenizer, vectors, a linker
        return url_of(output) or Path(output)


def prepare_text(inputs: Any, output: Place, **options: Unpack[PrepareText]) -> OpenCorpus:
    """Documents in files or in memory -> a text corpus, as `workbench prepare text`.

        >>> prepare_text("notes.txt", "corpora/notes", split={"held-out": 0.1})
        <OpenCorpus .../corpora/notes: ... records of kind text>
        >>> prepare_text([{"text": "Oslo lies in Norway.", "label": "city"}], "corpora/few")
        <OpenCorpus .../corpora/few: 1 records of kind text>

    Args:
        inputs: a file, a folder, a glob pattern, or a list of these. Or an iterable of dicts, a DataFrame or a
            `datasets.Dataset`, which are read as JSON lines are.
        options: those of the command (`workbench prepare text --help`), such as `option={"document": "file"}`.
    """
    return _corpus("text", inputs=inputs, output=output, **options)


def prepare_image_text(inputs: Any, output: Place, **options: Unpack[PrepareImageText]) -> OpenCorpus:
    """Images with captions or questions -> an image-text corpus, as `workbench prepare image-text`.

        >>> prepare_image_text("captions.jsonl", "corpora/pairs", images="photos")
        <OpenCorpus .../corpora/pairs: 40 records of kind image-text>

    Args:
        inputs: as of `prepare_text`. Records in memory are read as the rows of a table with images (`image-table`). An
            image is one of Pillow, an array of bytes [height, width, channels], a `Path`, or the bytes of a file.
    """
    return _corpus("image-text", inputs=inputs, output=output, **options)


def prepare_triples(inputs: Any, output: Place, **options: Unpack[PrepareTriples]) -> OpenCorpus:
    """A knowledge graph -> a triples corpus with the graph store in it, as `workbench prepare triples`.

        >>> prepare_triples("graph.tsv", "corpora/graph", entities="entities.jsonl")
        <OpenCorpus .../corpora/graph: 12 records of kind triples>

    Args:
        inputs: as of `prepare_text`. Records in memory are dicts or tuples of head, relation and tail, or entities.
    """
    return _corpus("triples", inputs=inputs, output=output, **options)


@checked
def link(corpus: Place, output: Place, **options: Unpack[Link]) -> OpenCorpus:
    """The corpus with the entities that its texts mention, as `workbench prepare link`.

        >>> link("corpora/text", "corpora/linked", graph="corpora/graph")[0]["spans"][0]
        [0, ...]

    Args:
        options: `graph` or `linker`, and the others of the command.
    """
    return _corpus("link", corpus=corpus, output=output, **options)


def _corpus(command: str, **options: Any) -> OpenCorpus:
    with ExitStack() as stack:
        if "inputs" in options:
            memory: Any = library("pipelines.sources.records", "text", "commands that prepare corpora")
            if not memory.is_places(options["inputs"]):
                described = any(map(options.get, ("format", "option", "images", "fetch", "on_error")))
                check = None
                if command == "image-text" and not described:
                    check = library("pipelines.readers.image_text.image_table", "web", "images in memory").check_row
                written = memory.written(command, options["inputs"], options["output"], check)
                options["inputs"] = stack.enter_context(written)
        made = prepare(command, **options)
    assert isinstance(made, OpenCorpus), f"prepare {command} wrote no corpus"
    return made


@checked
def pretrain(
    recipe: Place | Recipe,
    output: Place | None = None,
    overrides: Overrides = (),
    *,
    callbacks: Iterable[Callback] = (),
    accept_changes: bool = False,
    trust: bool = False,
) -> Run:
    """Train a recipe in a run folder. A run that was stopped resumes from its last checkpoint.

        >>> pretrain("tiny-text", "runs/tiny-text", {"train.max_steps": 2})
        <Run runs/tiny-text: step 2, 0 evaluations>

    Args:
        output: the run folder, or a URL of an object store; by default runs/<the recipe's name>.
        overrides: changes to the recipe, a mapping of dotted keys to values.
        callbacks: objects that follow the training (`workbench.Callback`).
        accept_changes: resume although data, code or frozen weights have changed; the run notes what.

    Raises:
        WorkbenchError: a wrong input, or a loss that is not finite.
        MachineError: a full disk, no memory, or a process that was lost.
        SystemExit: Ctrl-C or a signal stopped the run; it saved a checkpoint first. The same call resumes it.
    """
    named = None if output is None else check(OutputPlace, url_of(output) or os.fspath(output), "output")
    loaded, place = checked_recipe(recipe, overrides, named, trust=trust)
    from workbench.training import pretrain as training

    with places_named(loaded):
        folder = training.pretrain(loaded, place, accept_changes=accept_changes, callbacks=callbacks)
    return load_run(folder)


@checked
def verify_resume(
    recipe: Place | Recipe,
    output: Place | None = None,
    overrides: Overrides = (),
    *,
    steps: Annotated[int, Ge(2), Le(10**9)] | None = None,
    trust: bool = False,
) -> ResumeVerdict:
    """Train twice, once with a stop and a restart in the middle, and compare every loss, as `workbench verify-resume`.

        >>> verify_resume("tiny-text", "verified", steps=2).equal
        True

    Args:
        output: the folder of the two runs, which replace those of an earlier comparison.
        steps: to train; by default 6, or fewer if the recipe has fewer.

    Returns:
        `.equal`, and the values and weights that differ.

    Raises:
        WorkbenchError: as `pretrain`, or the folder has runs of its own.
    """
    named = None if output is None else path_here(output, "output")
    loaded, place = checked_recipe(recipe, overrides, named, trust=trust)
    from workbench.training import verify_resume as verify

    folder = named or Path(place).with_name(f"{loaded.name}-verify-resume")
    with places_named(loaded):
        return verify.verify_resume(loaded, folder, steps)


def checked_recipe(
    recipe: Place | Recipe, overrides: Overrides = (), run: str | Path | None = None, *, trust: bool = False
) -> tuple[Recipe, str | Path]:
    """A recipe to be trained, and its run: `run`, or by default runs/<name>. Whatever can be refused without torch is
    checked, as importing torch takes seconds: panels, corpora, the tokenizer and the warm-up."""
    loaded = load_recipe(recipe, overrides, trust=trust)
    folder = Path("runs") / (loaded.name or "run") if run is None else run
    for panel in loaded.panels:
        find_panel(panel)
    check_corpora(loaded)
    check_held_out(loaded)
    make_lr_schedule(loaded.train)
    with places_named(loaded):
        _check_tokenizer(loaded.tokenizer, folder)
    return loaded, folder


def _check_tokenizer(place: str | None, run: str | Path) -> None:
    """Refuse a tokenizer that is not there, unless the run may have a copy."""
    if place is None or url_of(place) or place.startswith(PREFIX) or Path(place).exists():
        return
    if not url_of(run) and not Path(run, TOKENIZER).is_file():
        from workbench.text.tokenizer import Tokenizer

        Tokenizer.load(place)
