"""Precomputed region features in their published layouts, joined to a corpus."""

from __future__ import annotations

import base64
import io
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.pipelines.test_commands import prepare
from workbench.core.errors import WorkbenchError
from workbench.corpora.corpus import Corpus

SIZE, COUNT = 6, 3
BOXES = np.float32([[0, 0, 12, 8], [3, 4, 24.5, 16], [6, 4, 12, 12]])  # pixels of an image of 24 x 16
RELATIVE = np.float32([[0, 0, 0.5, 0.5], [0.125, 0.25, 1, 1], [0.25, 0.25, 0.5, 0.75]])
WORKERS = ("--workers", 1)


def features(seed: int, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(COUNT, size)).astype(np.float32)


def coded(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def bottom_up(identifier: object, seed: int, boxes: np.ndarray = BOXES, size: int = SIZE) -> str:
    """A line of bottom-up attention's files: width, then height."""
    return "\t".join([str(identifier), "24", "16", str(COUNT), coded(boxes), coded(features(seed, size))]) + "\n"


def lxmert(identifier: str, seed: int) -> str:
    """A line of LXMERT's: height, then width, and what the detector says."""
    classes, attributes = np.int64([7, 1599, 0]), np.int64([3, 2, 399])
    reported = [
        coded(classes),
        coded(np.float32([0.9, 0.5, 0.1])),
        coded(attributes),
        coded(np.float32([0.3, 0.2, 0.1])),
    ]
    return "\t".join([identifier, "16", "24", *reported, str(COUNT), coded(BOXES), coded(features(seed))]) + "\n"


def uniter(seed: int, size: int = SIZE) -> dict[str, np.ndarray]:
    sides = np.concatenate([RELATIVE, RELATIVE[:, 2:] - RELATIVE[:, :2]], axis=1)
    soft = np.float32([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.3, 0.4, 0.3]])
    return {
        "features": features(seed, size),
        "norm_bb": sides,
        "conf": np.float32([0.9, 0.5, 0.1]),
        "soft_labels": soft,
    }


def npz(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays, allow_pickle=True)  # as UNITER's script has it: one more array
    return buffer.getvalue()


@pytest.fixture
def coco(tmp_path, json_lines, photograph) -> Path:
    """A corpus of four images with names of COCO."""
    (tmp_path / "images").mkdir()
    rows = []
    for i in range(4):
        name = f"COCO_val2014_{i + 9:012d}.png"
        (tmp_path / "images" / name).write_bytes(photograph(i, format="PNG"))
        rows.append({"image": name, "caption": f"caption {i}"})
    prepare("image-text", json_lines("captions.jsonl", rows), "-o", tmp_path / "raw", *WORKERS)
    return tmp_path / "raw"


def imported(coco: Path, *arguments: object) -> Corpus:
    out = coco.with_name("out")
    prepare("import-regions", coco, "-o", out, *WORKERS, *arguments)
    return Corpus.open(out)


def check(corpus: Corpus, record: int, seed: int) -> dict[str, np.ndarray]:
    sample = corpus.read(0, record)
    regions = sample["regions"]
    assert regions["features"].dtype == np.float16
    np.testing.assert_array_equal(regions["features"], features(seed).astype(np.float16))
    np.testing.assert_allclose(regions["boxes"], RELATIVE, atol=1e-6)
    assert sample["meta"]["backbone"] == "bottom-up-attention"
    return regions


def test_bottom_up_attention_by_number(tmp_path, coco):
    """Ids are numbers there, boxes pixels, one of them half a pixel out of the image."""
    (tmp_path / "karpathy_train_resnet101_faster_rcnn_genome.tsv").write_text(bottom_up(10, 1) + bottom_up(9, 0))
    (tmp_path / "more.tsv").write_text(bottom_up(11, 2))
    tsv = ("--from", tmp_path / "karpathy_train_resnet101_faster_rcnn_genome.tsv", "--from", tmp_path / "more.tsv")
    corpus = imported(coco, *tsv)
    assert corpus.records == 3
    assert corpus.manifest.dropped == {"JoinRegions: no features of this image": 1}
    assert corpus.manifest.about["backbone"] == "bottom-up-attention"
    for record in range(3):
        check(corpus, record, record)


