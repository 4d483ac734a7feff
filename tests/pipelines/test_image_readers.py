"""Readers of image-text sets, on tiny files."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile

import pytest

from pipelines.sources.image_store import Absent, ImageStore
from workbench.core.errors import WorkbenchError


@pytest.fixture
def folder(tmp_path, photograph):
    """`photos/` with a.jpg and b.jpg."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for seed, name in enumerate(["a.jpg", "b.jpg"]):
        (photos / name).write_bytes(photograph(seed))
    return photos


COCO = {
    "info": {"description": "tiny"},
    "licenses": [{"id": 3, "name": "CC BY", "url": "http://cc/by"}],
    "images": [
        {"id": 1, "file_name": "a.jpg", "license": 3, "coco_url": "http://coco/a.jpg"},
        {"id": 2, "file_name": "b.jpg", "license": 9},
    ],
    "annotations": [
        {"id": 10, "image_id": 2, "caption": "two "},
        {"id": 11, "image_id": 1, "caption": "one"},
        {"id": 12, "image_id": 1, "caption": "uno"},
    ],
}


def test_coco_captions(tmp_path, folder, read):
    (tmp_path / "captions.json").write_text(json.dumps(COCO))
    first, second = read("image-text", tmp_path / "captions.json", images=[str(folder)])
    assert (first["captions"], second["captions"]) == (["one", "uno"], ["two"])
    assert first["image"] == (folder / "a.jpg").read_bytes()
    assert first["meta"]["licence"] == "http://cc/by"
    assert first["meta"]["url"] == "http://coco/a.jpg"
    assert first["meta"]["sha256"] == hashlib.sha256(first["image"]).hexdigest()
    assert "licence" not in second["meta"]


def test_coco_caption_without_its_image_entry(tmp_path, folder, read):
    tree = COCO | {"annotations": [{"image_id": 77, "caption": "x"}]}
    (tmp_path / "captions.json").write_text(json.dumps(tree))
    with pytest.raises(WorkbenchError, match=r"no entry in images.*77"):
        read("image-text", tmp_path / "captions.json", images=[str(folder)])


def test_cut_off_json_file(tmp_path, folder, read):
    (tmp_path / "captions.json").write_text(json.dumps(COCO)[:-30])
    with pytest.raises(WorkbenchError, match=r"captions\.json: not JSON .* is it cut off\?"):
        read("image-text", tmp_path / "captions.json", format="coco-captions", images=[str(folder)])


def test_flickr_token_file(tmp_path, folder, read):
    (tmp_path / "flickr.token.txt").write_text("a.jpg#0\tA dog .\nb.jpg#0\tA cat .\na.jpg#1\tOne # dog .\n")
    first, second = read("image-text", tmp_path / "flickr.token.txt", images=[str(folder)])
    assert (first["key"], first["captions"]) == ("a", ["A dog .", "One # dog ."])
    assert second["captions"] == ["A cat ."]


def test_flickr_token_file_with_a_bad_line(tmp_path, folder, read):
    (tmp_path / "flickr.token.txt").write_text("a.jpg#0\tA dog .\nno tab here\n")
    with pytest.raises(WorkbenchError, match=r"flickr\.token\.txt:2: not of the form image\.jpg#0"):
        read("image-text", tmp_path / "flickr.token.txt", images=[str(folder)])


def test_captions_jsonl_find_their_tar(json_lines, tar, photograph, read):
    tar("images_train.tar", {"./x/a.jpg": photograph(1), "b.png": photograph(2, format="PNG")})
    rows = [{"image": "a.jpg", "captions": ["one"], "split": "s"}, {"image": "b.png", "caption": "two"}]
    rows.append({"image": "a.jpg", "caption": "three"})
    first, second = read("image-text", json_lines("captions_train.jsonl", rows))
    assert first["image"] == photograph(1)
    assert first["captions"] == ["one", "three"]
    assert first["meta"]["split"] == "s"
    assert second["image"] == photograph(2, format="PNG")


