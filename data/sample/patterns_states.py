"""Sentence patterns about how things are: being, having, owning, comparing, places, weather, age and tastes."""

from __future__ import annotations

from lexicon import Noun
from morphology import Agreement, english_verb
from phrases import Maker
from texts import PRONOUNS, STRESSED, Phrase, RetryError, Sentence, Subject, Text


def profession(g: Maker) -> Sentence:
    """My uncle is a baker."""
    toss = g.draw()
    subject = g.name() if toss < 0.35 else g.one(PRONOUNS) if toss < 0.65 else g.relative()
    noun = g.noun(["job"])
    if subject.agreement.plural or noun.gender != subject.agreement.gender:
        raise RetryError
    tense, negation = g.one((("pres", ""), ("pres", "pas"), ("past", ""), ("used", ""), ("fut", "")))
    text = g.said(subject, g.verb("be"), tense, negation=negation)
    return Sentence(text + Text(g.phrase(noun, ("indef",), plural=False, adjective=0).text.en, noun.fr[0]))


PASSING = ("happy", "sad", "tired", "sick", "angry", "worried", "ready", "busy", "alone", "proud", "calm")


def feeling(g: Maker) -> Sentence:
    """The students were very happy yesterday."""
    subject = g.subject(noun_share=0.5)
    adj = g.adjective(g.lexicon.noun("man"), predicative=True)
    tense = g.one(("pres", "pres", "past", "fut"))
    negation = g.one(("", "", "pas", "jamais", "plus")) if tense == "pres" else g.one(("", "", "pas"))
    degree = g.degree(adj, 0.4) if not negation else Text()
    quality = g.adjective_text(adj, subject.agreement)
    text = g.said(subject, g.verb("be"), tense, negation=negation) + degree + quality
    if negation in ("jamais", "plus") and adj.id not in PASSING:
        raise RetryError
    passing = adj.id in PASSING and not negation
    return Sentence(g.timed(text, tense if tense != "pres" else "prog", 0.65 if passing else 0.0))


def quality(g: Maker) -> Sentence:
    """The soup is too salty; these shoes were expensive."""
    noun = g.noun(["food", "drink", "clothing", "furniture", "object", "text", "vehicle", "place", "animal", "nature"])
    adj = g.adjective(noun, predicative=True)
    phrase = g.phrase(noun, ("def", "def", "poss", "this"), adjective=0)
    tense = g.one(("pres", "pres", "past"))
    negation = "pas" if g.chance(0.2) else ""
    degree = g.degree(adj, 0.5) if not negation else Text()
    text = g.said(g.as_subject(phrase), g.verb("be"), tense, negation=negation) + degree
    return Sentence(text + g.adjective_text(adj, phrase.agreement))


def owners_thing(g: Maker) -> Sentence:
    """The teacher's car is red."""
    owner = g.third()
    noun = g.noun(["clothing", "object", "vehicle", "pet", "house", "garden", "publication"], ["plane", "bus", "train"])
    if noun.fits(["womens"]) and owner.agreement.gender == "m":
        raise RetryError
    adj = g.adjective(noun, predicative=True)
    plural = noun.countable and g.chance(0.3) and not noun.fits(["house"])
    agreement = Agreement(noun.gender, plural)
    subject = g.as_subject(Phrase(possessed(g, owner, noun.en[plural], noun.fr[plural], agreement), agreement, noun))
    text = g.said(subject, g.verb("be"), g.one(("pres", "pres", "past")))
    return Sentence(text + g.degree(adj, 0.3) + g.adjective_text(adj, agreement))


def possessed(g: Maker, owner: Subject, en: str, fr: str, agreement: Agreement) -> Text:
    """The thing of an owner: "the teacher's car", "la voiture du professeur"."""
    mark = "'" if owner.slot == 5 and owner.text.en.endswith("s") else "'s"
    definite = "~les" if agreement.plural else "~la" if agreement.gender == "f" else "~le"
    return Text(f"{owner.text.en}{mark} {en}", f"{definite} {fr} de {owner.text.fr}")


