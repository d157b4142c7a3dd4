"""Sentence patterns with relative clauses, modal verbs and infinitives."""

from __future__ import annotations

from lexicon import Verb
from morphology import Agreement, words
from phrases import Maker
from texts import DIRECT, Phrase, RetryError, Sentence, Subject, Text, clash

PERSONAL = (
    "see",
    "watch",
    "listen_to",
    "hear",
    "know",
    "meet",
    "help",
    "invite",
    "thank",
    "call",
    "wait_for",
    "understand",
    "admire",
    "look_for",
)

YOUNG_KIN = ("son", "daughter", "brother", "sister", "cousin", "friend", "neighbour")


def who_clause(g: Maker) -> Sentence:
    """The man who is singing in the garden is my uncle."""
    noun = g.noun(["people", "job"], ["hero", "king", "queen"])
    phrase = g.phrase(noun, ("def",), adjective=0.2)
    inner = _relative_body(g, phrase)
    be_verb = g.verb("be")
    outer = g.as_subject(Phrase(phrase.text + inner, phrase.agreement, noun))
    if g.chance(0.45) and not phrase.agreement.plural:
        kind = YOUNG_KIN if noun.fits(["kid", "student"]) else ("kin",)
        kin = [n for n in g.lexicon.nouns if n.fits(kind) and n.gender == noun.gender]
        rest = g.phrase(g.pick(kin), ("poss",), plural=False).text
    else:
        adj = g.adjective(noun, predicative=True)
        rest = g.degree(adj, 0.3) + g.adjective_text(adj, phrase.agreement)
    return Sentence(g.said(outer, be_verb, "pres") + rest)


def _relative_body(g: Maker, phrase: Phrase) -> Text:
    """The clause "who ..." about a phrase."""
    link = Subject(Text("who", "qui"), phrase.slot, phrase.agreement, g.as_subject(phrase).owner, Text())
    if g.chance(0.45):
        verb = g.verb_with("loc", "workloc", "waterloc", "home", "outloc", tense="prog", without=("objects",))
        return g.said(link, verb, "pres" if "home" in verb.frames else "prog") + g.where(verb)
    tense = g.one(("past", "prog"))
    verb = g.verb_with("objects", tense=tense)
    return g.said(link, verb, tense) + g.object(verb, link).text


def know_who(g: Maker) -> Sentence:
    """I know the woman who sold the house."""
    subject, verb = g.subject(), g.verb("know")
    noun = g.noun(["people", "job"], ["king", "queen"])
    phrase = g.phrase(noun, ("def", "indef", "def"), adjective=0.25)
    negation = "pas" if g.chance(0.25) else ""
    if negation and phrase.text.en.startswith(("a ", "an ", "some ")):
        raise RetryError
    return Sentence(g.said(subject, verb, "pres", negation=negation) + phrase.text + _relative_body(g, phrase))


def that_clause(g: Maker) -> Sentence:
    """The dress that I bought yesterday is too expensive."""
    verb = g.verb_with("objects", tense="past")
    noun = g.object_noun(verb)
    if noun.fits(["person", "unique", "mass"]) or verb.id in ("know", "understand", "break", "lose"):
        raise RetryError
    phrase = g.phrase(noun, ("def",), adjective=0.1)
    adj = g.adjective(noun, predicative=True)
    inner = g.said(g.subject(noun_share=0.35), verb, "past", agreement=phrase.agreement)
    time = g.maybe(0.35, lambda: g.time("past"))
    whole = Phrase(phrase.text + Text("that", "que") + inner + time, phrase.agreement, noun)
    degree = g.degree(adj, 0.3)
    text = g.said(g.as_subject(whole), g.verb("be"), g.one(("pres", "pres", "past")))
    return Sentence(text + degree + g.adjective_text(adj, phrase.agreement))


def here_is_that(g: Maker) -> Sentence:
    """This is the book that my father wrote."""
    verb = g.verb_with("objects", tense="past")
    noun = g.object_noun(verb)
    if noun.fits(["unique", "kin"]) or not noun.countable:
        raise RetryError
    phrase = g.phrase(noun, ("def",), adjective=0.3, plural=g.chance(0.25))
    inner = g.said(g.subject(noun_share=0.45), verb, "past", agreement=phrase.agreement)
    start = Text("these are", "ce sont") if phrase.agreement.plural else Text("this is", "c'est")
    g.use(g.lexicon.verb("be"))
    return Sentence(start + phrase.text + Text("that", "que") + inner + g.maybe(0.3, lambda: g.time("past")))


def _modal(g: Maker, modal: str, negation: str) -> Text:
    """A modal verb with an infinitive and its complements."""
    subject, helper = g.subject(), g.verb(modal)
    finite = g.french.verb(helper, "pres", subject.slot, Agreement(), negation)
    if modal == "want":
        en = words(g.said(subject, helper, "pres", negation=negation).en, "to")
    else:
        negated = "cannot" if modal == "can" else "must not"
        en = words(subject.text.en, negated if negation else modal)
    if g.chance(0.3):
        verb = g.verb_with("loc", "workloc", "waterloc", "staying", "dest", "reflexive", without=("objects",))
        if verb.id in ("cry", "laugh"):
            raise RetryError
        rest = g.towards() if "dest" in verb.frames else Text() if "reflexive" in verb.frames else g.where(verb)
    else:
        verb = g.verb_with("objects", tense="going", without=("none", "mishap"))
        if verb.id == "receive" or ("stative" in verb.frames and (modal != "can" or not negation)):
            raise RetryError
        rest = g.object(verb, subject, definite=bool(negation)).text
    infinitive = g.french.infinitive(verb, subject.slot)
    return Text(en, words(subject.text.fr, finite)) + Text(verb.base, infinitive) + rest


