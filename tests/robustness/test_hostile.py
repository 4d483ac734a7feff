"""Files made with bad intent: none fills the memory, reveals a secret, commands the terminal or runs code."""

from __future__ import annotations

import gzip
import io
import json
import logging
import random
import re
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import pytest
import zstandard
from PIL import EpsImagePlugin, Image

from kg.vectors.formats import pbg_checkpoint
from pipelines.readers.reader import Drop
from pipelines.readers.regions.volta_h5 import VoltaH5
from pipelines.sources import files
from pipelines.sources.image_store import ImageStore
from pipelines.stages.media_checks import CheckImage
from tests.robustness import hostile
from vision.images.decoding import decode as decode_image
from workbench.core.errors import BadValueError, WorkbenchError
from workbench.core.files import arrays
from workbench.core.files.yaml_values import DEEPEST, read_yaml
from workbench.core.terminal import PlainFormatter, Terminal
from workbench.core.url_secrets import without_secrets
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.preview import preview
from workbench.corpora.reading.reader import Reader
from workbench.corpora.shards import cuts
from workbench.corpora.shards.cuts import cut_points
from workbench.corpora.shards.record import BadRecordError
from workbench.corpora.shards.writer import ShardWriter
from workbench.corpora.verify import check_image
from workbench.recipe.reading import load_recipe
from workbench.report.html import image as inlined
from workbench.text.sentences import SENTENCE_END, sentences_apart

Refused = Callable[..., str]
ARRAYS = hostile.arrays()


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_take_no_more_than_they_have(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BYTES_LIMIT", 32 << 20)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"regions\.npz is damaged"):
        arrays.unpack(ARRAYS[name])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_arrays_are_what_numpy_reads() -> None:
    kept = {
        "features": np.arange(12, dtype=np.float16).reshape(3, 4),
        "boxes": np.asfortranarray(np.random.default_rng(0).random((3, 4))),
        "classes": np.array(["a", "bc", ""]),
        "one": np.array(3),
        "none": np.zeros((0, 4), np.int64),
    }
    data = arrays.pack(kept)
    with np.load(io.BytesIO(data)) as theirs:
        ours = arrays.unpack(data)
        assert list(ours) == theirs.files
        for name, array in ours.items():
            np.testing.assert_array_equal(array, theirs[name])
            assert array.dtype == theirs[name].dtype
            assert array.flags.writeable


def test_too_many_arrays_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BYTES_LIMIT", 1000)
    with pytest.raises(WorkbenchError, match="the limit is 1,000"):
        arrays.pack({"features": np.zeros(1000)})


def test_a_record_with_such_arrays_can_be_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "PNG")
    with monkeypatch.context() as patch, ShardWriter(tmp_path / "part-000000.tar", kind="image-text") as writer:
        patch.setattr(arrays, "pack", lambda _: ARRAYS["14.9 TiB"])
        writer.add("bad", {"image": buffer.getvalue(), "captions": ["a"], "regions": {}})
        patch.undo()
        writer.add("good", {"image": buffer.getvalue(), "captions": ["b"], "regions": {"boxes": np.zeros((1, 4))}})
    assert writer.info is not None
    finish_corpus(tmp_path, kind="image-text", shards=[writer.info], provenance={"command": "test", "inputs": []})
    corpus = Corpus.open(tmp_path)
    options: dict[str, Any] = {"lanes": 1, "micro_batch_size": 1, "seed": 0, "unit": None}
    with pytest.raises(BadRecordError, match="key 'bad'"):
        [Reader([(corpus, 1.0)], **options).micro_batch(n, 0) for n in range(2)]
    skipping = Reader([(corpus, 1.0)], **options, on_error="skip")
    assert {sample["key"] for n in range(4) for sample in skipping.micro_batch(n, 0)} == {"good"}


