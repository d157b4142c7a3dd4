"""Sentence patterns about what people do: actions on objects, movement, places, games and quantities."""

from __future__ import annotations

from lexicon import Verb
from phrases import Maker
from texts import Phrase, RetryError, Sentence, Subject, Text


def _object_clause(g: Maker, tense: str, probability: float, *, negation: str = "") -> Text:
    """Subject, verb, object and perhaps a time expression."""
    verb = g.verb_with("objects", tense=tense)
    subject = g.subject()
    text = g.said(subject, verb, tense, negation=negation) + g.object(verb, subject, definite=bool(negation)).text
    return g.timed(text, tense, probability, verb)


def object_now(g: Maker) -> Sentence:
    """She is reading a good book at the moment."""
    return Sentence(_object_clause(g, "prog", 0.6))


def object_past(g: Maker) -> Sentence:
    """The farmer sold two cows last week."""
    return Sentence(_object_clause(g, "past", 0.75))


def object_future(g: Maker) -> Sentence:
    """We will buy the new car tomorrow."""
    return Sentence(_object_clause(g, "fut", 0.75))


def object_going(g: Maker) -> Sentence:
    """I am going to wash my shirt."""
    return Sentence(_object_clause(g, "going", 0.6))


def object_habit(g: Maker) -> Sentence:
    """My sister reads the newspaper every morning."""
    verb = g.verb_with("habits", tense="pres")
    subject = g.subject()
    if g.chance(0.4):
        adverb = g.item("frequencies")
        return Sentence(g.said(subject, verb, "pres", adverb=adverb) + _habit_object(g, verb, subject).text)
    return Sentence(g.timed(g.said(subject, verb, "pres") + _habit_object(g, verb, subject).text, "pres", 1.0))


def _habit_object(g: Maker, verb: Verb, subject: Subject) -> Phrase:
    noun = g.object_noun(verb, "habits")
    dets: tuple[str, ...] = ("def",) if noun.fits(["part", "place", "person", "device"]) else ("def", "poss")
    if noun.fits(["food", "drink", "text", "nature", "transport"]):
        dets = ("part",)
    if noun.fits(["womens"]) and subject.agreement.gender == "m":
        raise RetryError
    plural = True if verb.id == "wear" and subject.agreement.plural else None
    return g.phrase(noun, dets, plural=plural, owner=subject.owner, adjective=0.25)


def object_used(g: Maker) -> Sentence:
    """He used to drive a red truck."""
    verb = g.verb_with("habits", tense="used")
    subject = g.subject()
    text = g.said(subject, verb, "used") + _habit_object(g, verb, subject).text
    return Sentence(text + g.maybe(0.6, lambda: g.time("habit", "season")))


def object_negated(g: Maker) -> Sentence:
    """They are not cleaning the kitchen; she did not find her key yesterday."""
    return Sentence(_object_clause(g, g.one(("prog", "past", "past", "fut")), 0.4, negation="pas"))


def without(g: Maker) -> Sentence:
    """We do not have any bread."""
    subject = g.subject()
    if g.chance(0.4):
        verb = g.verb("have")
        noun = g.noun(["food", "drink", "publication", "pet", "vehicle", "device"], ["train", "plane", "bus"])
    else:
        verb = g.verb_with("objects")
        noun = g.object_noun(verb)
        if verb.id not in ("eat", "drink", "buy", "sell", "order", "bring", "read", "write", "receive", "use"):
            raise RetryError
        if not noun.fits(["food", "drink", "text", "nature", "clothing"]):
            raise RetryError
    tense = g.one(("pres", "past", "fut")) if verb.id != "have" else g.one(("pres", "fut"))
    plural = noun.countable and (verb.id != "have" or noun.fits(["food"]) or g.chance(0.3))
    phrase = g.phrase(noun, ("no",), plural=plural, adjective=0.2)
    share = 0.0 if verb.id == "have" or tense == "pres" else 0.4
    return Sentence(g.timed(g.said(subject, verb, tense, negation="pas") + phrase.text, tense, share, verb))


def never(g: Maker) -> Sentence:
    """My brother never drinks coffee."""
    verb = g.verb_with("habits", tense="pres")
    subject = g.subject()
    tense = g.one(("pres", "pres", "fut"))
    return Sentence(g.said(subject, verb, tense, negation="jamais") + _never_object(g, verb, subject).text)


def _never_object(g: Maker, verb: Verb, subject: Subject) -> Phrase:
    noun = g.object_noun(verb, "habits")
    if noun.fits(["food", "drink"]):
        return g.phrase(noun, ("of",), plural=noun.countable, adjective=0.25)
    return g.phrase(noun, ("def", "poss", "this"), owner=subject.owner, adjective=0.25)