def test_of_rows_of_one_image_the_first_is_taken_and_that_is_reported(tmp_path, coco, caplog):
    (tmp_path / "twice.tsv").write_text(bottom_up(9, 0) + bottom_up(9, 1) + bottom_up(10, 1))
    check(imported(coco, "--from", tmp_path / "twice.tsv"), 0, 0)
    assert "features of 1 images occur more than once (9); using the first of each" in caplog.text


def test_lxmert_keeps_what_the_detector_says(tmp_path, coco):
    (tmp_path / "val2014_obj36.tsv").write_text("".join(lxmert(f"COCO_val2014_{i + 9:012d}", i) for i in range(4)))
    corpus = imported(coco, "--from", tmp_path / "val2014_obj36.tsv")
    regions = check(corpus, 3, 3)
    assert regions["classes"].tolist() == [7, 1599, 0]
    assert regions["attributes"].tolist() == [3, 2, 399]
    np.testing.assert_allclose(regions["attribute_confidence"], [0.3, 0.2, 0.1])


@pytest.mark.parametrize("compressed", [True, False])
def test_uniters_lmdb(tmp_path, coco, compressed):
    lmdb, msgpack = pytest.importorskip("lmdb"), pytest.importorskip("msgpack")

    def packed(array: np.ndarray) -> dict[bytes, object]:  # as msgpack-numpy writes it
        reported = {b"nd": True, b"type": array.dtype.str, b"kind": b""}
        return {**reported, b"shape": array.shape, b"data": array.tobytes()}

    names = [f"coco_val2014_{i + 9:012d}.npz" for i in range(4)]
    with lmdb.open(str(tmp_path / "feat"), map_size=1 << 22) as database, database.begin(write=True) as writing:
        for i, name in enumerate(names):
            arrays = uniter(i)
            value = npz(arrays) if compressed else msgpack.dumps({n: packed(a) for n, a in arrays.items()})
            writing.put(name.encode(), value)
        writing.put(b"__keys__", json.dumps(names).encode())
    corpus = imported(coco, "--from", tmp_path / "feat", "--backbone", "bottom-up-attention")
    regions = check(corpus, 2, 2)
    assert regions["classes"].tolist() == [1, 2, 1], "the background is no class of a region"
    assert regions["scores"].shape == (COUNT, 3)
    assert regions["confidence"].tolist() == pytest.approx([0.9, 0.5, 0.1])


def test_folders_of_npz_uniters_and_mcans(tmp_path, coco):
    (tmp_path / "npz").mkdir()
    for i in range(2):
        (tmp_path / "npz" / f"coco_val2014_{i + 9:012d}.npz").write_bytes(npz(uniter(i)))
    for i in (2, 3):  # MCAN's stand the other way round, and their `info` would be unpickled
        reported = {"num_bbox": np.int64(COUNT), "image_h": np.int64(16), "image_w": np.int64(24)}
        info = np.array({"objects_id": [1]}, dtype=object)
        arrays = {"x": features(i).T, "bbox": BOXES, **reported, "info": info}
        (tmp_path / "npz" / f"COCO_val2014_{i + 9:012d}.jpg.npz").write_bytes(npz(arrays))
    corpus = imported(coco, "--from", tmp_path / "npz")
    for record in range(4):
        check(corpus, record, record)
    assert "classes" not in corpus.read(0, 3)["regions"]


def test_openvqas_npz_of_gqa(tmp_path, coco):
    """The regions stand in rows there, and the size of the image is called otherwise than in MCAN's files."""
    (tmp_path / "npz").mkdir()
    for i in range(4):  # twice the size of our images: what the file says counts
        arrays = {"x": features(i), "bbox": 2 * BOXES, "width": np.int64(48), "height": np.int64(32)}
        (tmp_path / "npz" / f"COCO_val2014_{i + 9:012d}.npz").write_bytes(npz(arrays))
    corpus = imported(coco, "--from", tmp_path / "npz")
    for record in range(4):
        check(corpus, record, record)


