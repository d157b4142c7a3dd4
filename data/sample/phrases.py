"""Builds English-French phrase pairs: subjects, noun phrases, clauses, places and times, chosen by a seeded generator.

A `Maker` is handed to the pattern functions.  It chooses lemmas (the one used least so far of a few drawn at random),
remembers which ones the sentence uses, and realises phrases in both languages at once.  French is in the draft form
that `morphology.French.finish` turns into written French.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from lexicon import Adjective, Item, Lexicon, Noun, Verb
from morphology import Agreement, French, article, english_question, english_verb, words
from texts import PRONOUNS, Phrase, RetryError, Subject, Text

Entry = TypeVar("Entry", Noun, Verb, Adjective, Item)
T = TypeVar("T")

OWN = ("clothing", "object", "furniture", "pet", "ownplace", "car", "truck", "bicycle", "boat", "kin", "text", "dish")
NOT_OWN = ("film", "newspaper", "song", "poem", "mirror", "clock")
OBJECT = ("def",) * 5 + ("indef",) * 5 + ("poss",) * 3 + ("this",) * 2 + ("num",)
DEFINITE = ("def", "def", "poss", "this")
OWNERS = ("my", "your", "his", "her", "our", "their")
SPOUSE = {"wife": ("my", "your", "his"), "husband": ("my", "your", "her")}
INDEFINITE_ONLY = ("edible", "drink")
DEFINED = ("clean", "open", "close", "feed", "wash", "cross", "visit", "wait_for", "understand", "finish", "know")
EXCESS = (
    *("big", "small", "old", "young", "long", "high", "heavy", "light", "expensive", "dirty", "cold", "hot"),
    *("dangerous", "fast", "slow", "boring", "difficult", "easy", "sad", "tired", "serious", "lazy", "proud", "busy"),
    *("dark", "modern", "angry", "worried", "curious", "rich", "calm", "poor", "quiet", "patient", "kind"),
)


class Maker:
    """Chooses words and builds phrase pairs for one sentence at a time."""

    def __init__(self, lexicon: Lexicon, draw: Callable[[], float], counts: Counter[str]) -> None:
        """A maker over a lexicon, with a source of numbers from 0 to 1 and how often each lemma was used so far."""
        self.lexicon = lexicon
        self.french = French(lexicon)
        self.draw = draw
        self.counts = counts
        self.used: list[str] = []
        self.fitting: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Noun]] = {}
        self.suitable: dict[tuple[tuple[str, ...], str, tuple[str, ...]], list[Verb]] = {}

    def start(self) -> None:
        """Forget the lemmas of the last sentence."""
        self.used = []

    def chance(self, probability: float) -> bool:
        """True with a probability."""
        return self.draw() < probability

    def one(self, options: Sequence[T]) -> T:
        """One of the options, each as likely."""
        return options[int(self.draw() * len(options))]

    def pick(self, entries: Sequence[Entry]) -> Entry:
        """An entry not yet in the sentence: of three drawn at random, the one used least so far."""
        free = [entry for entry in entries if entry.id not in self.used]
        if not free:
            raise RetryError
        best = min((self.one(free) for _ in range(3)), key=lambda entry: self.counts[entry.id])
        return self.use(best)

    def use(self, entry: Entry) -> Entry:
        """Remember that the sentence uses an entry."""
        self.used.append(entry.id)
        return entry

    def item(self, kind: str, allowed: Callable[[Item], bool] = lambda _: True) -> Item:
        """A small entry of a kind."""
        return self.pick([item for item in self.lexicon.items[kind] if allowed(item)])

    def item_of(self, kind: str, ids: Sequence[str]) -> Text:
        """The text of one of these small entries."""
        item = self.item(kind, lambda i: i.id in ids)
        return Text(item.en, item.fr)

    def item_text(self, kind: str) -> Text:
        """The text of a small entry of a kind."""
        item = self.item(kind)
        return Text(item.en, item.fr)

    def verb(self, name: str) -> Verb:
        """A verb by its English base form."""
        return self.use(self.lexicon.verb(name))

    def verb_with(self, *frames: str, tense: str = "", without: Sequence[str] = ()) -> Verb:
        """A verb that has one of these frames or properties (objects, gives, habits) and suits the tense."""
        wish = (frames, tense, tuple(without))
        if wish not in self.suitable:
            self.suitable[wish] = [v for v in self.lexicon.verbs if v.suits(frames, tense, without)]
        return self.pick(self.suitable[wish])

    def verb_of(self, ids: Sequence[str]) -> Verb:
        """One of these verbs."""
        return self.pick([verb for verb in self.lexicon.verbs if verb.id in ids])

    def noun(self, wanted: Sequence[str], unwanted: Sequence[str] = ()) -> Noun:
        """A noun of one of these classes."""
        wish = (tuple(wanted), tuple(unwanted))
        if wish not in self.fitting:
            self.fitting[wish] = [noun for noun in self.lexicon.nouns if noun.fits(wanted, unwanted)]
        return self.pick(self.fitting[wish])

    def adjective(self, noun: Noun, *, predicative: bool = False, graded: bool = False) -> Adjective:
        """An adjective that fits a noun."""
        found = [
            adj
            for adj in self.lexicon.adjectives
            if adj.fits(noun) and (adj.predicative if predicative else adj.attributive) and (adj.more or not graded)
        ]
        return self.pick(found)

    def adjective_text(self, adj: Adjective, agreement: Agreement) -> Text:
        """An adjective in agreement."""
        return Text(adj.id.replace("_", " "), adj.form(agreement.gender, agreement.plural))

    def phrase(
        self,
        noun: Noun,
        dets: Sequence[str] = OBJECT,
        *,
        plural: bool | None = None,
        adjective: float = 0.5,
        owner: str = "",
    ) -> Phrase:
        """A noun phrase; `dets` are the determiners allowed, `adjective` the chance of one."""
        if plural is None:
            plural = noun.countable and self.chance(0.27) and not noun.fits(["single", "unique"])
            plural = plural or noun.fits(["several"])
        det = self._possible(noun, self.one(dets))
        plural = plural or det == "num"
        agreement = Agreement(noun.gender, plural)
        adj: Adjective | None = None
        if self.chance(adjective) and "kin" not in noun.tags:
            fitting = [a for a in self.lexicon.adjectives if a.attributive and a.fits(noun) and a.id not in self.used]
            adj = self.pick(fitting) if fitting else None
        return Phrase(self._realise(noun, det, agreement, adj, owner), agreement, noun)

    def _possible(self, noun: Noun, det: str) -> str:
        """The determiner, replaced where the noun does not take it."""
        if noun.fits(["unique"]):
            return "def"
        if noun.fits(["kin"]) and det != "num":
            return "poss"
        if det == "poss" and not noun.fits(OWN, NOT_OWN):
            return "def"
        return "indef" if det == "num" and not noun.countable else det

    def _realise(self, noun: Noun, det: str, agreement: Agreement, adj: Adjective | None, owner: str) -> Text:
        en_noun, fr_noun = noun.en[agreement.plural], noun.fr[agreement.plural]
        en_words, fr_words = en_noun, fr_noun
        if adj is not None:
            form = adj.form(agreement.gender, agreement.plural)
            if adj.special and form == adj.fr[0] and not agreement.plural:
                form = "~" + form
            en_words = words(adj.id.replace("_", " "), en_noun)
            fr_words = words(form, fr_noun) if adj.before else words(fr_noun, form)
        early = adj is not None and adj.before
        determiner = self._determiner(det, noun, agreement, owner, en_words, early)
        return determiner + Text(en_words, fr_words)

    def _determiner(self, det: str, noun: Noun, agreement: Agreement, owner: str, following: str, early: bool) -> Text:
        """The determiner's text; `early` tells that an adjective stands between it and the French noun."""
        kind = 2 if agreement.plural else int(agreement.gender == "f")
        definite = ("~le", "~la", "~les")[kind]
        if det in ("def", "bare"):
            return Text("the" if det == "def" else "", definite)
        if det == "this":
            return Text("these" if agreement.plural else "this", ("~ce", "cette", "ces")[kind])
        if det == "poss":
            owner = self._owner(noun, owner)
            item = next(i for i in self.lexicon.items["possessives"] if i.en == owner)
            form: str = item.extra["fr"][kind]
            return Text(self.use(item).en, "~" + form if form in ("ma", "sa") else form)
        if det == "num":
            return self.number(2, 5 if self.chance(0.8) else 10)
        if det in ("of", "zero"):
            return Text("", "de" if det == "of" else "")
        if det == "no":
            return Text("any" if agreement.plural or not noun.countable else article(following), "de")
        some = "" if det == "part" else "some"
        if agreement.plural:
            return Text(some, "de" if early else "des")
        if not noun.countable:
            return Text(some, "de " + definite)
        return Text(article(following), ("un", "une")[kind])

    def _owner(self, noun: Noun, owner: str) -> str:
        """The possessive that suits a noun: the one asked for, or another where that would be odd."""
        allowed = SPOUSE.get(noun.id, ("her", "their", "your") if noun.fits(["womens"]) else OWNERS)
        return owner if owner in allowed else self.one(allowed)

    def number(self, low: int, high: int) -> Text:
        """A number of the lexicon within bounds."""
        item = self.item("numbers", lambda i: low <= i.extra["value"] <= high)
        return Text(item.en, item.fr)

    def name(self) -> Subject:
        """A person called by name."""
        item = self.item("names")
        feminine = item.extra["gender"] == "f"
        like = PRONOUNS[3 if feminine else 2]
        return Subject(Text(item.en, item.fr), 2, like.agreement, like.owner, like.text)

    def named_pair(self) -> Subject:
        """Two persons called by name, of whom one at least is a man."""
        first, second = self.name(), self.name()
        if first.agreement.gender == "f" and second.agreement.gender == "f":
            raise RetryError
        text = first.text + Text("and", "et") + second.text
        return Subject(text, 5, Agreement("m", True), "their", PRONOUNS[5].text)

    def as_subject(self, phrase: Phrase) -> Subject:
        """A noun phrase as a subject."""
        slot, feminine = phrase.slot, phrase.agreement.gender == "f"
        owner = "their" if slot == 5 else "her" if feminine else "his"
        return Subject(phrase.text, slot, phrase.agreement, owner, phrase.nominative, phrase.noun)

    def person(self, *, plural: bool | None = None, adjective: float = 0.32) -> Subject:
        """A person as a noun phrase."""
        noun = self.noun(["kin"] if self.chance(0.42) else ["job", "people"])
        dets = ("my", "your", "his", "her", "our") if "kin" in noun.tags else ("def",) * 7 + ("this",)
        det = self.one(dets)
        if "kin" in noun.tags:
            return self.as_subject(self.phrase(noun, ("poss",), plural=plural, owner=det))
        return self.as_subject(self.phrase(noun, (det,), plural=plural, adjective=adjective))

    def relative(self) -> Subject:
        """A member of somebody's family or a friend."""
        return self.as_subject(self.phrase(self.noun(["kin"]), ("poss",), plural=False))

    def subject(self, *, verb: Verb | None = None, noun_share: float = 0.55, simple: bool = False) -> Subject:
        """A subject that suits the verb; `simple` leaves out noun phrases that a pronoun cannot take up again."""
        if verb is not None and "animal_subject" in verb.frames and self.chance(0.12):
            return self.as_subject(self.phrase(self.noun(["animal"]), ("def", "def", "this"), adjective=0.4))
        toss = self.draw()
        if toss < noun_share:
            subject = self.person()
            if simple and subject.slot == 5 and subject.agreement.gender == "f":
                raise RetryError
            return subject
        if toss < noun_share + 0.17:
            return self.name()
        if toss < noun_share + 0.21:
            return self.named_pair()
        return self.one(PRONOUNS)

    def third(self, *, name_share: float = 0.35) -> Subject:
        """A subject that is no pronoun."""
        return self.name() if self.chance(name_share) else self.person()

    def said(
        self,
        subject: Subject,
        verb: Verb,
        tense: str,
        *,
        negation: str = "",
        pronoun: Text | None = None,
        agreement: Agreement | None = None,
        adverb: Item | None = None,
        inside: bool = False,
    ) -> Text:
        """Subject and verb; `pronoun` is an object pronoun, `adverb` one of frequency (or of manner: `inside`)."""
        if agreement is None:
            agreement = subject.agreement if verb.auxiliary == "être" else Agreement()
        fr = self.french.verb(
            verb,
            tense,
            subject.slot,
            agreement,
            negation,
            pronoun.fr if pronoun else "",
            adverb.fr if adverb else "",
            inside,
        )
        frequent = adverb.en if adverb and not inside else ""
        en = english_verb(verb, tense, subject.slot, negation, frequent)
        after = adverb.en if adverb and inside else ""
        return subject.text + Text(words(en, pronoun.en if pronoun else "", after), fr)

    def asked(self, subject: Subject, verb: Verb, tense: str, agreement: Agreement | None = None) -> Text:
        """Subject and verb as a question, after a question word or none."""
        if agreement is None:
            agreement = subject.agreement if verb.auxiliary == "être" else Agreement()
        fr = self.french.verb(verb, tense, subject.slot, agreement)
        en = english_question(verb, tense, subject.slot, subject.text.en)
        return Text(en, words("est-ce que", subject.text.fr, fr))

    def object_noun(self, verb: Verb, kind: str = "objects") -> Noun:
        """A noun that the verb takes as its object (kind: objects, gives or habits)."""
        wanted: tuple[str, ...] = getattr(verb, kind)
        return self.noun(wanted, verb.unwanted if kind != "habits" else ())

    def object(self, verb: Verb, subject: Subject | None = None, *, definite: bool = False) -> Phrase:
        """An object of the verb, with determiners that suit them; the possessive is mostly the subject's own."""
        noun = self.object_noun(verb)
        man = subject is not None and subject.agreement.gender == "m"
        if noun.fits(["womens"]) and verb.id in ("wear", "lose", "forget") and man:
            raise RetryError
        dets: Sequence[str] = DEFINITE if definite else OBJECT
        if noun.fits(["person"]):
            dets = ("def", "def", "this")
        elif verb.id in ("lose", "forget"):
            dets = ("poss", "poss", "def")
        elif verb.id in DEFINED:
            dets = DEFINITE
        elif noun.fits(INDEFINITE_ONLY) and not definite:
            dets = ("indef", "indef", "indef", "def")
        owner = subject.owner if subject and self.chance(0.75) else ""
        if noun.id in ("television", "radio") and verb.id in ("watch", "listen_to"):
            return self.phrase(noun, ("def",), plural=False, adjective=0)
        several = False if verb.id == "build" else None
        if verb.id == "wear" and subject:
            several = subject.agreement.plural or noun.fits(["several"])
        return self.phrase(noun, dets, plural=several, owner=owner, adjective=0 if verb.id == "break" else 0.5)

    def degree(self, adj: Adjective, probability: float) -> Text:
        """Very or too, where the adjective allows it."""
        if not adj.more or not self.chance(probability):
            return Text()
        return self.item_of("degrees", ("very", "too") if adj.id in EXCESS else ("very",))

    def place(self, wanted: Sequence[str] = ("place",), *, adjective: float = 0.25) -> Text:
        """Where something is: a preposition and a place."""
        noun = self.pick([n for n in self.lexicon.nouns if n.where and n.fits(wanted)])
        assert noun.where is not None
        dets = ("def", "def", "def", "poss") if noun.fits(["ownplace"], ["house"]) else ("def",)
        dets = ("poss",) if noun.id == "house" else dets
        phrase = self.phrase(noun, dets, plural=False, adjective=adjective)
        return Text(noun.where[0], noun.where[1]) + phrase.text

    def where(self, verb: Verb) -> Text:
        """A place that suits an intransitive verb."""
        frames = verb.frames
        if "home" in frames:
            return self.region()
        if "workloc" in frames:
            return self.region() if self.chance(0.15) else self.place(("workplace",))
        if "waterloc" in frames:
            return self.place(("waterbody",))
        if "outloc" in frames or "fall" in frames:
            return self.place(("outdoor",))
        if "arr" in frames:
            return self.place(("workplace", "village")) if self.chance(0.5) else self.region("city")
        if "staying" in frames:
            return self.region() if self.chance(0.3) else self.place(("hotel", "house", "school", "office", "village"))
        return self.place(("park", "garden", "street", "beach", "kitchen", "school", "theatre", "house", "village"))

    def towards(self) -> Text:
        """Where someone goes: "to" and a place."""
        noun = self.noun(["dest"])
        return Text("to", "à") + self.phrase(noun, ("def",), plural=False, adjective=0.25).text

    def region(self, kind: str = "") -> Text:
        """In a city or a country."""
        item = self.item("regions", lambda i: kind in ("", i.extra["kind"]))
        return Text("in " + item.en, item.extra["in"])

    def region_to(self) -> Text:
        """To a city or a country."""
        item = self.item("regions")
        return Text("to " + item.en, item.extra["in"])

    def oclock(self) -> Text:
        """At an hour of the clock."""
        hour = self.number(2, 11)
        return Text(f"at {hour.en} o'clock", f"à {hour.fr} heures")

    def time(self, *when: str, long: bool = True) -> Text:
        """A time expression for a tense; `long` allows weeks, months and years."""
        item = self.item("times", lambda i: i.extra["when"] in when and (long or i.extra.get("span") != "long"))
        return Text(item.en, item.fr)

    def soon(self) -> Text:
        """A time expression from now to tomorrow."""
        return self.item_of("times", ("now", "tomorrow", "today", "tonight", "tomorrow_morning"))

    def arrival(self) -> Text:
        """Where somebody arrives."""
        return self.region("city") if self.chance(0.5) else self.place(("workplace",))

    def given(self, verb: Verb, subject: Subject, *, definite: bool = False) -> Phrase:
        """What somebody gives, shows, tells ... a person."""
        noun = self.object_noun(verb, "gives")
        dets: Sequence[str] = DEFINITE if definite else OBJECT
        if noun.fits(["edible", "drink"]) and not definite:
            dets = ("indef", "indef", "def")
        return self.phrase(noun, dets, owner=subject.owner)

    def company(self, subject: Subject) -> Text:
        """With somebody, for a subject that is a person."""
        if subject.tagged("animal"):
            return Text()
        if self.chance(0.4):
            return Text("with", "avec") + self.name().text
        noun = self.noun(["kin"])
        owner = subject.owner if self.chance(0.6) else self.one(("my", "your", "his", "her"))
        return Text("with", "avec") + self.phrase(noun, ("poss",), plural=False, owner=owner).text

    def maybe(self, probability: float, build: Callable[[], Text]) -> Text:
        """What `build` makes, or nothing."""
        return build() if self.chance(probability) else Text()

    def timed(
        self, clause: Text, tense: str, probability: float = 0.6, verb: Verb | None = None, *, front: bool = True
    ) -> Text:
        """The clause with a time expression that suits its tense and verb, mostly at the end, sometimes in front."""
        when = {"past": ("past",), "fut": ("future",), "going": ("future",), "prog": ("now",), "pres": ("habit",)}
        kinds = when.get(tense, ())
        if not kinds or not self.chance(probability):
            return clause
        frames = verb.frames if verb else frozenset(["brief"])
        unfit = "long" if "brief" in frames else "short" if frames & {"slow", "home"} else ""
        name = verb.id if verb else ""

        def fits(item: Item) -> bool:
            wrong = item.extra.get("span", "-") == unfit or name in item.extra.get("not", ())
            return item.extra["when"] in kinds and not wrong

        item = self.item("times", fits)
        if front and item.extra["front"] and self.chance(0.2):
            return Text(item.en + ",", item.fr + ",") + clause
        return clause + Text(item.en, item.fr)
