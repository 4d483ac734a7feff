"""Augmented images per second of one core, against plain webdataset with torchvision's transforms, in the same run.

    OMP_NUM_THREADS=1 python -m benchmarks.augmented_images [--images 400] [--rounds 7] [--width 640 --height 480]

Both read the same shards of noise-like JPEGs and give batches of normalised squares of 224 pixels (float32): a random
crop of at least half of the area, resized bicubically, mirrored half of the time. The reader's order is shuffled, the
peer's is that of the files. The peer decodes with Pillow or with torchvision's `decode_jpeg`, and normalises every
image or every batch; the ratio is to the fastest of the four. Rounds alternate in one process (`benchmarks.rounds`).
`--progressive` and `--grey` are other kinds of JPEGs.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
import webdataset
from PIL import Image
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import InterpolationMode, v2

from benchmarks.fetching import jpeg
from benchmarks.rounds import compared
from vision.images.transforms import NORMALISATIONS, standardise
from vision.sequences.image_processors.pixels import PixelsProcessor
from workbench.core.keyed import generator
from workbench.corpora.corpus import Corpus
from workbench.corpora.manifest import finish_corpus
from workbench.corpora.reading.reader import Reader
from workbench.corpora.shards.writer import ShardWriter
from workbench.sequences.batch import collate
from workbench.sequences.sequence import Sequence

SIDE, LEAST, FLIP, BATCH, LANES, DISTINCT = 224, 0.5, 0.5, 32, 1, 64
MEAN, STD = NORMALISATIONS["imagenet"]
Work = Callable[[], Iterator[Tensor]]


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        corpus = write(Path(folder, "corpus"), options)
        works: dict[str, Work] = {"workbench": partial(ours, corpus)}
        for decoder in DECODERS:
            for normalised in ("image", "batch"):
                name = f"webdataset, {decoder}, normalised by the {normalised}"
                works[name] = partial(theirs, corpus, decoder, normalised)
        seconds = compared({name: partial(read, work, options.images) for name, work in works.items()}, options.rounds)
    rates = {name: options.images / each for name, each in seconds.items()}
    best = max(rate for name, rate in rates.items() if name != "workbench")
    for name, rate in rates.items():
        print(f"{name:48} {rate:7.1f} images/s of a core   x{rate / best:.2f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--progressive", action="store_true")
    parser.add_argument("--grey", action="store_true")
    return parser.parse_args()


def write(folder: Path, options: argparse.Namespace) -> Corpus:
    mode = "L" if options.grey else "RGB"
    photographs = [
        jpeg(seed, options.width, options.height, mode, progressive=options.progressive)
        for seed in range(min(DISTINCT, options.images))
    ]
    with ShardWriter(folder / "part-00000000.tar", kind="image-text") as writer:
        for number in range(options.images):
            writer.add(f"r{number}", {"image": photographs[number % len(photographs)], "captions": ["a caption"]})
    assert writer.info is not None
    finish_corpus(
        folder, kind="image-text", shards=[writer.info], provenance={"command": "benchmarks.augmented_images"}
    )
    return Corpus.open(folder)


def read(work: Work, images: int) -> None:
    """All batches of a contestant, which must be as many images as there are."""
    count = 0
    for batch in work():
        assert batch.dtype == torch.float32
        assert batch.shape[1:] == (3, SIDE, SIDE)
        count += len(batch)
    assert count == images, f"{count} of {images} images"


def ours(corpus: Corpus) -> Iterator[Tensor]:
    """As the loader and the embedding do it: every image from its own generator, normalised as a batch."""
    part = PixelsProcessor(SIDE, SIDE // 32, crop_scale=LEAST, flip=FLIP)
    reader = Reader([(corpus, 1.0)], seed=0, lanes=LANES, micro_batch_size=BATCH)
    mean, std = torch.tensor(MEAN), torch.tensor(STD)
    for number in range(corpus.records // BATCH):
        samples = reader.micro_batch(number, 0)
        sequences = [
            Sequence({"image": part(sample, generator(0, number, place))}, (place,))
            for place, sample in enumerate(samples)
        ]
        yield standardise(collate(sequences).streams["image"].fields["pixels"], mean, std)


def theirs(corpus: Corpus, decoder: str, normalised: str) -> Iterator[Tensor]:
    paths = [str(Path(corpus.place, shard.name)) for shard in corpus.shards]
    crop = v2.RandomResizedCrop(SIDE, (LEAST, 1.0), interpolation=InterpolationMode.BICUBIC, antialias=True)
    normalise = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    each = [DECODERS[decoder], crop, v2.RandomHorizontalFlip(FLIP), v2.ToImage()]
    of_image = v2.Compose([*each, *normalise] if normalised == "image" else each)
    of_batch = v2.Compose(normalise)
    shards = webdataset.WebDataset(paths, shardshuffle=False).to_tuple("jpg").map_tuple(of_image)
    for images in shards.batched(BATCH, collation_fn=list):
        pixels = torch.stack([image for (image,) in images])
        yield of_batch(pixels) if normalised == "batch" else pixels


def by_pillow(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


def by_torchvision(data: bytes) -> Tensor:
    return decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)


DECODERS: dict[str, Callable[[bytes], Image.Image | Tensor]] = {"Pillow": by_pillow, "decode_jpeg": by_torchvision}


if __name__ == "__main__":
    main()