def test_a_missing_image_is_a_counted_drop_but_not_all(json_lines, tar, photograph, read, drops):
    tar("images.tar", {"a.jpg": photograph(1)})
    rows = [{"image": name, "caption": "x"} for name in ("a.jpg", "gone.jpg")]
    path = json_lines("captions.jsonl", rows)
    assert [s["key"] for s in read("image-text", path)] == ["a"]
    assert drops("image-text", path) == ["image not found"]
    other = json_lines("captions_b.jsonl", rows[1:])
    with pytest.raises(WorkbenchError, match=r"none of the 1 annotated images.*gone\.jpg.*--images"):
        read("image-text", other)


VQA_ROW = {
    "question_id": 1,
    "image": "a.jpg",
    "question": "What?",
    "answers": ["cat", "dog"],
    "answer": "cat",
    "answer_type": "other",
    "question_type": "what",
    "confidences": ["yes", "no"],
}


def test_vqa_jsonl_gathers_questions_of_an_image(json_lines, tar, photograph, read):
    tar("images.tar", {"a.jpg": photograph(1), "b.jpg": photograph(2)})
    rows = [
        VQA_ROW,
        {"question_id": 2, "image": "b.jpg", "question": "Red?", "answer": "no"},
        VQA_ROW | {"question_id": 3},
    ]
    first, second = read("image-text", json_lines("questions.jsonl", rows))
    expected = {k: v for k, v in VQA_ROW.items() if k not in ("image", "confidences")}
    assert first["questions"] == [expected, expected | {"question_id": 3}]
    assert second["questions"] == [{"question_id": 2, "question": "Red?", "answers": ["no"], "answer": "no"}]


def test_official_vqa_pair(tmp_path, tar, photograph, read):
    questions = {
        "data_subtype": "train2014",
        "task_type": "Open-Ended",
        "questions": [
            {"image_id": 9, "question": "What?", "question_id": 9000},
            {"image_id": 9, "question": "Why?", "question_id": 9001},
        ],
    }
    answered = {
        "question_id": 9000,
        "image_id": 9,
        "question_type": "what",
        "answer_type": "other",
        "multiple_choice_answer": "cat",
        "answers": [{"answer": "cat", "answer_confidence": "yes", "answer_id": 1}] * 10,
    }
    (tmp_path / "q.json").write_text(json.dumps(questions))
    (tmp_path / "a.json").write_text(json.dumps({"data_subtype": "train2014", "annotations": [answered]}))
    tar("images.tar", {"COCO_train2014_000000000009.jpg": photograph(3)})
    (sample,) = read("image-text", tmp_path / "a.json", tmp_path / "q.json")
    assert sample["image"] == photograph(3)
    assert sample["questions"][0] == {
        "question_id": 9000,
        "question": "What?",
        "answers": ["cat"] * 10,
        "answer": "cat",
        "answer_type": "other",
        "question_type": "what",
    }
    assert sample["questions"][1]["answers"] == []
    with pytest.raises(WorkbenchError, match="no questions file"):
        read("image-text", tmp_path / "a.json")
    with pytest.raises(WorkbenchError, match=r"image_name = .* cannot be filled in"):
        read("image-text", tmp_path / "q.json", image_name="{number}.jpg")