def can(g: Maker) -> Sentence:
    """The farmer can repair your car tomorrow; I cannot open this door."""
    negation = "pas" if g.chance(0.4) else ""
    return Sentence(_modal(g, "can", negation) + g.maybe(0.3, g.soon))


def must(g: Maker) -> Sentence:
    """You must wash the plates."""
    negation = "pas" if g.chance(0.25) else ""
    return Sentence(_modal(g, "must", negation) + g.maybe(0.25, g.soon))


def want(g: Maker) -> Sentence:
    """They want to buy a big house."""
    negation = "pas" if g.chance(0.25) else ""
    return Sentence(_modal(g, "want", negation) + g.maybe(0.2, g.soon))


def want_pronoun(g: Maker) -> Sentence:
    """She wants to invite them tomorrow."""
    modal = g.one(("want", "can", "must"))
    subject, helper, verb = g.subject(), g.verb(modal), g.verb_with("objects")
    pronoun, _, slot = g.one(DIRECT)
    same = clash(subject, slot)
    if verb.id not in PERSONAL or verb.id in ("hear", "know", "look_for", "understand", "admire") or same:
        raise RetryError
    negation = "pas" if g.chance(0.3) else ""
    finite = g.french.verb(helper, "pres", subject.slot, Agreement(), negation)
    if modal == "want":
        en = words(g.said(subject, helper, "pres", negation=negation).en, "to")
    else:
        en = words(subject.text.en, {"can": "cannot", "must": "must not"}[modal] if negation else modal)
    text = Text(words(en, verb.base, pronoun.en), words(subject.text.fr, finite, pronoun.fr, verb.fr))
    return Sentence(text + g.maybe(0.45, g.soon))


def need(g: Maker) -> Sentence:
    """We need a new lamp for the kitchen."""
    subject, verb = g.subject(), g.verb("need")
    noun = g.noun(
        ["tool", "dishware", "clothing", "losable", "food", "device", "vehicle", "dictionary", "money", "job"],
        ["ring", "toy", "bus", "train", "plane"],
    )
    phrase = g.phrase(
        noun,
        ("indef", "num", "this") if noun.countable else ("zero",),
        adjective=0.3,
        plural=False if noun.countable and not noun.fits(["several"]) else None,
    )
    negation = "pas" if g.chance(0.25) else ""
    text = g.said(subject, verb, g.one(("pres", "pres", "fut")), negation=negation)
    return Sentence(text + Text("", "besoin de") + phrase.text + g.maybe(0.25, lambda: _for(g)))


def _for(g: Maker) -> Text:
    """For somebody."""
    return Text("for", "pour") + g.third(name_share=0.3).text


def for_somebody(g: Maker) -> Sentence:
    """My aunt is preparing a cake for the children."""
    verb = g.verb_with("objects", tense="past")
    if verb.id not in (
        "buy",
        "prepare",
        "choose",
        "open",
        "draw",
        "write",
        "order",
        "find",
        "bring",
        "keep",
        "build",
        "translate",
        "repair",
        "paint",
        "clean",
    ):
        raise RetryError
    tense = g.one(("past", "prog", "fut")) if verb.id != "find" else "past"
    subject = g.subject()
    return Sentence(g.timed(g.said(subject, verb, tense) + g.object(verb, subject).text + _for(g), tense, 0.3))


def like_to(g: Maker) -> Sentence:
    """He likes to swim in the lake in summer."""
    subject, taste = g.subject(), g.verb_with("taste")
    negation = "pas" if taste.id == "like" and g.chance(0.35) else ""
    if g.chance(0.5):
        verb = g.verb_with("loc", "waterloc", "outloc", "trip", "workloc", without=("arr", "fall"))
        if verb.id == "cry":
            raise RetryError
        rest = g.region("country") if "trip" in verb.frames else g.where(verb)
    else:
        verb = g.verb_with("habits")
        rest = in_general(g, verb).text
    text = g.said(subject, taste, "pres", negation=negation) + Text("to " + verb.base, verb.fr) + rest
    return Sentence(text + g.maybe(0.35, lambda: g.time("season", "habit")))


def in_general(g: Maker, verb: Verb, mood: str = "") -> Phrase:
    """What one regularly eats, reads, cleans ..., in general terms."""
    noun = g.object_noun(verb, "habits")
    if (mood == "thirsty" and not noun.fits(["drink"])) or (mood == "hungry" and noun.fits(["drink"])):
        raise RetryError
    dets = ("part",) if noun.fits(["food", "drink", "text", "nature", "clothing"]) else ("def",)
    plural = noun.countable and not noun.fits(["unique", "single", "pool"]) and not noun.fits(["place", "device"])
    return g.phrase(noun, dets, plural=plural, adjective=0.0 if mood else 0.25)


def just(g: Maker) -> Sentence:
    """The postman has just arrived; she has just finished the book."""
    subject = g.subject(noun_share=0.5)
    if g.chance(0.35):
        verb = g.pick([v for v in g.lexicon.verbs if v.auxiliary == "être" and "none" in v.frames])
        place = g.maybe(0.6, g.arrival) if verb.id == "arrive" else Text()
        return Sentence(g.said(subject, verb, "just") + (place if verb.id != "fall" else Text()))
    verb = g.verb_with("objects")
    if verb.id in ("know", "use", "keep", "look_for", "wear", "understand", "admire", "carry", "wait_for"):
        raise RetryError
    return Sentence(g.said(subject, verb, "just") + g.object(verb, subject).text)


PATTERNS = (
    who_clause,
    know_who,
    that_clause,
    here_is_that,
    can,
    must,
    want,
    want_pronoun,
    need,
    for_somebody,
    like_to,
    just,
)
