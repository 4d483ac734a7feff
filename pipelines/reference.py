"""The generated reference pages of the documentation: `python -m pipelines.reference docs` writes them (`make pages`).

components/    a page a kind of component, and an index
downstream/    the downstream tasks, a page a family, and an index with the options that all of them have
systems/       the shipped recipes, a page a family, an index, and what each text system makes of one text
formats/       the raw formats, a page a kind, and an index
samples.md     the fields of samples
api/           the Python API and the base classes of components
gallery.md     drawings of stacks, figures of results, a report

It also writes the types of keywords (`pipelines.keyword_types`) next to docs/.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from pipelines import api_pages
from pipelines.keyword_types import FILE, keyword_types
from pipelines.readers.catalogue import KINDS as RAW_KINDS
from pipelines.readers.catalogue import format_entries, region_listed
from workbench.cli import batch_page
from workbench.components.build_context import ALL_KINDS, BUILD_ARGUMENTS
from workbench.components.component_listing import ComponentOption, component_entries, kind_line
from workbench.components.kinds import KINDS
from workbench.corpora.schema.field_values import Stretches, Value
from workbench.corpora.schema.members import IN_JSON
from workbench.corpora.schema.schema import FIELDS, READING, SCHEMA, SchemaField
from workbench.corpora.schema.schema import KINDS as CORPUS_KINDS
from workbench.evaluation import task_listing as downstream
from workbench.evaluation.options import Scoring, Tuning
from workbench.recipe.reading import shipped
from workbench.recipe.recipe_listing import LAST, expected, families, stack
from workbench.recipe.sizes import sizes_of
from workbench.recipe.spec import Paper, Recipe, Reported, TaskSpec
from workbench.recipe.stacks import IMAGES, VIDEOS, drawn, shown, write_stacks

Lines = Iterator[str]
Pages = Iterator[tuple[str, Iterable[str]]]
"""The path of each page beneath docs/, and its lines."""

FOLDERS = ("components", "downstream", "systems", "formats", "api")
"""Folders that hold generated pages only."""

WRITTEN = "`make pages` writes this page from the code."
EXTENDING = "[Extending](../extending/README.md)"


def pages(docs: Path) -> dict[str, str]:
    """The text of each generated page, by its path beneath docs/.

    Args:
        docs: the documentation; the index of systems links to its pages of results.
    """
    sources: list[Callable[[], Pages]] = [
        components,
        tasks,
        lambda: systems(docs),
        formats,
        samples,
        gallery,
        lambda: api_pages.pages(WRITTEN),
    ]
    return {path: "\n".join(lines) + "\n" for source in sources for path, lines in source()}


def write_pages(docs: Path) -> None:
    """Write all generated pages and drawings; delete pages of their folders that are no longer generated."""
    texts = pages(docs)
    for folder in FOLDERS:
        for path in (docs / folder).glob("*.md"):
            if f"{folder}/{path.name}" not in texts:
                path.unlink()
    for name, text in texts.items():
        (docs / name).parent.mkdir(exist_ok=True)
        (docs / name).write_text(text, "utf-8")
    write_stacks(docs)
    (docs.parent / FILE).write_text(keyword_types(), "utf-8")


def components() -> Pages:
    """docs/components/: every component that a recipe can name."""
    shown = {kind: component_entries(kind) for kind in sorted(KINDS)}
    index = [
        "# Components",
        "",
        f"A recipe names components ([recipes.md](../recipes.md)). {WRITTEN}",
        f"`workbench components KIND` prints the same list. {EXTENDING} shows how to write a component.",
        "",
        *table(
            ("kind", "number", "what it is"),
            ((f"[`{kind}`]({kind}.md)", str(len(found)), KINDS[kind].meaning) for kind, found in shown.items()),
        ),
        "",
        "## Arguments that the workbench fills in",
        "",
        "A component can have an argument of one of these names. The workbench fills it in where the recipe does not",
        "state it:",
        "",
        *(
            f"- `{name}`: {given.meaning}"
            + ("" if given.kinds == ALL_KINDS else f" (of each {', '.join(given.kinds)})")
            for name, given in BUILD_ARGUMENTS.items()
        ),
    ]
    yield "components/README.md", index
    for kind, found in shown.items():
        rows = ((f"[`{part.name}`](#{_anchor(part.name)})", first_sentence(part.line)) for part in found)
        page = [
            f"# Components: {kind}",
            "",
            f"{KINDS[kind].meaning} Base class: {kind_line(kind)}. {WRITTEN}",
            "",
            *table((kind, "what it is"), rows),
        ]
        for part in found:
            given = f" Filled in: {', '.join(f'`{name}`' for name in part.given)}." if part.given else ""
            controls = f" Controls: {', '.join(f'`{name}`' for name in part.controls)}." if part.controls else ""
            page += ["", f"## `{part.name}`", "", f"{part.line}{given}{controls}", *options_table(part.options)]
        yield f"components/{kind}.md", page


def tasks() -> Pages:
    """docs/downstream/: what a pretrained run can be fine-tuned for and measured by."""
    found: dict[str, list[downstream.TaskEntry]] = {}
    for task in downstream.tasks():
        found.setdefault(task.family, []).append(task)
    index = [
        "# Downstream tasks",
        "",
        f"A pretrained run is fine-tuned for these tasks and measured by them. {WRITTEN}",
        "`workbench downstream TASK` prints a task. Items, intervals and comparisons are the same for all tasks",
        f"([comparing.md](../comparing.md)). {EXTENDING} shows how to write a task.",
    ]
    for family, listed_tasks in found.items():
        rows = ((f"[`{task.name}`]({family}.md#{task.name})", task.line) for task in listed_tasks)
        index += ["", f"## {_title(family)}", "", *table(("task", "what it measures"), rows)]
    for verb, kind in (("finetune", Tuning), ("evaluate", Scoring)):
        index += ["", f"## Options of `{verb}`", "", f"Every `workbench {verb} TASK` has these options:"]
        index += _command_options(downstream.options_of_command(kind))
    yield "downstream/README.md", index
    for family, listed_tasks in found.items():
        page = [f"# Downstream tasks: {_title(family)}", "", f"{WRITTEN} [All tasks](README.md)."]
        for task in listed_tasks:
            page += ["", f"## {task.name}", "", task.line]
            for command in task.commands:
                page += ["", f"### workbench {command.verb} {task.name}", ""]
                page += (f"    {line.strip()}" if line.startswith("  ") else line for line in command.text.splitlines())
                page += _command_options(command.options)
        yield f"downstream/{family}.md", page


ABSENT = "These systems of the surveys have no recipe. Some need nothing more, the others what is named."
NEAREST = (
    ("KELM", "`comet`, the builder `text_to_text`", "pairs of triples and the sentences that state them"),
    (
        "ZEN",
        "`bert-wwm`, `ernie-baidu`",
        "a stream of a lexicon's n-grams in the text, and a layer that adds their states to those of their characters",
    ),
    ("RETRO", "`evaluate perplexity --memory`, `kg.triple_prompt`", "layers that read retrieved texts"),
    ("AdapterFusion", "adapters of other runs (`--adapters`)", "attention over the outputs of several adapters"),
    ("Q-BERT", "`q8bert`", "bits of a layer by its Hessian"),
)


def systems(docs: Path) -> Pages:
    """docs/systems/: the shipped recipes."""
    index = [
        "# Systems",
        "",
        f"Each system is a recipe that comes with the workbench. {WRITTEN}",
        "`workbench pretrain RECIPE` trains a system, also in its tiny size. [recipes.md](../recipes.md) explains the",
        "keys of a recipe, and [components](../components/README.md) lists what it can name.",
        "[batches.md](batches.md) shows what each text system makes of one text.",
        "",
        "Stacks are read from left to right: `12 x self(text)` stands for twelve layers over the stream `text`.",
    ]
    results = {path: path.read_text("utf-8") for path in sorted((docs / "results").glob("*.md"))}
    for family, recipes in families().items():
        if family not in LAST:
            rows = (_system_row(family, recipe, results) for recipe in recipes)
            columns = ("system", "paper", "stack", "tiny recipe", "measured in")
            index += ["", f"## {_title(family)}", "", *table(columns, rows)]
    own = ((f"[`{r.name}`]({family}.md#{r.name})", r.description) for family in LAST for r in families()[family])
    index += ["", "## Small recipes of the workbench", "", *table(("recipe", "what it trains"), own)]
    index += ["", "## Without a recipe", "", ABSENT, "", *table(("system", "nearest", "what is missing"), NEAREST)]
    yield "systems/README.md", index
    for family, recipes in families().items():
        page = [f"# Systems: {_title(family)}", "", f"{WRITTEN} [All systems](README.md)."]
        for recipe in recipes:
            page += _system(recipe)
        yield f"systems/{family}.md", page
    yield "systems/batches.md", batch_page.page().splitlines()


def _system_row(family: str, recipe: Recipe, results: dict[Path, str]) -> Sequence[str]:
    sizes = sizes_of(shipped()[recipe.name])
    named = re.compile(rf"(?:`|\| ){re.escape(recipe.name)}(?:-(?:{'|'.join(sizes)}))?(?:`| )")
    measured = (f"[{path.stem}](../results/{path.name})" for path, text in results.items() if named.search(text))
    return (
        f"[`{recipe.name}`]({family}.md#{recipe.name})",
        _cited(recipe.paper) if recipe.paper else "",
        stack(recipe),
        f"`{recipe.name}-tiny`" if "tiny" in sizes else "",
        ", ".join(measured),
    )


def _system(recipe: Recipe) -> Lines:
    yield from ("", f"## `{recipe.name}`", "", recipe.description, "")
    yield f"- stack: {stack(recipe)}"
    sizes = sizes_of(shipped()[recipe.name])
    if sizes:
        yield f"- sizes: {', '.join(f'`{recipe.name}-{size}`' for size in sizes)}"
    yield from (f"- task `{name}`: {_trained(task)}" for name, task in recipe.tasks.items())
    yield f"- reads: {', '.join(f'`{place}`' for place in expected(recipe))}"
    yield f"- paper: {_cited(recipe.paper) if recipe.paper else 'none; it is a recipe of the workbench'}"
    if recipe.paper and recipe.paper.not_stated:
        yield f"- not stated in the paper: {'; '.join(recipe.paper.not_stated)}"
    yield from _reported(recipe.reported)


def _trained(task: TaskSpec) -> str:
    builder = task.sequence.builder
    names = [builder if isinstance(builder, str) else builder["builder"]]
    names += [spec["objective"] for spec in task.objectives]
    first, *others = (f"`{name}`" for name in names)
    return f"builder {first}; objectives {', '.join(others)}"


def _cited(paper: Paper) -> str:
    return f"[{paper.title}]({paper.url})" if paper.url else paper.title


def _reported(figures: list[Reported]) -> Lines:
    """The figures by source, each with its data set, its model size and its note."""
    for source in dict.fromkeys(figure.source for figure in figures):
        numbers = []
        for figure in (figure for figure in figures if figure.source == source):
            about = ", ".join(filter(None, (figure.data, figure.note)))
            numbers.append(f"{figure.metric} {figure.value:g}" + (f" ({about})" if about else ""))
        yield f"- reported ({source}): {'; '.join(numbers)}"


def formats() -> Pages:
    """docs/formats/: what `prepare` reads."""
    found = {kind: format_entries(kind) for kind in RAW_KINDS} | {"regions": region_listed()}
    index = [
        "# Raw formats",
        "",
        f"`workbench prepare KIND` reads these formats. {WRITTEN}",
        "The format of a file is detected from its content and its suffix; `--format` names it. Each file of a folder",
        "is read in its own format. Files of no known format are listed at the end, and in corpus.json",
        "(`passed_over`). `--option NAME=VALUE` sets an option. Files may be compressed (.gz, .bz2, .xz, .zst), except",
        "Parquet and Arrow. `workbench prepare import-regions` reads precomputed region features (`regions`).",
        f"{EXTENDING} shows how to write a reader.",
    ]
    for kind, own in found.items():
        rows = ((f"[`{o.name}`]({kind}.md#{o.name})", o.line, " ".join(o.suffixes)) for o in own)
        index += ["", f"## [{kind}]({kind}.md)", "", *table(("format", "reads", "suffixes"), rows)]
    yield "formats/README.md", index
    for kind, own in found.items():
        page = [f"# Raw formats: {kind}", "", f"{WRITTEN} [All formats](README.md)."]
        for one in own:
            page += ["", f"## {one.name}", "", one.line, "", *one.text.splitlines(), *options_table(one.options)]
        yield f"formats/{kind}.md", page


def gallery() -> Pages:
    """docs/gallery.md: what a visitor wants to see first."""
    page = [
        "# Gallery",
        "",
        f"This page shows figures, a report, and stacks of systems. {WRITTEN}",
        "",
        "## Figures of results",
        "",
        "![Facts recalled with the graph, without it and with a shuffled one](figures/demo.svg)",
        "",
        "[What the demo shows](results/demo.md), with all numbers and controls.",
        "",
        "## A report",
        "",
        "`workbench report RUN...` writes one HTML file that needs nothing else. [This one](figures/report.html) is of",
        "the K-BERT of the [quickstart](quickstart.md), which reads a graph.",
    ]
    for title, place in (("Images", IMAGES), ("Videos and speech", VIDEOS)):
        page += [
            "",
            f"## {title}",
            "",
            "`workbench recipes --draw RECIPE` draws any recipe.",
            *shown("gallery.md", drawn()[place]),
        ]
    yield "gallery.md", "\n".join(page).rstrip().splitlines()


def samples() -> Pages:
    """docs/samples.md: the fields of samples, from the schema that writing, reading, checking and showing use."""
    added = table(("field", "content"), ((f"`{name}`", content) for name, content in READING.items()))
    page = [
        "# Samples",
        "",
        f"This page lists the fields of a record by kind of corpus. {WRITTEN}",
        f"Kinds: {', '.join(f'[{kind}](#{kind})' for kind in CORPUS_KINDS)}.",
        "",
        "A sample is a plain dict. A field is stored in the record's member `json`, unless the table names members.",
        "Some fields are cut into items: windows of a text, or single elements of a list. A span is half-open and",
        "counts characters of the stored text. It lies inside the text. No window is cut within a span, and a window",
        "has the spans inside it.",
        "",
        "## All kinds",
        "",
        *_fields(field for field in SCHEMA if field.kinds == CORPUS_KINDS),
        "",
        "The reader adds:",
        "",
        *added,
    ]
    for kind in CORPUS_KINDS:
        own = (field for field in SCHEMA if kind in field.kinds and field.kinds != CORPUS_KINDS)
        page += ["", f"## {kind}", "", *_fields(own)]
    yield "samples.md", page


def _fields(fields: Iterable[SchemaField]) -> Lines:
    return table(("field", "value", "content"), ((f"`{f.name}`", _form(f), _content(f)) for f in fields))


def _form(field: SchemaField) -> str:
    value: Value = field.value
    if not isinstance(value, Stretches):
        return value.form
    form = value.form if value.single else f"list of {value.form}"
    return {str: form, list: f"for each a {form}", dict: f"by name a {form}"}[FIELDS[str(field.spans_of)].value.type]  # type: ignore[index]


def _content(field: SchemaField) -> str:
    notes = [
        *(["required"] if field.required else []),
        *([f"may replace `{field.instead_of}`"] if field.instead_of else []),
        *([f"one for each of `{field.each_of}`"] if field.each_of else []),
        *([f"its number in `{field.index_of}`, from 0"] if field.index_of else []),
        *(["items may be cut from it"] if field.unit else []),
        *([f"none, or one for each of `{field.quotes}` with exactly that text"] if field.quotes else []),
        *([f"in characters of `{field.spans_of}`"] if field.spans_of else []),
        *([f"in member {field.codec.where}"] if field.codec is not IN_JSON else []),
    ]
    return "; ".join([field.content, *notes])


def options_table(options: Sequence[ComponentOption]) -> Lines:
    """A table of options, with their meanings where some have one; nothing where there are none."""
    columns = ("option", "allowed", "default", *(("meaning",) if any(o.meaning for o in options) else ()))
    rows = [(f"`{o.name}`", o.allowed, o.default, o.meaning)[: len(columns)] for o in options]
    if rows:
        yield ""
        yield from table(columns, rows)


def _command_options(options: Iterable[downstream.CommandOption]) -> Lines:
    rows = [(f"`{o.name}`", o.allowed, o.default, o.help) for o in options]
    if rows:
        yield ""
        yield from table(("option", "allowed", "default", "meaning"), rows)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Lines:
    """The lines of a Markdown table."""
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        cells = (cell.replace("|", "\\|") for cell in row)
        yield f"| {' | '.join(cells)} |"


def first_sentence(text: str) -> str:
    """The first sentence of a paragraph: up to a full stop before a capital letter or a name in backticks."""
    return re.split(r"(?<=\.)\s+(?=[A-Z`])", text, maxsplit=1)[0]


def _title(family: str) -> str:
    return {"vision_language": "vision and language"}.get(family, family)


def _anchor(heading: str) -> str:
    """The anchor of a heading on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