def owners_object(g: Maker) -> Sentence:
    """I found my brother's keys."""
    verb = g.verb_with("objects", tense="past", without=("mishap",))
    noun = g.object_noun(verb)
    if verb.id == "wear" or not noun.fits(
        ["clothing", "object", "vehicle", "pet", "publication", "house"], ["train", "bus", "plane"]
    ):
        raise RetryError
    owner, tense = g.third(), g.one(("past", "past", "fut", "going"))
    if noun.fits(["womens"]) and owner.agreement.gender == "m":
        raise RetryError
    plural = noun.countable and g.chance(0.35) and noun.id != "house"
    thing = possessed(g, owner, noun.en[plural], noun.fr[plural], Agreement(noun.gender, plural))
    return Sentence(g.timed(g.said(g.one(PRONOUNS), verb, tense) + thing, tense, 0.3))


def _compared(g: Maker, en: tuple[str, str], fr: tuple[str, str], comparative: bool) -> Text:
    """Somebody or something compared with another; the pairs stand before and after the adjective."""
    if g.chance(0.5):
        adj = g.adjective(g.lexicon.noun("man"), predicative=True, graded=True)
        first, second = g.subject(noun_share=0.52), g.third()
        other = g.one([s for s in PRONOUNS if s.slot != first.slot]) if g.chance(0.2) else None
        second_text = STRESSED[other.owner] if other else second.text
    else:
        noun = g.noun(["animal", "clothing", "furniture", "vehicle", "building", "text", "drink", "food", "object"])
        adj = g.adjective(noun, predicative=True, graded=True)
        kinds = ("animal", "clothing", "furniture", "vehicle", "building", "text", "drink", "food", "object")
        kind = next(k for k in kinds if k in noun.tags)
        near = [n for n in g.lexicon.nouns if adj.fits(n) and kind in n.tags and n.countable == noun.countable]
        rival, det, plural = g.pick(near), g.one(("def", "this", "poss")), noun.countable and g.chance(0.25)
        owner = g.one(("my", "your", "his", "her", "our"))
        first = g.as_subject(g.phrase(noun, (det,), plural=plural, adjective=0, owner=owner))
        second_text = g.phrase(rival, ("def", "poss"), plural=plural, adjective=0, owner=owner).text
    word = g.adjective_text(adj, first.agreement)
    shown = Text(adj.more if comparative else word.en, word.fr)
    middle = Text(en[0], fr[0]) + shown + Text(en[1], fr[1])
    return g.said(first, g.verb("be"), "pres") + middle + second_text


def more_than(g: Maker) -> Sentence:
    """The lion is stronger than the wolf."""
    return Sentence(_compared(g, ("", "than"), ("plus", "que"), True))


def as_as(g: Maker) -> Sentence:
    """She is as tall as her brother."""
    return Sentence(_compared(g, ("as", "as"), ("aussi", "que"), False))


def there_is(g: Maker) -> Sentence:
    """There are three cats under the table."""
    noun, where = _thing_and_place(g)
    phrase = g.phrase(noun, ("indef", "indef", "num"), adjective=0.4)
    past = g.chance(0.3)
    if "empty" in g.used:
        raise RetryError
    verb = english_verb(g.lexicon.verb("be"), "past" if past else "pres", phrase.slot)
    return Sentence(Text("there " + verb, "il y avait" if past else "il y a") + phrase.text + where)


def there_is_no(g: Maker) -> Sentence:
    """There is no milk in the bottle."""
    noun, where = _thing_and_place(g)
    plural = noun.countable and g.chance(0.6)
    phrase = g.phrase(noun, ("of",), plural=plural, adjective=0.2)
    if "empty" in g.used:
        raise RetryError
    verb = english_verb(g.lexicon.verb("be"), "pres", phrase.slot)
    return Sentence(Text(f"there {verb} no", "il n'y a pas") + phrase.text + where)


