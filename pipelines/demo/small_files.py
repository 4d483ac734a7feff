"""Raw inputs for the pages of the documentation, tiny: texts about cities, a graph of them, images of shapes."""

from __future__ import annotations

import io
import json
import random
import tarfile
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from pipelines.demo.row_files import write_jsonl

CITIES = {
    "oslo": ("Oslo", "norway"),
    "bergen": ("Bergen", "norway"),
    "lima": ("Lima", "peru"),
    "cusco": ("Cusco", "peru"),
    "cairo": ("Cairo", "egypt"),
    "giza": ("Giza", "egypt"),
    "paris": ("Paris", "france"),
    "lyon": ("Lyon", "france"),
}
COUNTRIES = {"norway": "Norway", "peru": "Peru", "egypt": "Egypt", "france": "France"}
COLOURS = {"red": (200, 30, 30), "green": (30, 160, 30), "blue": (30, 30, 200), "yellow": (220, 200, 30)}
SHAPES = ("circle", "square")


BEGINNINGS = ("Ber", "Dal", "Fen", "Gal", "Hol", "Kor", "Lin", "Mar", "Nor", "Pel", "Ros", "Sel", "Tor", "Vin", "Wes")
ENDINGS = ("burg", "by", "dorf", "ford", "gate", "heim", "holm", "mouth", "stad", "ton", "ville", "wick")
UNSEEN = 40
SENTENCES = (
    "{town} lies in {country}.",
    "Many people of {town} work by the river, as {town} lies in {country}.",
    "We went to {town}, which lies in {country}, and crossed the old bridge.",
)


def write_small_files(folder: Path) -> None:
    """Write all small files into a folder, which may exist; existing files of these names are overwritten."""
    folder.mkdir(parents=True, exist_ok=True)
    for write in (write_texts, write_graph, write_towns, write_images, write_foreign):
        write(folder)


def write_texts(folder: Path) -> None:
    """notes.txt: paragraphs about cities; news.jsonl: the same as JSON lines; labelled.jsonl: with the hour at which
    the market opens as a class; pages/: as files; pairs.tsv: a table."""
    rng = random.Random(0)
    texts = []
    for n in range(120):
        city, country = CITIES[rng.choice(list(CITIES))]
        texts.append(
            f"{city} lies in {COUNTRIES[country]}, by a wide river. Many people live in {city}, and most of them work "
            f"near the old bridge. In the morning the market of {city} opens at {5 + n % 5}."
        )
    (folder / "notes.txt").write_text("\n\n".join(texts) + "\n")
    news = [{"id": f"n{n}", "body": text, "year": 2000 + n} for n, text in enumerate(texts)]
    write_jsonl(folder / "news.jsonl", news)
    pairs = [f"{text}\tIs there a river?\t{n % 2}\n" for n, text in enumerate(texts[:20])]
    (folder / "pairs.tsv").write_text("premise\tquestion\tlabel\n" + "".join(pairs))
    labelled = [{"text": text, "labels": {"hour": 5 + n % 5}} for n, text in enumerate(texts)]
    write_jsonl(folder / "labelled.jsonl", labelled)
    (folder / "pages").mkdir(exist_ok=True)
    for n, text in enumerate(texts[:5]):
        (folder / "pages" / f"page {n}.txt").write_text(text)


def write_graph(folder: Path) -> None:
    """graph.tsv; labels in entities.jsonl and relations.jsonl; facts.jsonl with candidates.json; typed.jsonl."""
    triples = [(city, "country", country) for city, (_, country) in CITIES.items()]
    triples += [(a, "near", b) for a in CITIES for b in CITIES if a < b and CITIES[a][1] == CITIES[b][1]]
    (folder / "graph.tsv").write_text("".join("\t".join(triple) + "\n" for triple in triples))
    labels = {"city": {i: label for i, (label, _) in CITIES.items()}, "country": COUNTRIES}
    entities = [
        {"id": i, "label": label, "description": f"{label}, a {kind}", "types": ["place", kind]}
        for kind, named in labels.items()
        for i, label in named.items()
    ]
    write_jsonl(folder / "entities.jsonl", entities)
    write_jsonl(folder / "relations.jsonl", [{"id": "country", "label": "lies in"}, {"id": "near", "label": "near"}])
    facts, typed = [], []
    for i, (city, country) in CITIES.items():
        text = f"{city} is a city of {COUNTRIES[country]}."
        span = [text.index(COUNTRIES[country]), len(text) - 1]
        facts.append(
            {
                "id": f"fact-{i}",
                "text": text,
                "spans": [[0, len(city), i, 1.0]],
                "mask_spans": [span],
                "meta": {"subject": i, "relation": "country", "object": country},
            }
        )
        for label, identifier, types in ((city, i, ["place", "city"]), (COUNTRIES[country], country, ["place"])):
            begin = text.index(label)
            typed.append(
                {
                    "id": f"typed-{i}-{identifier}",
                    "text": text,
                    "spans": [[begin, begin + len(label), identifier, 1.0]],
                    "mention": [begin, begin + len(label)],
                    "types": types,
                }
            )
    write_jsonl(folder / "facts.jsonl", facts)
    write_jsonl(folder / "typed.jsonl", typed)
    candidates = {"country": [{"id": i, "label": label} for i, label in COUNTRIES.items()]}
    (folder / "candidates.json").write_text(json.dumps(candidates))


