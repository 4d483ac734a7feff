"""Chinese and Japanese names, which must not begin or end inside of a word."""

from __future__ import annotations

import json
import logging
import pickle
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from kg.linking.linker import Linker
from kg.linking.segmenters import LinkingSegmenter, chosen_for
from workbench.core.errors import WorkbenchError
from workbench.text import segmenters

CHINESE = ["水果", "海水", "价值", "有价值", "市中心"]
JAPANESE = ["アイス", "アイスランド", "東京", "京都"]


@pytest.fixture(autouse=True)
def packages() -> None:
    pytest.importorskip("rjieba")
    pytest.importorskip("sudachipy")


def linked(names: list[str], text: str, words: object) -> list[str]:
    return [link[2] for link in Linker.from_names([(n, n, 1.0) for n in names], lexicon=words).link(text)]


def test_no_name_inside_of_a_word() -> None:
    text = "我在上海水果店看具有价值的书"
    assert linked(CHINESE, text, None) == ["海水", "有价值"]
    assert linked(CHINESE, text, LinkingSegmenter("jieba")) == ["价值"], "which 有价值 hid"
    assert linked([*CHINESE, "电影", "看电影"], "看看电影", LinkingSegmenter("jieba")) == ["电影"], "what 看电影 hid"
    assert linked([*CHINESE, "水果店"], "我在上海，水果店", LinkingSegmenter("jieba")) == ["水果店"]
    text = "アイスランドと東京都庁"
    assert linked(["アイス", "京都"], text, None) == ["アイス", "京都"]
    assert linked(["アイス", "京都"], text, LinkingSegmenter("sudachi")) == []
    assert linked(JAPANESE, text, LinkingSegmenter("sudachi")) == ["アイスランド", "東京"]


def test_places_are_those_of_the_whole_text() -> None:
    text = "a 研究 the 上海水果店"
    inside = LinkingSegmenter("jieba").within(text, range(len(text) + 1))
    assert inside == {3, 10, 12, 13}, "上海|水果店 begins at 9"


def test_a_run_longer_than_sudachi_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    run = "東京都庁とアイスランド。"
    whole = LinkingSegmenter("sudachi").within(run * 5, range(len(run) * 5))
    assert whole
    monkeypatch.setattr(segmenters, "LONGEST", len(run))
    assert LinkingSegmenter("sudachi").within(run * 5, range(len(run) * 5)) == whole
    monkeypatch.undo()
    assert LinkingSegmenter("sudachi").within("東京都庁" * 6000, [23_999])


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["oslo", "norway"], None),
        (["oslo", "奥斯陆"], "jieba"),
        (["阿尔贝・加缪", "加缪"], "jieba"),
        (JAPANESE, "sudachi"),
        (["アイス", *(f"東京{i}" for i in range(30))], "jieba"),
    ],
)
def test_the_names_say_the_language(names: list[str], wanted: str | None) -> None:
    chosen = chosen_for(names)
    assert (chosen.name if isinstance(chosen, LinkingSegmenter) else chosen) == wanted


def test_what_to_install_is_said_and_names_are_found_inside_of_words(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def version(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(segmenters, "version", version)
    with caplog.at_level(logging.WARNING):
        assert linked(CHINESE, "上海水果店", "auto") == ["海水"]
    assert "pip install 'pretraining-workbench[chinese]'" in caplog.text
    assert "--words none" in caplog.text
    with pytest.raises(WorkbenchError, match=r"needs the package 'sudachipy'.*\[japanese\]"):
        LinkingSegmenter("sudachi")


def test_scripts_that_nothing_here_cuts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert chosen_for(["ออสโล", "oslo"]) is None
    assert "1 names are in a script" in caplog.text
    assert "--words FILE" in caplog.text


def test_a_saved_linker_wants_the_same_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [(name, name, 1.0) for name in CHINESE]
    plain, auto = Linker.from_names(names), Linker.from_names(names, lexicon="auto")
    assert auto.version != plain.version
    assert pickle.loads(pickle.dumps(auto)).link("上海水果店") == []
    auto.save(tmp_path / "linker")
    meta = json.loads((tmp_path / "linker" / "linker.json").read_text())
    assert meta["segmenter"]["name"] == "jieba"
    loaded = Linker.load(tmp_path / "linker")
    assert loaded.version == auto.version
    assert loaded.link("上海水果店") == []
    assert pickle.loads(pickle.dumps(loaded)).link("上海水果店") == []
    monkeypatch.setattr(segmenters, "version", lambda package: "99.0")
    assert Linker.from_names(names, lexicon="auto").version != auto.version
    with pytest.raises(WorkbenchError, match=r"jieba of rjieba .*, and rjieba 99\.0 is installed"):
        Linker.load(tmp_path / "linker")