@pytest.mark.parametrize("name", hostile.IMAGES)
def test_no_program_and_no_page_is_opened_as_an_image(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(*_: object, **__: object) -> None:
        raise AssertionError("Ghostscript was called")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", ran)
    data = hostile.IMAGES[name]
    assert isinstance(CheckImage()({"image": data}), Drop)
    assert check_image(data) is not None
    assert preview({"key": "k", "corpus": "c", "image": data})
    with pytest.raises(BadValueError):
        decode_image(data, "here")
    with pytest.raises(WorkbenchError, match="here is no image"):
        inlined(data, "alt", "here")


@pytest.fixture
def run(world: Path, workbench: Callable[..., Any]) -> Path:
    assert workbench("pretrain", "recipe.yaml", "--run", "run").code == 0
    return world / "run"


@pytest.mark.parametrize(
    "name", ["figures/b.png", "figures/b.json", "evaluations/a.json", "metrics.jsonl", "recipe.yaml"]
)
def test_links_that_lead_out_of_a_run_are_not_followed(run: Path, refused: Refused, name: str) -> None:
    secret = run.parent / "secret"
    secret.write_text('{"task": "secret", "numbers": {}, "step": 1}\n')
    for folder in ("figures", "evaluations"):
        (run / folder).mkdir(exist_ok=True)
    Image.new("RGB", (4, 4)).save(run / "figures" / "b.png")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(secret)
    assert "outside of the run folder" in refused("report", "run")
    assert not (run / "report.html").exists()


def test_a_linked_folder_of_a_run_and_an_image_that_is_none(run: Path, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.json").write_text('{"task": "secret", "numbers": {}}')
    (run / "evaluations").symlink_to(tmp_path / "elsewhere")
    assert "outside of the run folder" in refused("report", "run")
    (run / "evaluations").unlink()
    (run / "figures").mkdir()
    (run / "figures" / "b.png").write_bytes(hostile.IMAGES["passwords"])
    assert "figures/b.png is no image" in refused("report", "run")


@pytest.mark.parametrize("value", hostile.INTERPOLATIONS)
def test_recipes_do_not_read_the_environment(
    world: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    before = sorted(world.iterdir())
    recipe = (world / "recipe.yaml").read_text()
    (world / "theirs.yaml").write_text(f"description: {json.dumps(value)}\n{recipe}")
    messages = [
        refused("pretrain", "theirs.yaml", "--run", "run"),
        refused("pretrain", "recipe.yaml", f"description='{value}'", "--run", "run"),
    ]
    for message in messages:
        assert "keys of the recipe itself" in message
        assert "hunter2" not in message
    (world / "theirs.yaml").unlink()
    assert sorted(world.iterdir()) == before


def test_a_report_does_not_read_the_environment(run: Path, refused: Refused) -> None:
    with (run / "recipe.yaml").open("a") as file:
        file.write("vars: {a: '${oc.env:HOME}'}\n".replace("vars", "more"))
    assert "keys of the recipe itself" in refused("report", "run")


def test_keys_of_the_recipe_stand_for_their_values(world: Path) -> None:
    recipe = load_recipe(
        "recipe.yaml",
        ["description=${vars.corpus}", "vars.more-2=[1, '${train.max_steps}']", "name=${vars.more-2[1]}x"],
    )
    assert (recipe.description, recipe.name) == ("corpora/text", "4x")


@pytest.mark.parametrize("name", hostile.DEEP)
def test_deeply_nested_recipes_are_one_message(here: Path, refused: Refused, name: str) -> None:
    (here / name).write_text(hostile.DEEP[name])
    assert f"{name}: values are nested too deeply" in refused("show", name, "--batch")
    (here / "run").mkdir()
    (here / "run" / "recipe.yaml").write_text(hostile.DEEP[name])
    assert "run/recipe.yaml: values are nested too deeply" in refused("report", "run", "--output", "page.html")


@pytest.mark.parametrize("value", hostile.BAD_YAML)
def test_values_of_options_that_cannot_be_read_are_one_message(here: Path, refused: Refused, value: str) -> None:
    """The numbers of digits that Python reads is its own limit; its advice on that is for programmers."""
    (here / "a.tsv").write_text("a\tb\tc\n")
    option = refused("prepare", "triples", "a.tsv", "--output", "out", "--option", f"x={value}")
    override = refused("show", "tiny-text", f"vars.corpus={value}", "--batch")
    assert "error: --option 'x=" in option
    assert "error: override 'vars.corpus=" in override
    for message in (option, override):
        assert "sys." not in message
        assert len(message) < 400


def test_a_number_of_too_many_digits_in_a_recipe_is_one_message(here: Path, refused: Refused) -> None:
    (here / "r.yaml").write_text(f"seed: {'1' * 5000}")
    message = refused("show", "r.yaml", "--batch")
    assert "r.yaml: a whole number has more than 4,300 digits" in message
    assert "sys." not in message


def test_what_is_nested_as_deeply_as_is_allowed_is_read(here: Path) -> None:
    path = here / "deep.yaml"
    path.write_text("[" * DEEPEST + "]" * DEEPEST)
    value = read_yaml(path)
    for _ in range(DEEPEST - 1):
        (value,) = value
    assert value == []


def test_a_recipe_that_is_no_text_is_one_message(here: Path, refused: Refused) -> None:
    (here / "r.yaml").write_bytes(b"name: \xff\xfe")
    assert "r.yaml" in refused("show", "r.yaml", "--batch")


def test_deeply_nested_json_is_one_message(here: Path, refused: Refused) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    (here / "a.jsonl").write_text(f'{{"text": "a", "more": {deep}}}\n')
    (here / "captions.json").write_text(f'{{"images": {deep}}}')
    assert "a.jsonl:1" in refused("prepare", "text", "a.jsonl", "--output", "out", "--format", "json-lines")
    assert "captions.json" in refused(
        "prepare", "image-text", "captions.json", "--output", "out", "--format", "coco-captions"
    )


@pytest.mark.parametrize("text", [hostile.CONTROL, "\x1b[31mred", "\x00", "\x85"])
def test_control_characters_do_not_reach_the_terminal(text: str) -> None:
    file = io.StringIO()
    terminal = Terminal(file=file, force_terminal=True, color_system=None, width=300)
    terminal.print(preview({"key": text, "corpus": text, "captions": [text], text: {"a": text}, "text": text}))
    terminal.print(f"plain {text}", markup=False)
    shown = file.getvalue().replace("\n", "")
    record = logging.LogRecord("workbench", logging.INFO, "", 1, "%s", (text,), None)
    for said in (shown, PlainFormatter("%(message)s").format(record)):
        assert not [character for character in said if ord(character) < 32 or 127 <= ord(character) < 160]


def test_markup_of_others_stays_text(here: Path) -> None:
    file = io.StringIO()
    Terminal(file=file, width=300).print(preview({"key": "[/b] [red]k :smile:", "corpus": "c", "captions": ["[/x]"]}))
    assert "[/b] [red]k :smile:" in file.getvalue()


def test_errors_and_corpora_are_shown_without_control_characters(
    here: Path, lines: Callable[..., Path], workbench: Callable[..., Any]
) -> None:
    lines("docs.jsonl", {"text": f"a {hostile.CONTROL} b", "id": f"k{hostile.CONTROL}", "of": hostile.CONTROL})
    assert workbench("prepare", "text", "docs.jsonl", "--output", "corpus").code == 0
    ended = [
        workbench("show", "corpus"),
        workbench("show", f"gone{hostile.CONTROL}"),
        workbench("pretrain", "tiny-text", f"name={json.dumps(hostile.CONTROL)}", "train.lr=fast"),
    ]
    for said in ended:
        assert not set("\x1b\x07\x9b\x08\x7f") & set(said.out + said.err)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_line_has_a_bounded_length(
    here: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(files, "LINE_LIMIT", 1000)
    compress = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    (here / f"a.txt{suffix}").write_bytes(compress(b"x" * 999 + b"\n" + b"y" * 998 + b"\r\nz"))
    assert [len(line) for _, line in files.lines(here / f"a.txt{suffix}")] == [999, 998, 1]
    (here / f"b.txt{suffix}").write_bytes(compress(b"short\n" + b"x" * 100_000))
    message = refused("prepare", "text", f"b.txt{suffix}", "--output", "out", "--format", "plain-text")
    assert f"b.txt{suffix}:2: the line is longer than 1,000 bytes" in message


def test_a_small_zst_is_not_inflated_at_once(tmp_path: Path) -> None:
    """Nor is what is inflated copied again for every read, which made the time quadratic."""
    (tmp_path / "a.txt.zst").write_bytes(zstandard.ZstdCompressor().compress(bytes(256 << 20)))
    assert (tmp_path / "a.txt.zst").stat().st_size < 10_000
    tracemalloc.start()
    with files.open_bytes(tmp_path / "a.txt.zst") as handle:
        assert sum(iter(lambda: len(handle.read(1 << 16)), 0)) == 256 << 20
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20


@pytest.mark.parametrize("name", ["x" * 5000 + ".png", "x" * 300, "a/" * 3000, "\ud800.png"], ids=len)
def test_an_image_name_that_no_file_can_have_is_not_found(tmp_path: Path, name: str) -> None:
    assert ImageStore([tmp_path]).find(name) is None


def test_only_images_with_such_names_are_one_message(here: Path, lines: Callable[..., Path], refused: Refused) -> None:
    lines("captions.jsonl", {"image": "x" * 5000 + ".png", "captions": ["a"]})
    message = refused("prepare", "image-text", "captions.jsonl", "--images", ".", "--output", "out")
    assert "none of the 1 annotated images" in message


@pytest.mark.parametrize("url", hostile.URLS)
def test_places_that_are_no_stores_are_one_message(
    world: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """Nor is their library asked, which may start servers or follow further addresses."""
    asked, real = [], fsspec.core.url_to_fs

    def ask(*arguments: Any, **options: Any) -> Any:
        asked.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr("fsspec.core.url_to_fs", ask)
    assert without_secrets(url) in refused("show", url)
    assert without_secrets(url) in refused("pretrain", "recipe.yaml", f"tasks.text.corpora=['{url}']", "--run", "run")
    assert not (world / "run").exists()
    assert bool(asked) == url.startswith("memory://")  # which is a store, without that corpus


def test_a_store_whose_library_raises_its_own_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    class OwnError(Exception):
        pass

    def fail(*_: object, **__: object) -> None:
        raise OwnError("no such bucket")

    monkeypatch.setattr("fsspec.core.url_to_fs", fail)
    with pytest.raises(WorkbenchError, match=r"s3://bucket/corpus/corpus\.json cannot be read: no such bucket"):
        Corpus.open("s3://bucket/corpus")


@pytest.mark.parametrize("how", ["external", "link", "virtual", "group"])
def test_hdf5_reads_no_other_file_of_this_machine(tmp_path: Path, how: str) -> None:
    secret, path = tmp_path / "secret", tmp_path / "regions.h5"
    secret.write_bytes(bytes(64))
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["a/features"] = np.zeros((4, 4), np.float32)
    with h5py.File(path, "w") as file:
        for name in ("features", "boxes", "img_w", "img_h"):
            if how == "external":
                file.create_dataset(f"a/{name}", (4, 4), np.float32, external=[(str(secret), 0, 64)])
            elif how == "virtual":
                layout = h5py.VirtualLayout((4, 4), np.float32)
                layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "a/features", (4, 4))
                file.create_virtual_dataset(f"a/{name}", layout)
            elif how == "link":
                file.require_group("a")[name] = h5py.ExternalLink(str(tmp_path / "other.h5"), "a/features")
        if how == "group":
            file["a"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "a")
    with pytest.raises(WorkbenchError, match="is stored in another file, which is not opened"):
        VoltaH5(path).read("a")
    embeddings = tmp_path / "embeddings_all_0.h5"
    with h5py.File(embeddings, "w") as file:
        file.create_dataset("embeddings", (4, 4), np.float32, external=[(str(secret), 0, 64)])
    (tmp_path / "entity_names_all_0.json").write_text('["a", "b", "c", "d"]')
    with pytest.raises(WorkbenchError, match="'embeddings' is stored in another file"):
        list(
            pbg_checkpoint._rows(
                pbg_checkpoint._PartitionFile(embeddings, "all", tmp_path / "entity_names_all_0.json", None)
            )
        )


@pytest.mark.parametrize(
    "text", [" " * 10**5, "." * 10**5, "\n " * 10**5, "a" + ".)" * 10**5, "!" * 10**5 + ")" * 10**5]
)
def test_cutting_a_text_takes_linear_time_whatever_it_holds(text: str) -> None:
    began = time.process_time()
    assert sum(map(len, sentences_apart(text))) <= len(text)
    assert cut_points(text)
    assert time.process_time() - began < 5  # it was minutes


def test_sentences_end_where_they_ended_before_the_time_was_linear() -> None:
    quoted = r"[.!?…]+[\"'”’»)\]]*\s+"
    before = re.compile(rf"{quoted}|[。！？；]+[”’」』）]*\s*|\s*\n\s*")
    strong = re.compile(rf"(?=[.!?…]){cuts._ABBREVIATION}{quoted}|[。！？；…]+[”’」』）]*\s*|\s*\n\s*\n\s*")
    draw = random.Random(0)
    for _ in range(20_000):
        text = "".join(draw.choices(["Mr", "A", "b", ".", "!", "…", "。", ")", '"', " ", "\n"], k=draw.randrange(20)))
        for old, new in ((before, SENTENCE_END), (strong, cuts._STRONG)):
            assert [m.end() for m in old.finditer(text)] == [m.end() for m in new.finditer(text)], text


def test_yaml_tags_make_no_objects(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("a: !!python/object/apply:os.system [touch EXECUTED]\n")
    with pytest.raises(WorkbenchError, match="could not determine a constructor"):
        read_yaml(tmp_path / "r.yaml")