def write_towns(folder: Path) -> None:
    """towns.tsv: the country of each of 180 towns, with their labels in towns.jsonl; towns.txt: sentences that state it
    for 140 of them; stated.jsonl: these facts, a sentence each; unseen.jsonl: those of the 40 others, which only the
    graph has; countries.json: the candidates."""
    rng = random.Random(2)
    names = [begin + end for begin in BEGINNINGS for end in ENDINGS]
    rng.shuffle(names)
    country_of = {name: rng.choice(list(COUNTRIES)) for name in names}
    unseen, stated = names[:UNSEEN], names[UNSEEN:]
    written = [(rng.choice(SENTENCES), rng.choice(stated)) for _ in range(420)]
    texts = [form.format(town=town, country=COUNTRIES[country_of[town]]) for form, town in written]
    (folder / "towns.txt").write_text("\n\n".join(texts) + "\n")
    lines = [f"{name.lower()}\tlies in\t{country}\n" for name, country in country_of.items()]
    (folder / "towns.tsv").write_text("".join(lines))
    labels = {**{name.lower(): name for name in names}, **COUNTRIES}
    write_jsonl(folder / "towns.jsonl", [{"id": i, "label": label} for i, label in labels.items()])
    for file, some in (("stated", stated), ("unseen", unseen)):
        write_jsonl(folder / f"{file}.jsonl", [_cloze(name, country_of[name]) for name in some])
    candidates = {"lies in": [{"id": i, "label": label} for i, label in COUNTRIES.items()]}
    (folder / "countries.json").write_text(json.dumps(candidates))


def _cloze(town: str, country: str) -> dict[str, Any]:
    """A fact whose object is masked, with the link of its subject."""
    begin = f"{town} lies in "
    end = len(begin) + len(COUNTRIES[country])
    return {
        "id": f"fact-{town.lower()}",
        "text": f"{begin}{COUNTRIES[country]}.",
        "spans": [[0, len(town), town.lower(), 1.0]],
        "mask_spans": [[len(begin), end]],
        "meta": {"subject": town.lower(), "relation": "lies in", "object": country},
    }


def write_images(folder: Path) -> None:
    """photos/ of coloured shapes; captions.jsonl, questions.jsonl and shapes.jsonl about one, two-photos.jsonl about
    two of them; classes.txt with the classes of shapes.jsonl."""
    (folder / "photos").mkdir(exist_ok=True)
    rng = random.Random(1)
    captions, questions, labelled, twos = [], [], [], []
    drawn: list[str] = []
    for n in range(40):
        colour, shape = rng.choice(list(COLOURS)), rng.choice(SHAPES)
        image = Image.new("RGB", (64, 64), (240, 240, 240))
        x, y = rng.randint(2, 30), rng.randint(2, 30)
        draw = ImageDraw.Draw(image)
        (draw.ellipse if shape == "circle" else draw.rectangle)((x, y, x + 28, y + 28), fill=COLOURS[colour])
        image.putpixel((0, 0), (n, n, n))
        image.save(folder / "photos" / f"{n:03d}.png")
        sides = [f"{n:03d}.png", f"{max(n - 1, 0):03d}.png"][:: 1 if n % 2 else -1]
        media, drawn = dict(zip(("left", "right"), sides, strict=True)), [*drawn, f"a {colour} {shape}"]
        caption = f"there is {drawn[-1]} on the left"
        twos.append({"media": media, "sentence": caption, "label": drawn[int(sides[0][:3])] == drawn[-1]})
        captions.append({"image": f"{n:03d}.png", "captions": [f"a {colour} {shape}", f"one {shape} in {colour}"]})
        labelled.append({"image": f"{n:03d}.png", "labels": {"shape": drawn[-1].removeprefix("a ")}})
        for part, (question, answer) in enumerate((("what colour is it?", colour), ("what shape is it?", shape))):
            questions.append(
                {"question_id": 2 * n + part, "image": f"{n:03d}.png", "question": question, "answer": answer}
            )
    write_jsonl(folder / "captions.jsonl", captions)
    write_jsonl(folder / "shapes.jsonl", labelled)
    (folder / "classes.txt").write_text("".join(f"{colour} {shape}\n" for colour in COLOURS for shape in SHAPES))
    write_jsonl(folder / "two-photos.jsonl", twos)
    write_jsonl(folder / "questions.jsonl", questions)


def write_foreign(folder: Path) -> None:
    """cc3m/: two shards without an index, as in public data sets."""
    (folder / "cc3m").mkdir(exist_ok=True)
    for shard in range(2):
        with tarfile.open(folder / "cc3m" / f"{shard:05d}.tar", "w") as tar:
            for n in range(4):
                buffer = io.BytesIO()
                Image.new("RGB", (20, 20), (shard * 90, n * 50, 0)).save(buffer, "JPEG")
                for suffix, data in (("jpg", buffer.getvalue()), ("txt", f"a plain colour, number {n}".encode())):
                    entry = tarfile.TarInfo(f"{shard}{n}.{suffix}")
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