def _thing_and_place(g: Maker) -> tuple[Noun, Text]:
    """A thing and where it is found."""
    toss = g.draw()
    if toss < 0.25:
        noun = g.noun(["drink"])
        vessel = g.phrase(g.noun(["bottle", "glass", "cup"]), ("def", "poss", "this"), plural=False, adjective=0.3)
        return noun, Text("in", "dans") + vessel.text
    if toss < 0.55:
        noun = g.noun(["food", "dishware", "publication", "letter", "losable", "lamp"])
        spot = g.phrase(g.noun(["table", "chair", "bed"]), ("def", "poss"), plural=False, adjective=0.3)
        return noun, Text("on", "sur") + spot.text
    if toss < 0.75:
        noun = g.noun(["clothing", "losable", "publication", "fruit"], ["bag", "box", "suitcase"])
        holder = g.phrase(g.noun(["bag", "box", "suitcase"]), ("def", "poss", "this"), plural=False, adjective=0.3)
        return noun, Text("in", "dans") + holder.text
    noun = g.noun(["pet", "vehicle", "people", "tree", "flower"], ["plane", "train", "boat", "king", "queen"])
    if g.chance(0.4):
        return noun, g.place(("street", "garden", "park", "village", "farm"))
    spot = g.phrase(g.noun(["building", "tree", "tower"]), ("def",), plural=False, adjective=0.3)
    position = g.item("positions", lambda i: i.en != "under")
    return noun, Text(position.en, position.fr) + spot.text


def located(g: Maker) -> Sentence:
    """The cat is under the chair; my car is behind the church."""
    position = g.item("positions")
    verb = g.verb("be")
    tense, negation = g.one((("pres", ""), ("pres", "pas"), ("past", "")))
    if position.en == "under" or g.chance(0.5):
        thing = g.noun(["pet", "port", "ball"], ["flower", "rose"])
        spot = g.noun(["table", "bed", "chair", "tree", "car"] if position.en == "under" else ["furniture", "door"])
    else:
        thing = g.noun(["car", "bicycle", "truck", "bus", "building"], ["tower"])
        spot = g.noun(["building", "tree", "river", "park", "sea", "lake", "mountain"])
    first = g.phrase(thing, ("def", "poss"), adjective=0.25)
    second = g.phrase(spot, ("def",), plural=False, adjective=0.25)
    place = Text(position.en, position.fr) + second.text
    return Sentence(g.said(g.as_subject(first), verb, tense, negation=negation) + place)


def weather(g: Maker) -> Sentence:
    """It was raining in Paris yesterday."""
    item = g.item("weather")
    index, when = g.one(((0, "now"), (1, "past"), (2, "future")))
    text = Text(item.extra["en"][index], item.extra["fr"][index])
    where = g.region() if g.chance(0.7) else g.place(("village", "mountain", "island", "beach", "city", "forest"))
    return Sentence(text + where + g.maybe(0.85, lambda: g.time(when, long=False)))


def age(g: Maker) -> Sentence:
    """My brother is ten years old."""
    if g.chance(0.65):
        subject = g.subject(noun_share=0.55)
        grown = subject.tagged("adult", "single", "uncle", "aunt", "student")
        number = g.number(20, 40) if grown else g.number(2, 11) if subject.tagged("kid") else g.number(4, 40)
    else:
        pet = g.phrase(g.noun(["pet", "horse", "tree", "car", "house"]), ("poss", "this"), plural=False, adjective=0.3)
        subject, number = g.as_subject(pet), g.number(2, 20)
    tense, negation = g.one((("pres", ""), ("pres", "pas"), ("past", ""), ("fut", "")))
    be, have = g.verb("be"), g.lexicon.verb("have")
    en = g.said(subject, be, tense, negation=negation).en
    fr = g.said(subject, have, "pprog" if tense == "past" else tense, negation=negation).fr
    return Sentence(Text(en, fr) + Text(number.en + " years old", number.fr + " ans"))


HAD = ("pet", "vehicle", "clothing", "kin", "publication", "device")
NOT_HAD = ("single", "train", "plane", "bus")