def test_voltas_h5(tmp_path, coco):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "obj36.h5", "w") as file:  # as its large_tsv_to_h5.py writes it
        for i in range(4):
            group = file.create_group(f"COCO_val2014_{i + 9:012d}")
            group["features"], group["boxes"], group["img_w"], group["img_h"] = features(i), BOXES, 24, 16
            group["obj_id"], group["obj_conf"] = np.int64([7, 1599, 0]), np.float32([0.9, 0.5, 0.1])
            group["attr_id"], group["attr_conf"] = np.int64([3, 2, 399]), np.float32([0.3, 0.2, 0.1])
    regions = check(imported(coco, "--from", tmp_path / "obj36.h5"), 3, 3)
    assert regions["classes"].tolist() == [7, 1599, 0]
    assert regions["attributes"].tolist() == [3, 2, 399]
    np.testing.assert_allclose(regions["confidence"], [0.9, 0.5, 0.1])
    shutil.rmtree(coco.with_name("out"))
    shutil.copy(tmp_path / "obj36.h5", tmp_path / "damaged.h5")
    with h5py.File(tmp_path / "damaged.h5", "a") as file:
        del file["COCO_val2014_000000000010"]["boxes"]
    with pytest.raises(WorkbenchError, match=r"no group of features, boxes, img_w and img_h"):
        imported(coco, "--from", tmp_path / "damaged.h5")
    (tmp_path / "text.h5").write_text("no HDF5")
    with pytest.raises(WorkbenchError, match=r"text\.h5 is not a readable HDF5 file"):
        imported(coco, "--from", tmp_path / "text.h5")


def test_gqas_own_objects(tmp_path, coco):
    """Every image has as many places as the largest has objects; what is behind an image's own is not read."""
    h5py = pytest.importorskip("h5py")
    (tmp_path / "objects").mkdir()
    info = {}
    for number in (0, 1):
        places = np.zeros((2, 5, SIZE), np.float32), np.full((2, 5, 4), 99, np.float32)
        for row in (0, 1):
            i = 2 * number + row
            places[0][row, :COUNT], places[1][row, :COUNT] = features(i), BOXES
            reported = {"file": number, "idx": row, "objectsNum": COUNT, "width": 24, "height": 16}
            info[f"COCO_val2014_{i + 9:012d}"] = reported
        with h5py.File(tmp_path / "objects" / f"gqa_objects_{number}.h5", "w") as file:
            file["features"], file["bboxes"] = places
    (tmp_path / "objects" / "gqa_objects_info.json").write_text(json.dumps(info))
    corpus = imported(coco, "--from", tmp_path / "objects")
    for record in range(4):
        check(corpus, record, record)
    shutil.rmtree(coco.with_name("out"))
    info["COCO_val2014_000000000010"]["idx"] = 7
    (tmp_path / "objects" / "gqa_objects_info.json").write_text(json.dumps(info))
    with pytest.raises(WorkbenchError, match=r"no features and bboxes in row 7 of gqa_objects_0\.h5"):
        imported(coco, "--from", tmp_path / "objects")
    del info["COCO_val2014_000000000010"]["objectsNum"]
    (tmp_path / "objects" / "gqa_objects_info.json").write_text(json.dumps(info))
    with pytest.raises(WorkbenchError, match=r"needs the whole numbers file, idx, objectsNum"):
        imported(coco, "--from", tmp_path / "objects")


def test_a_pickled_lmdb_is_refused(tmp_path, coco):
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(tmp_path / "volta"), map_size=1 << 22) as database, database.begin(write=True) as writing:
        for i in range(4):
            writing.put(f"COCO_val2014_{i + 9:012d}".encode(), pickle.dumps({"features": features(i)}))
    with pytest.raises(WorkbenchError, match=r"holds pickled arrays \(ViLBERT's and VOLTA's LMDB\)"):
        imported(coco, "--from", tmp_path / "volta")


def test_regions_below_a_threshold_are_left_out(tmp_path, coco):
    (tmp_path / "obj36.tsv").write_text("".join(lxmert(f"COCO_val2014_{i + 9:012d}", i) for i in range(4)))
    corpus = imported(coco, "--from", tmp_path / "obj36.tsv", "--threshold", 0.2, "--min-regions", 1)
    assert {len(v) for i in range(4) for v in corpus.read(0, i)["regions"].values()} == {2}