def no_longer(g: Maker) -> Sentence:
    """The nurse no longer works at the hospital."""
    if g.chance(0.4):
        verb, subject = g.verb_with("habits", tense="pres"), g.subject()
        return Sentence(g.said(subject, verb, "pres", negation="plus") + _never_object(g, verb, subject).text)
    verb = g.verb_with("workloc", "waterloc", "home", "loc", tense="pres")
    return Sentence(g.said(g.subject(), verb, "pres", negation="plus") + g.where(verb))


PLACED = ("loc", "workloc", "waterloc", "outloc", "fall", "arr", "staying", "home")


def _acting(g: Maker, tense: str, frames: tuple[str, ...], company: float, time: float) -> Sentence:
    """Somebody does something somewhere, perhaps with somebody."""
    verb = g.verb_with(*frames, tense=tense, without=("fall",) if tense == "fut" else ())
    subject = g.subject(verb=verb)
    clause = g.said(subject, verb, tense) + g.where(verb)
    return Sentence(g.timed(clause + g.maybe(company, lambda: g.company(subject)), tense, time, verb))


def acting_now(g: Maker) -> Sentence:
    """The children are dancing in the garden."""
    return _acting(g, "prog", ("loc", "workloc", "waterloc", "outloc"), 0.35, 0.55)


def acting_past(g: Maker) -> Sentence:
    """We stayed at the hotel with Paul last week."""
    return _acting(g, "past", PLACED, 0.35, 0.6)


def acting_future(g: Maker) -> Sentence:
    """The tourists will arrive at the airport tonight."""
    return _acting(g, "fut", PLACED, 0.3, 0.7)


def acting_used(g: Maker) -> Sentence:
    """She used to work at the bank."""
    return _acting(g, "used", ("loc", "workloc", "waterloc", "outloc", "home"), 0.5, 0)


def manner(g: Maker) -> Sentence:
    """Emma speaks slowly; he slept badly last night."""
    verb = g.verb_with("manner")
    tense = g.one(("pres", "past", "fut", "prog"))
    adverb = g.item("manners", lambda i: verb.base in i.extra["verbs"])
    inside = bool(adverb.extra["inside"])
    subject = g.subject(verb=verb)
    if inside:
        text = g.said(subject, verb, tense, adverb=adverb, inside=True)
    else:
        text = g.said(subject, verb, tense) + Text(adverb.en, adverb.fr)
    return Sentence(g.timed(text, tense, 0.0 if verb.id == "sleep" and tense in ("pres", "prog") else 0.7, verb))


def going_to(g: Maker) -> Sentence:
    """She went to the market yesterday."""
    verb, subject = g.verb_with("dest"), g.subject()
    tense = g.one(("past", "past", "fut", "pres"))
    adverb = g.item("frequencies") if tense == "pres" and g.chance(0.5) else None
    clause = g.said(subject, verb, tense, adverb=adverb) + (g.region_to() if tense != "pres" and g.chance(0.3) else g.towards())
    if adverb:
        return Sentence(clause + g.maybe(0.4, lambda: g.company(subject)))
    company = g.maybe(0.25, lambda: g.company(subject))
    return Sentence(g.timed(clause + company, tense, 1.0 if tense == "pres" else 0.55))


def coming_and_leaving(g: Maker) -> Sentence:
    """My aunts left yesterday with their friend; the train will arrive at eight o'clock."""
    verb = g.verb_with("arr", "from", "none", without=("manner", "loc", "trip", "reflexive", "fall", "objects"))
    if verb.auxiliary != "être":
        raise RetryError
    tense = g.one(("past", "past", "fut", "pres"))
    if verb.id in ("arrive", "leave") and g.chance(0.4):
        transport = g.noun(["train", "bus", "plane", "boat"])
        subject = g.as_subject(g.phrase(transport, ("def",), plural=False, adjective=0.15))
        return Sentence(g.timed(g.said(subject, verb, tense) + g.oclock(), tense, 0.5))
    subject = g.subject(noun_share=0.5)
    clause = g.said(subject, verb, tense) + g.maybe(0.5, lambda: g.company(subject)) + g.maybe(0.3, g.oclock)
    return Sentence(g.timed(clause, tense, 1.0 if tense == "pres" else 0.85))


def entering(g: Maker) -> Sentence:
    """The king entered the castle."""
    verb = g.verb("enter")
    tense = g.one(("past", "past", "fut", "prog"))
    subject = g.subject()
    noun = g.noun(["building", "room", "park", "garden", "forest", "village"], ["tower"])
    phrase = g.phrase(noun, ("def", "def", "this", "poss"), plural=False, owner=subject.owner, adjective=0.3)
    clause = g.said(subject, verb, tense) + Text("", "dans") + phrase.text
    return Sentence(g.timed(clause + g.maybe(0.25, lambda: g.company(subject)), tense, 0.4))