@pytest.mark.parametrize(
    "name", ["../outside.jpg", "/etc/passwd", "a/../../outside.jpg", "..\\outside.jpg", "C:\\p\\c.jpg", "/", ".."]
)
def test_paths_do_not_leave_their_folder(json_lines, folder, tar, photograph, read, name):
    (folder.parent / "outside.jpg").write_bytes(photograph(2))
    path = json_lines("captions.jsonl", [{"image": name, "caption": "x"}])
    with pytest.raises(WorkbenchError, match="none of the 1 annotated images is in"):
        read("image-text", path, images=[str(folder)])
    store = ImageStore([tar("evil.tar", {name: photograph(1), "c.jpg": photograph(3)})])
    assert store.find("c.jpg").read() == photograph(3)
    rest = {"/etc/passwd": "etc/passwd", "C:\\p\\c.jpg": "p/c.jpg", "/": "/", "..": ".."}.get(name, "outside.jpg")
    found = store.find(rest)  # as tar extracts such a member
    assert found is None if rest in ("/", "..") else found.read() == store.find(name).read() == photograph(1)


@pytest.mark.parametrize("name", ["/home/someone/set/far.jpg", "../x/far.jpg", "D:\\set\\far.jpg", "C:/far.jpg"])
@pytest.mark.parametrize("place", [".", "train"])
def test_paths_of_another_machine_are_found_by_their_file_name(json_lines, folder, photograph, read, name, place):
    (folder / place).mkdir(exist_ok=True)
    (folder / place / "far.jpg").write_bytes(photograph(9))
    path = json_lines("captions.jsonl", [{"image": name, "caption": "x"}, {"image": "/lost.jpg", "caption": "y"}])
    (sample,) = read("image-text", path, images=[str(folder)])
    assert sample["image"] == photograph(9)
    assert sample["captions"] == ["x"]


def test_an_image_of_a_nested_folder_is_found_by_its_name_where_one_alone_has_it(tmp_path, folder, photograph):
    for inner in ("x", "y"):
        (folder / inner).mkdir()
        (folder / inner / "twice.jpg").write_bytes(photograph(5))
    (folder / "x" / "once.jpg").write_bytes(photograph(6))
    store = ImageStore([folder])
    assert store.find("once.jpg").read() == photograph(6)
    assert store.look("train/once.jpg") is Absent.MISSING
    assert store.find("x/twice.jpg").read() == photograph(5)
    assert store.look("twice.jpg") is store.look("/far/twice.jpg") is Absent.SEVERAL
    assert store.find("twice.jpg") is None
    assert store.find("/far/y/twice.jpg") == store.find(f"{folder}/y/twice.jpg") == store.find("y/twice.jpg")
    assert ImageStore([folder], nested=False).find("once.jpg") is None


def test_no_image_gets_another_one_of_its_name(tmp_path, folder, tar, photograph, read, json_lines, caplog):
    """By a path with folders nothing but this path is taken, in folders and tar files; of two places neither."""
    caplog.set_level("INFO")
    (folder / "train").mkdir()
    (folder / "train" / "1.jpg").write_bytes(photograph(5))
    first = tar("set.tar", {"a/1.jpg": photograph(1), "b/1.jpg": photograph(2), "a/2.jpg": photograph(3)})
    second = tar("val.tar", {"a/1.jpg": photograph(4), "3.jpg": photograph(6)})
    store = ImageStore([first])
    assert store.look("c/1.jpg") is Absent.MISSING
    assert store.look("1.jpg") is Absent.SEVERAL
    assert store.find("2.jpg").read() == store.find("set/a/2.jpg").read() == photograph(3)
    assert ImageStore([first, second]).look("a/1.jpg") is Absent.SEVERAL
    assert ImageStore([first, second]).find("/far/val/a/1.jpg").read() == photograph(4)
    assert ImageStore([folder, folder / "train"]).find("/far/1.jpg").read() == photograph(5)
    assert ImageStore([folder / "train"]).find(f"{folder.name}/train/1.jpg").read() == photograph(5)
    rows = [{"image": name, "caption": "x"} for name in ("val/1.jpg", "train/1.jpg", "1.jpg", "/far/1.jpg")]
    path = json_lines("captions.jsonl", rows)
    assert len(read("image-text", path, images=[str(folder)])) == 3
    assert "2 of the images were found" in caplog.text
    assert "(the first is '1.jpg')" in caplog.text