def test_features_of_another_size_are_refused(tmp_path, coco):
    (tmp_path / "a.tsv").write_text(bottom_up(9, 0) + bottom_up(10, 1, size=SIZE + 1))
    with pytest.raises(
        WorkbenchError, match=r"COCO_val2014_000000000010.*\[3, 7\]; needed: 6 numbers a region.*--feature-size"
    ):
        imported(coco, "--from", tmp_path / "a.tsv", "--on-error", "skip")
    with pytest.raises(WorkbenchError, match=r"\[3, 6\]; needed: 2048"):
        imported(coco, "--from", tmp_path / "a.tsv", "--feature-size", 2048)


@pytest.mark.parametrize(
    ("boxes", "options", "message"),
    [
        (BOXES + 10, (), "a box outside of the image"),
        (BOXES[:, [2, 3, 0, 1]], (), "invalid boxes"),
        (BOXES, ("--layout", "sides"), "a box outside of the image"),
        (np.full((COUNT, 4), np.nan, np.float32), (), "invalid boxes"),
        (BOXES[:2], (), "an array that is not 3 rows of float32 in base64"),
    ],
)
def test_bad_boxes_stop_or_are_counted(tmp_path, coco, boxes, options, message):
    (tmp_path / "a.tsv").write_text(bottom_up(9, 0) + bottom_up(10, 1, boxes))
    arguments = ("--from", tmp_path / "a.tsv", *options)
    if not options:
        with pytest.raises(
            WorkbenchError, match=rf"a\.tsv, image 'COCO_val2014_000000000010': {message}.*--on-error skip"
        ):
            imported(coco, *arguments)
        corpus = imported(coco, *arguments, "--on-error", "skip")
        assert corpus.manifest.dropped[f"JoinRegions: {message}"] == 1
    else:
        with pytest.raises(WorkbenchError, match=message):
            imported(coco, *arguments)


def test_ids_of_another_set_are_reported(tmp_path, coco):
    (tmp_path / "a.tsv").write_text(bottom_up("street_12", 0))
    with pytest.raises(WorkbenchError, match=r"no features for the first 4 images.*'COCO_val2014_.*'street_12'"):
        imported(coco, "--from", tmp_path / "a.tsv")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(
        WorkbenchError, match=r"has none of the formats .* bottom-up-tsv, gqa-h5, npz-folder, uniter-lmdb"
    ):
        imported(coco, "--from", tmp_path / "notes.txt")


def test_a_damaged_file_is_one_message(tmp_path, coco):
    (tmp_path / "npz").mkdir()
    for i in range(4):
        (tmp_path / "npz" / f"{i + 9:012d}.npz").write_bytes(npz(uniter(i)))
    cut = tmp_path / "npz" / f"{11:012d}.npz"
    cut.write_bytes(cut.read_bytes()[:100])
    with pytest.raises(WorkbenchError, match=r"image 'COCO_val2014_000000000011': not an npz file, or damaged"):
        imported(coco, "--from", tmp_path / "npz")
    corpus = imported(coco, "--from", tmp_path / "npz", "--on-error", "skip")
    assert corpus.manifest.dropped == {"JoinRegions: not an npz file, or damaged": 1}


@pytest.fixture
def pairs(tmp_path, json_lines, photograph) -> Path:
    """A corpus of two NLVR2 records of three photographs, of 24 x 16 pixels."""
    (tmp_path / "images").mkdir()
    for i, name in enumerate(("dev-0-0-img0", "dev-0-0-img1", "dev-0-1-img0", "dev-0-1-img1")):
        (tmp_path / "images" / f"{name}.png").write_bytes(photograph(i, format="PNG"))
    rows = [{"identifier": f"dev-0-{i}-3", "sentence": "two dogs", "label": "True"} for i in range(2)]
    prepare(
        "image-text", json_lines("dev.json", rows), "--images", tmp_path / "images", "-o", tmp_path / "raw", *WORKERS
    )
    return tmp_path / "raw"


