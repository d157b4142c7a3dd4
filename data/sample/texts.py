"""The records that sentence building passes around: text pairs, noun phrases, subjects, sentences and pronouns."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lexicon import Noun
from morphology import Agreement, words


class RetryError(Exception):
    """Raised when a sentence cannot be completed with the choices made; the caller tries another."""


@dataclass(frozen=True)
class Text:
    """English and draft French of the same words; `+` joins with a space."""

    en: str = ""
    fr: str = ""

    def __add__(self, other: Text) -> Text:
        """Both texts one after the other."""
        return Text(words(self.en, other.en), words(self.fr, other.fr))


@dataclass(frozen=True)
class Phrase:
    """A noun phrase with what agrees with it."""

    text: Text
    agreement: Agreement
    noun: Noun

    @property
    def pronoun(self) -> Text:
        """The object pronoun that takes its place."""
        if self.agreement.plural:
            return Text("them", "les")
        feminine = self.agreement.gender == "f"
        en = ("her" if feminine else "him") if "person" in self.noun.tags else "it"
        return Text(en, "la" if feminine else "le")

    @property
    def nominative(self) -> Text:
        """The subject pronoun that takes its place."""
        feminine = self.agreement.gender == "f"
        if self.agreement.plural:
            return Text("they", "elles" if feminine else "ils")
        en = ("she" if feminine else "he") if "person" in self.noun.tags else "it"
        return Text(en, "elle" if feminine else "il")

    @property
    def slot(self) -> int:
        """Its grammatical person."""
        return 5 if self.agreement.plural else 2


@dataclass(frozen=True)
class Subject:
    """A subject: its text, grammatical person (0 to 5), agreement, its possessive and its pronoun."""

    text: Text
    slot: int
    agreement: Agreement
    owner: str
    pronoun: Text
    noun: Noun | None = None

    @property
    def again(self) -> Subject:
        """The same subject as a pronoun."""
        return replace(self, text=self.pronoun)

    def tagged(self, *tags: str) -> bool:
        """Whether it is a noun phrase with a noun of one of these classes."""
        return self.noun is not None and self.noun.fits(tags)


@dataclass(frozen=True)
class Sentence:
    """A finished draft: text and end mark."""

    text: Text
    end: str = "."


PRONOUNS = (
    Subject(Text("I", "je"), 0, Agreement(), "my", Text("I", "je")),
    Subject(Text("you", "vous"), 4, Agreement(), "your", Text("you", "vous")),
    Subject(Text("he", "il"), 2, Agreement(), "his", Text("he", "il")),
    Subject(Text("she", "elle"), 2, Agreement("f"), "her", Text("she", "elle")),
    Subject(Text("we", "nous"), 3, Agreement("m", True), "our", Text("we", "nous")),
    Subject(Text("they", "ils"), 5, Agreement("m", True), "their", Text("they", "ils")),
)
STRESSED = {
    "my": Text("me", "moi"),
    "your": Text("you", "vous"),
    "his": Text("him", "lui"),
    "her": Text("her", "elle"),
    "our": Text("us", "nous"),
    "their": Text("them", "eux"),
}
# Object pronouns: the text, what a participle agrees with and the grammatical person.
DIRECT = (
    (Text("me", "me"), Agreement(), 0),
    (Text("you", "vous"), Agreement(), 4),
    (Text("him", "le"), Agreement(), 2),
    (Text("her", "la"), Agreement("f"), 2),
    (Text("us", "nous"), Agreement("m", True), 3),
    (Text("them", "les"), Agreement("m", True), 5),
)
INDIRECT = (
    (Text("me", "me"), 0),
    (Text("you", "vous"), 4),
    (Text("him", "lui"), 2),
    (Text("her", "lui"), 2),
    (Text("us", "nous"), 3),
    (Text("them", "leur"), 5),
)


def clash(subject: Subject, slot: int) -> bool:
    """Whether an object pronoun of this person would mean the subject itself."""
    return (slot == subject.slot and slot != 2) or (slot, subject.slot) in ((0, 3), (3, 0))