def test_links_in_a_named_folder_are_followed(tmp_path, photograph, json_lines, read):
    """As in the hub's cache, whose snapshots are links to blobs; also to folders, and around in a circle."""
    for n, name in enumerate(("one", "two", "far/three.jpg")):
        (tmp_path / "blobs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "blobs" / name).write_bytes(photograph(n))
    snapshot = tmp_path / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    for name, target in {"a": "one", "b": "two", "far": "far", "lost": "nothing"}.items():
        (snapshot / (name if name == "far" else f"{name}.jpg")).symlink_to(f"../../blobs/{target}")
    (snapshot / "circle").symlink_to(".")
    names = ("a.jpg", "b.jpg", "three.jpg", "far/three.jpg", "lost.jpg", "far")
    path = json_lines("captions.jsonl", [{"image": name, "caption": name} for name in names])
    found = read("image-text", path, images=[str(snapshot)])
    assert [each["image"] for each in found] == [photograph(n) for n in (0, 1, 2, 2)]
    assert ImageStore([snapshot]).look("lost.jpg") is Absent.UNLINKED
    path = json_lines("captions.jsonl", [{"image": "lost.jpg", "caption": "x"}])
    with pytest.raises(WorkbenchError, match=r"link whose target is missing \(copy with cp -rL"):
        read("image-text", path, images=[str(snapshot)])


def test_links_in_a_tar_lead_to_its_members_and_nowhere_else(tmp_path, photograph):
    """Hard links (the second name of a file), soft ones, chains and circles; a link out of the tar is counted."""
    (tmp_path / "secret.jpg").write_bytes(photograph(2))
    links = {
        "b.jpg": ("hard", "in/a.jpg"),
        "in/c.jpg": ("soft", "a.jpg"),
        "in/d.jpg": ("soft", "../b.jpg"),
        "out.jpg": ("soft", "../secret.jpg"),
        "far.jpg": ("soft", str(tmp_path / "secret.jpg")),
        "self.jpg": ("soft", "self.jpg"),
        "gone.jpg": ("hard", "gone"),
    }
    with tarfile.open(tmp_path / "links.tar", "w") as archive:
        for name, (kind, target) in {"early.jpg": ("soft", "in/a.jpg"), "in/a.jpg": ("file", ""), **links}.items():
            entry = tarfile.TarInfo(name)
            entry.type = {"hard": tarfile.LNKTYPE, "soft": tarfile.SYMTYPE, "file": tarfile.REGTYPE}[kind]
            entry.linkname, data = target, photograph(1) if kind == "file" else b""
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    store = ImageStore([tmp_path / "links.tar"])
    for name in ("early.jpg", "b.jpg", "in/c.jpg", "in/d.jpg", "a.jpg"):
        assert store.find(name).read() == photograph(1), name
    assert {store.look(name) for name in ("out.jpg", "far.jpg", "self.jpg", "gone.jpg")} == {Absent.UNLINKED}


def test_a_damaged_tar_is_an_error(tmp_path, tar, photograph):
    whole = tar("images.tar", {"a.jpg": photograph(1), "b.jpg": photograph(2)})
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole.read_bytes()[:1000])
    with pytest.raises(WorkbenchError, match="cut off"):
        ImageStore([cut])
    (tmp_path / "page.tar").write_text("<html>")
    with pytest.raises(WorkbenchError, match="not a plain tar"):
        ImageStore([tmp_path / "page.tar"])


@pytest.mark.data
def test_real_sets(shared, read):
    data = shared / "data"
    photos = read("image-text", data / "flickr8k" / "captions_dev.jsonl")
    assert (len(photos), sum(len(s["captions"]) for s in photos)) == (500, 2500)
    asked = read("image-text", data / "vqa_v2" / "questions_dev.jsonl")
    assert (len(asked), sum(len(s["questions"]) for s in asked)) == (250, 375)
