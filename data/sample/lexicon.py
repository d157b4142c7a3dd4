"""The entries of lexicon.yaml as typed, frozen records, and the function that loads and checks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

PATH = Path(__file__).resolve().with_name("lexicon.yaml")


@dataclass(frozen=True)
class Noun:
    """A noun with its singular and plural, French gender and semantic classes."""

    id: str
    en: tuple[str, str]
    fr: tuple[str, str]
    gender: str
    vowel: bool
    countable: bool
    tags: frozenset[str]
    where: tuple[str, str] | None

    def fits(self, wanted: Sequence[str], unwanted: Sequence[str] = ()) -> bool:
        """Whether one of this noun's classes, tags or its name is wanted, and none is unwanted."""
        return any(tag in self.tags for tag in wanted) and not any(tag in self.tags for tag in unwanted)


@dataclass(frozen=True)
class Verb:
    """A verb with all its forms and the complements it takes."""

    id: str
    base: str
    third: str
    past: str
    participle: str
    ing: str
    fr: str
    present: tuple[str, ...]
    fr_participle: str
    auxiliary: str
    imperfect: str
    future: str
    frames: frozenset[str]
    objects: tuple[str, ...]
    gives: tuple[str, ...]
    habits: tuple[str, ...]
    unwanted: tuple[str, ...]

    @property
    def ambiguous(self) -> bool:
        """Whether the English simple past looks like the present."""
        return self.past == self.base

    def suits(self, frames: Sequence[str], tense: str, without: Sequence[str]) -> bool:
        """Whether the verb has one of the frames or properties wanted, none unwanted, and goes with the tense."""
        has = set(self.frames) | {k for k in ("objects", "gives", "habits") if getattr(self, k)}
        barred = "stative" in has and tense in ("prog", "pprog")
        barred = barred or ("state" in has and tense not in ("pres", ""))
        barred = barred or ("mishap" in has and tense in ("fut", "going"))
        barred = barred or (self.ambiguous and tense in ("past", "pres"))
        return not barred and bool(has & set(frames)) and not has & set(without)


@dataclass(frozen=True)
class Adjective:
    """An adjective with its French forms, its place and the nouns it fits."""

    id: str
    more: str
    fr: tuple[str, str, str, str]
    special: str
    vowel: bool
    before: bool
    attributive: bool
    predicative: bool
    wanted: tuple[str, ...]
    unwanted: tuple[str, ...]

    def fits(self, noun: Noun) -> bool:
        """Whether the adjective can be said of the noun."""
        return noun.fits(self.wanted, self.unwanted)

    def form(self, gender: str, plural: bool) -> str:
        """The French form that agrees with a gender and a number."""
        return self.fr[(gender == "f") + 2 * plural]


@dataclass(frozen=True)
class Item:
    """A small entry: an English expression, its French one and, by kind, further values."""

    id: str
    en: str
    fr: str
    extra: dict[str, Any]


@dataclass(frozen=True)
class Lexicon:
    """All entries, by kind, in the order of the file."""

    nouns: tuple[Noun, ...]
    verbs: tuple[Verb, ...]
    adjectives: tuple[Adjective, ...]
    items: dict[str, tuple[Item, ...]]

    def verb(self, base: str) -> Verb:
        """The verb with this English base form."""
        return next(verb for verb in self.verbs if verb.base == base)

    def noun(self, name: str) -> Noun:
        """The noun with this English singular."""
        return next(noun for noun in self.nouns if noun.en[0] == name)

    def lemmas(self) -> tuple[str, ...]:
        """The identifiers of all entries that a sentence can show."""
        ids = [noun.id for noun in self.nouns] + [verb.id for verb in self.verbs] + [adj.id for adj in self.adjectives]
        return tuple(ids + [item.id for items in self.items.values() for item in items])


def identifier(text: str) -> str:
    """The lemma's name in the data: its English form with underscores for spaces."""
    return text.replace(" ", "_")


def _noun(entry: dict[str, Any]) -> Noun:
    tags = frozenset([entry["class"], entry["en"][0], *entry.get("tags", [])])
    where = (entry["in"][0], entry["in"][1]) if "in" in entry else None
    return Noun(
        identifier(entry["en"][0]),
        (entry["en"][0], entry["en"][1]),
        (entry["fr"][0], entry["fr"][1]),
        entry["gender"],
        entry["vowel"],
        entry["countable"],
        tags,
        where,
    )


def _verb(entry: dict[str, Any]) -> Verb:
    base, third, past, participle, ing = entry["en"]
    return Verb(
        id=identifier(base),
        base=base,
        third=third,
        past=past,
        participle=participle,
        ing=ing,
        fr=entry["fr"],
        present=tuple(entry["present"]),
        fr_participle=entry["participle"],
        auxiliary=entry["auxiliary"],
        imperfect=entry["imperfect"],
        future=entry["future"],
        frames=frozenset(entry["frames"]),
        objects=tuple(entry.get("objects", ())),
        gives=tuple(entry.get("gives", ())),
        habits=tuple(entry.get("habits", ())),
        unwanted=tuple(entry.get("except", ())),
    )


def _adjective(entry: dict[str, Any]) -> Adjective:
    forms = entry["fr"]
    return Adjective(
        identifier(entry["en"]),
        entry.get("more", ""),
        (forms[0], forms[1], forms[2], forms[3]),
        entry.get("special", ""),
        entry.get("vowel", True),
        entry["position"] == "before",
        entry["use"] != "predicative",
        entry["use"] != "attributive",
        tuple(entry["fits"]),
        tuple(entry.get("except", ())),
    )


def _item(entry: dict[str, Any]) -> Item:
    """An entry of a small kind; where it lists several forms, en and fr are the first."""
    en, fr = (value if isinstance(value, str) else value[0] for value in (entry["en"], entry["fr"]))
    return Item(identifier(entry.get("id", en)), en, fr, entry)


def _check(lexicon: Lexicon) -> None:
    """Stop when an English form belongs to two lemmas, which would make its translation a matter of chance."""
    seen: dict[str, str] = {}
    owners = [(form, noun.id) for noun in lexicon.nouns for form in sorted(set(noun.en))]
    owners += [(form, v.id) for v in lexicon.verbs for form in sorted({v.base, v.third, v.past, v.ing}) if form]
    owners += [(form.replace("_", " "), a.id) for a in lexicon.adjectives for form in (a.id, a.more) if form]
    owners += [(i.en, i.id) for kind, items in lexicon.items.items() if kind != "weather" for i in items]
    for form, owner in owners:
        if form in seen:
            raise ValueError(f"lexicon.yaml: {form!r} belongs to {seen[form]} and to {owner}")
        seen[form] = owner
    twice = [name for name in lexicon.lemmas() if lexicon.lemmas().count(name) > 1]
    if twice:
        raise ValueError(f"lexicon.yaml: two entries are called {twice[0]}")


def load(path: Path = PATH) -> Lexicon:
    """Read and check the lexicon."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    items = {
        kind: tuple(_item(entry) for entry in entries)
        for kind, entries in data.items()
        if kind not in ("nouns", "verbs", "adjectives")
    }
    lexicon = Lexicon(
        tuple(_noun(entry) for entry in data["nouns"]),
        tuple(_verb(entry) for entry in data["verbs"]),
        tuple(_adjective(entry) for entry in data["adjectives"]),
        items,
    )
    _check(lexicon)
    return lexicon