def reflexive(g: Maker) -> Sentence:
    """She got up at seven o'clock this morning."""
    verb = g.verb_with("reflexive")
    tense = g.one(("past", "past", "fut", "prog", "pres"))
    negation = "pas" if g.chance(0.2) else ""
    clause = g.said(g.subject(), verb, tense, negation=negation)
    if verb.id in ("wake_up", "get_up", "get_dressed") and tense != "prog" and g.chance(0.5):
        clause += g.oclock()
    return Sentence(g.timed(clause, tense, 0.85, verb))


def living(g: Maker) -> Sentence:
    """My uncle lives in Canada with his son."""
    verb = g.verb("live")
    subject = g.subject(noun_share=0.55)
    negation = "pas" if g.chance(0.2) else ""
    where = g.region() if g.chance(0.75) else g.place(("village", "house", "castle", "farm", "city", "island"))
    return Sentence(g.said(subject, verb, "pres", negation=negation) + where + g.maybe(0.4, lambda: g.company(subject)))


def origin(g: Maker) -> Sentence:
    """These tourists come from Italy."""
    verb = g.verb("come") if g.chance(0.7) else g.verb("come back")
    item = g.item("regions")
    tense = g.one(("fut", "past")) if verb.id == "come_back" else "pres"
    origin_text = Text("from " + item.en, item.extra["from"])
    return Sentence(g.timed(g.said(g.subject(), verb, tense) + origin_text, tense if tense != "pres" else "", 0.7))


def travelling(g: Maker) -> Sentence:
    """We will travel to Spain by train."""
    verb = g.verb("travel") if g.chance(0.5) else g.verb("go")
    tense = g.one(("past", "fut", "going"))
    where = g.region("country") if verb.id == "travel" else g.region_to()
    means = g.noun(["car", "bus", "train"] if verb.id == "travel" else ["car", "bus", "train", "plane"])
    clause = g.said(g.subject(), verb, tense) + where + Text("by " + means.en[0], "en " + means.fr[0])
    return Sentence(g.timed(clause, tense, 0.4, verb))


def playing(g: Maker) -> Sentence:
    """They play football in the park on Sundays."""
    verb, subject = g.verb("play"), g.subject()
    tense = g.one(("pres", "pres", "past", "fut", "prog", "used"))
    if g.chance(0.5):
        noun = g.lexicon.noun("guitar") if g.chance(0.6) else g.lexicon.noun("violin")
        game = Text("the " + noun.en[0], "de " + ("~la " if noun.gender == "f" else "~le ") + noun.fr[0])
        g.use(noun)
        where = g.maybe(0.4, lambda: g.company(subject))
    else:
        noun = g.noun(["pastime"], ["art"])
        game = Text(noun.en[0], "à ~le " + noun.fr[0])
        where = g.maybe(0.3, lambda: g.place(("park", "garden", "street", "school"))) + g.maybe(0.3, lambda: g.company(subject))
    adverb = g.item("frequencies") if tense == "pres" and g.chance(0.7) else None
    clause = g.said(subject, verb, tense, adverb=adverb) + game + where
    return Sentence(g.timed(clause, tense, 0.0 if adverb else 0.6))


def quantity(g: Maker) -> Sentence:
    """She drank a glass of cold water; we bought a lot of apples."""
    verb = g.verb_with("objects")
    if verb.id not in ("drink", "buy", "order", "bring", "eat", "prepare", "sell"):
        raise RetryError
    noun, tense = g.object_noun(verb), g.one(("past", "fut", "prog"))
    if not noun.fits(["food", "drink"]):
        raise RetryError
    if noun.fits(["drink"]) and g.chance(0.6):
        measure = g.noun(["glass", "cup"] if noun.fits(["coffee", "tea"]) else ["glass", "bottle"], ["coffee"])
        amount = g.phrase(measure, ("indef", "num"), adjective=0).text + Text("of", "")
    else:
        amount = g.one((Text("a lot of", "beaucoup"), Text("too much" if not noun.countable else "too many", "trop")))
    thing = g.phrase(noun, ("of",), plural=noun.countable, adjective=0.25)
    return Sentence(g.timed(g.said(g.subject(), verb, tense) + amount + thing.text, tense, 0.35))


PATTERNS = (
    object_now,
    object_past,
    object_future,
    object_going,
    object_habit,
    object_used,
    object_negated,
    without,
    never,
    no_longer,
    acting_now,
    acting_past,
    acting_future,
    acting_used,
    manner,
    going_to,
    coming_and_leaving,
    entering,
    reflexive,
    living,
    origin,
    travelling,
    playing,
    quantity,
)