def test_each_image_of_named_media_has_its_features(tmp_path, pairs):
    (tmp_path / "npz").mkdir()
    for i, name in enumerate(("dev-0-0-img0", "dev-0-0-img1", "dev-0-1-img0")):
        count = 3 - i % 2
        np.savez(tmp_path / "npz" / f"{name}.npz", features=features(i)[:count], boxes=BOXES[:count])
    corpus = imported(pairs, "--from", tmp_path / "npz", "--boxes", "pixels")
    assert corpus.manifest.dropped == {"JoinRegions: no features of this image": 1}  # dev-0-1, whose right one has none
    regions = corpus.read(0, 0)["regions"]
    assert regions["medium"].tolist() == ["left"] * 3 + ["right"] * 2
    expected = np.concatenate([features(0), features(1)[:2]]).astype(np.float16)
    np.testing.assert_array_equal(regions["features"], expected)
    np.testing.assert_allclose(regions["boxes"], np.concatenate([RELATIVE, RELATIVE[:2]]), atol=1e-6)


def test_named_media_have_the_same_arrays_as_those_that_are_extracted(tmp_path, pairs):
    (tmp_path / "npz").mkdir()
    for i, name in enumerate(("dev-0-0-img0", "dev-0-0-img1")):
        np.savez(tmp_path / "npz" / f"{name}.npz", features=features(i), boxes=BOXES)
    regions = imported(pairs, "--from", tmp_path / "npz", "--boxes", "pixels").read(0, 0)["regions"]
    network = ("--backbone", "resnet10t", "--size", 32, "--grid", 1, "-o", tmp_path / "extracted")
    prepare("regions", pairs, *network, *WORKERS)
    extracted = Corpus.open(tmp_path / "extracted").read(0, 0)["regions"]
    assert {name: value.dtype.kind for name, value in regions.items()} == {
        name: value.dtype.kind for name, value in extracted.items()
    }
    assert list(dict.fromkeys(regions["medium"].tolist())) == list(dict.fromkeys(extracted["medium"].tolist()))


def test_images_of_one_record_have_features_of_one_kind(tmp_path, pairs):
    (tmp_path / "npz").mkdir()
    for i, name in enumerate(("dev-0-0-img0", "dev-0-0-img1")):
        said = {"confidence": np.float32([1, 1, 1])} if i else {}
        np.savez(tmp_path / "npz" / f"{name}.npz", features=features(i), boxes=BOXES, **said)
    with pytest.raises(WorkbenchError, match=r"'left' has .* need features of one kind"):
        imported(pairs, "--from", tmp_path / "npz", "--boxes", "pixels")


def test_features_of_mmf_have_a_way_out(tmp_path, coco):
    """They are a pickle with the boxes; the page's own lines make of them what is read."""
    folder = tmp_path / "mmf"
    folder.mkdir()
    for i in range(4):
        name, boxes = f"COCO_val2014_{i + 9:012d}", np.float32([[0, 0, 4, 4], [2, 2, 8, 8]])
        np.save(folder / f"{name}.npy", np.full((3, 8), i, np.float32))  # filled up with a row
        info = {"bbox": boxes, "num_boxes": 2, "image_width": 24, "image_height": 16}
        np.save(folder / f"{name}_info.npy", info, allow_pickle=True)
    for place in (folder, folder / f"COCO_val2014_{9:012d}.npy"):
        with pytest.raises(WorkbenchError, match=r"as mmf writes them: NAME\.npy.*is a pickle.*an \.npz file for each"):
            imported(coco, "--from", place)
    page = (Path(__file__).resolve().parents[2] / "docs" / "vision-language" / "features.md").read_text("utf-8")
    code = page.partition('```python title="mmf_to_npz.py"\n')[2].partition("```")[0]
    (tmp_path / "mmf_to_npz.py").write_text(code)
    subprocess.run([sys.executable, tmp_path / "mmf_to_npz.py", folder, tmp_path / "npz"], check=True)
    corpus = imported(coco, "--from", tmp_path / "npz", "--boxes", "pixels")
    regions = corpus.read(0, 0)["regions"]
    assert regions["features"].shape == (2, 8)
    assert np.allclose(regions["boxes"], [[0, 0, 4 / 24, 4 / 16], [2 / 24, 2 / 16, 8 / 24, 8 / 16]])