def having(g: Maker) -> Sentence:
    """We have two dogs and three cats."""
    subject, verb = g.subject(), g.verb("have")
    noun = g.noun((*HAD, "house", "garden"), NOT_HAD)
    if noun.fits(["womens"]) and subject.agreement.gender == "m":
        raise RetryError
    kin, place = noun.fits(["kin"]), noun.fits(["place"])
    dets = ("num",) if kin else ("indef",) if place else ("num", "indef")
    first = g.phrase(noun, dets, plural=True if kin else False if place else None, adjective=0.35)
    text = g.said(subject, verb, g.one(("pres", "pres", "fut")) if not kin else "pres") + first.text
    if not place and g.chance(0.5):
        kind = next(k for k in ("animal", "vehicle", "clothing", "person", "text", "device") if k in noun.tags)
        others = [n for n in g.lexicon.nouns if kind in n.tags and n.fits(HAD, (*NOT_HAD, "womens"))]
        text += Text("and", "et") + g.phrase(g.pick(others), ("num",), adjective=0.2, plural=True).text
    return Sentence(text)


def state(g: Maker) -> Sentence:
    """The children are hungry this morning."""
    item = g.item("states")
    subject, be, have = g.subject(noun_share=0.5), g.verb("be"), g.lexicon.verb("have")
    tense, negation = g.one((("pres", ""), ("pres", "pas"), ("past", ""), ("past", "pas"), ("pres", "plus")))
    en = g.said(subject, be, tense, negation=negation).en
    fr = g.said(subject, have, "pprog" if tense == "past" else tense, negation=negation).fr
    text = Text(en, fr) + Text(item.en, item.fr)
    return Sentence(g.timed(text, "past" if tense == "past" else "prog", 0.0 if negation == "plus" else 0.5))


def afraid(g: Maker) -> Sentence:
    """My daughter is afraid of dogs."""
    subject, be, have = g.subject(noun_share=0.5), g.verb("be"), g.lexicon.verb("have")
    tense, negation = g.one((("pres", ""), ("pres", "pas"), ("past", "")))
    noun = g.noun(["animal", "snow", "sea", "forest", "plane", "doctor"], ["hamster", "rabbit"])
    phrase = g.phrase(noun, ("def", "this") if noun.countable else ("def",), adjective=0.3)
    en = g.said(subject, be, tense, negation=negation).en
    fr = g.said(subject, have, "pprog" if tense == "past" else tense, negation=negation).fr
    return Sentence(Text(en, fr) + Text("afraid of", "peur de") + phrase.text)


def taste(g: Maker) -> Sentence:
    """She loves cheese; my cat hates dogs."""
    verb, subject = g.verb_with("taste"), g.subject()
    noun = g.noun(["edible", "drink", "animal", "pastime", "snow", "publication", "flower", "poem", "film", "museum"])
    tense, negation = g.one((("pres", ""), ("pres", ""), ("pres", "pas"), ("used", "")))
    negation = negation if verb.id == "like" else ""
    adjective = 0.0 if noun.fits(["animal", "pastime"]) else 0.4
    phrase = g.phrase(noun, ("bare",), plural=noun.countable, adjective=adjective)
    return Sentence(g.said(subject, verb, tense, negation=negation) + phrase.text)


def preference(g: Maker) -> Sentence:
    """I prefer tea to coffee."""
    kind = g.one(("edible", "edible", "drink", "animal", "publication", "pastime"))
    verb, subject = g.verb("prefer"), g.subject()
    first, second = (g.noun([kind]) for _ in range(2))
    one, other = (
        g.phrase(n, ("bare",), plural=n.countable, adjective=0.0 if kind == "animal" else 0.25).text for n in (first, second)
    )
    if "bad" in g.used:
        raise RetryError
    return Sentence(g.said(subject, verb, "pres") + one + Text("to", "à") + other)


PATTERNS = (
    profession,
    feeling,
    quality,
    owners_thing,
    owners_object,
    more_than,
    as_as,
    there_is,
    there_is_no,
    located,
    weather,
    age,
    having,
    state,
    afraid,
    taste,
    preference,
)
