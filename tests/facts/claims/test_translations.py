"""Translations by key: what is missing or stale is named with its file and key."""

from dataclasses import replace
from pathlib import Path

import pytest

from leadline.claims import CLAIMS
from leadline.claims import translations as module
from leadline.claims.translations import english_digest, translated, words
from leadline.errors import CatalogError

NAME = "power-of-nine-tenths"
CLAIM = CLAIMS.get(NAME).claim
FILE = Path("languages/ru/algebra.toml")


def texts():
    return module._read(module._FOLDER / "ru" / "algebra.toml")[NAME]


def test_a_translation_is_found_by_the_english_of_its_key():
    table = translated(CLAIM, texts(), FILE)
    assert table[CLAIM.title] == texts()["title"]
    assert set(table) == set(CLAIM.texts())


def test_a_missing_translation_is_named_with_its_file_and_key():
    entry = texts()
    del entry["checks"]["claim"]["vanishing"]
    with pytest.raises(
        CatalogError, match=r"algebra.toml, power-of-nine-tenths.checks.claim.vanishing: .*missing"
    ):
        translated(CLAIM, entry, FILE)


def test_a_translation_of_other_english_is_refused_until_somebody_looks_at_it():
    changed = replace(CLAIM, why="Another explanation.")
    with pytest.raises(CatalogError, match="made from another English text") as refused:
        translated(changed, texts(), FILE)
    assert english_digest(changed) in str(refused.value)


def test_labels_count_in_the_digest_and_limits_do_not():
    first, *others = CLAIM.checks
    relabelled = replace(CLAIM, checks=(replace(first, label="another"), *others))
    relimited = replace(CLAIM, checks=(replace(first, within=1e-6), *others))
    assert english_digest(relabelled) != english_digest(CLAIM)
    assert english_digest(relimited) == english_digest(CLAIM)


def test_one_sentence_has_one_translation(tmp_path, monkeypatch):
    (tmp_path / "ru").mkdir()
    entry = texts()
    lines = [f'"{CLAIM.title}" = "other"']
    (tmp_path / "ru" / "page.toml").write_text("\n".join(lines), encoding="utf-8")
    text = (module._FOLDER / "ru" / "algebra.toml").read_text(encoding="utf-8")
    begin = text.index(f"[{NAME}]")
    end = text.find("\n[", begin + 1)
    (tmp_path / "ru" / "algebra.toml").write_text(
        text[begin : end if end > 0 else None], encoding="utf-8"
    )
    monkeypatch.setattr(module, "_FOLDER", tmp_path)
    with pytest.raises(CatalogError, match="use one of them") as refused:
        words("ru")
    assert entry["title"] in str(refused.value)


def test_a_language_that_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_FOLDER", tmp_path)
    with pytest.raises(CatalogError, match="cannot be read"):
        words("xx")
