"""Sentence patterns of speech: questions, sentences with object pronouns, orders."""

from __future__ import annotations

from lexicon import Verb
from morphology import Agreement, be, words
from phrases import Maker
from texts import DIRECT, INDIRECT, PRONOUNS, RetryError, Sentence, Subject, Text, clash

PASSING = ("happy", "sad", "tired", "angry", "worried", "ready", "busy", "alone", "proud", "serious", "curious")
ORDERED = {"me": "moi", "le": "le", "la": "la", "nous": "nous", "les": "les", "lui": "lui", "leur": "leur"}
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


def _asker(g: Maker, tense: str = "") -> Subject:
    """The subject of a question: "I" is left out, and "we" where one knows what one does."""
    subject = g.subject(noun_share=0.52)
    if subject.slot == 0 or (subject.slot == 3 and tense not in ("fut", "going")):
        raise RetryError
    return subject


def yes_no(g: Maker) -> Sentence:
    """Is she reading the letter?"""
    tense = g.one(("prog", "past", "fut", "going", "pres"))
    verb, subject = g.verb_with("objects", tense=tense), _asker(g, tense)
    if tense == "pres" and not {"state", "stative"} & verb.frames:
        raise RetryError
    text = g.asked(subject, verb, tense) + g.object(verb, subject).text
    return Sentence(g.timed(text, tense if tense != "pres" else "", 0.3, verb, front=False), "?")


def _when(g: Maker, tense: str) -> Text:
    return g.time({"past": "past", "fut": "future", "going": "future", "prog": "now"}[tense])


def where(g: Maker) -> Sentence:
    """Where did you buy the lamp?"""
    tense = g.one(("past", "past", "fut", "going"))
    if g.chance(0.3):
        verb = g.verb_with("loc", "workloc", "waterloc", "home", "staying", tense=tense)
        if verb.id in ("cry", "laugh"):
            raise RetryError
        body = g.asked(_asker(g), verb, g.one(("pres", tense)))
    else:
        verb, subject = g.verb_with("objects", tense=tense), _asker(g, tense)
        if verb.id not in (
            "buy",
            "find",
            "lose",
            "see",
            "meet",
            "eat",
            "drink",
            "hide",
            "sell",
            "wait_for",
            "build",
            "forget",
            "take",
            "hear",
        ):
            raise RetryError
        body = g.asked(subject, verb, tense) + g.object(verb, subject).text
    return Sentence(Text("where", "où") + body, "?")


def when(g: Maker) -> Sentence:
    """When will they arrive in Paris?"""
    tense = g.one(("past", "fut", "going"))
    if g.chance(0.5):
        verb = g.verb_with("arr", "dest", "from", "etre", "trip", "none", without=("objects", "fall", "manner"))
        place = Text()
        if "dest" in verb.frames or "trip" in verb.frames:
            place = g.region_to()
        elif verb.id == "arrive":
            place = g.maybe(0.7, g.arrival)
        return Sentence(Text("when", "quand") + g.asked(_asker(g), verb, tense) + place, "?")
    verb, subject = g.verb_with("objects", tense=tense), _asker(g, tense)
    body = g.asked(subject, verb, tense) + g.object(verb, subject).text
    return Sentence(Text("when", "quand") + body, "?")


def why(g: Maker) -> Sentence:
    """Why is the baby crying?"""
    tense = g.one(("prog", "past", "prog"))
    if g.chance(0.3):
        subject = _asker(g)
        adj = g.adjective(g.lexicon.noun("man"), predicative=True)
        if adj.id not in PASSING:
            raise RetryError
        body = g.asked(subject, g.verb("be"), g.one(("pres", "past"))) + g.adjective_text(adj, subject.agreement)
    elif g.chance(0.4):
        verb = g.verb_with("none", tense=tense, without=("fall",))
        body = g.asked(_asker(g), verb, tense) + g.maybe(0.4, lambda: _when(g, tense))
    else:
        verb, subject = g.verb_with("objects", tense=tense, without=("mishap",)), _asker(g, tense)
        if verb.id in ("understand", "hear", "see"):
            raise RetryError
        body = g.asked(subject, verb, tense) + g.object(verb, subject).text
    return Sentence(Text("why", "pourquoi") + body, "?")


def how_many(g: Maker) -> Sentence:
    """How many apples did you buy?"""
    tense = g.one(("past", "past", "fut"))
    verb, subject = g.verb_with("objects", tense=tense), _asker(g, tense)
    noun = g.object_noun(verb)
    if not noun.countable or noun.fits(["unique", "single"]) or noun.fits(["kin"]):
        raise RetryError
    if noun.fits(["womens"]) and verb.id in ("wear", "lose", "forget") and subject.agreement.gender == "m":
        raise RetryError
    phrase = g.phrase(noun, ("of",), plural=True, adjective=0.15)
    body = g.asked(subject, verb, tense, agreement=phrase.agreement)
    start = Text("how many", "combien") + phrase.text
    return Sentence(start + body + g.maybe(0.3, lambda: _when(g, tense)), "?")


def how_many_have(g: Maker) -> Sentence:
    """How many brothers do you have?"""
    noun = g.noun(["kin", "pet", "clothing", "vehicle", "publication", "device"], ["single", "train", "plane", "bus"])
    kin = noun.fits(["kin"])
    phrase = Text("how many " + noun.en[1], "combien de " + noun.fr[1])
    subject = g.subject(noun_share=0.6 if kin else 0.45)
    if subject.slot == 0:
        raise RetryError
    if noun.fits(["womens"]) and subject.agreement.gender == "m":
        raise RetryError
    return Sentence(phrase + g.asked(subject, g.verb("have"), "pres"), "?")


def who(g: Maker) -> Sentence:
    """Who broke the window?"""
    tense = g.one(("past", "past", "prog", "fut"))
    someone = Subject(Text("who", "qui"), 2, Agreement(), "", Text())
    if g.chance(0.25):
        verb = g.verb_with("loc", "workloc", "arr", "staying", "waterloc", tense=tense)
        return Sentence(g.said(someone, verb, tense) + g.where(verb), "?")
    verb = g.verb_with("objects", tense=tense)
    return Sentence(g.timed(g.said(someone, verb, tense) + g.object(verb).text, tense, 0.3, verb, front=False), "?")


WHAT = {
    "buy": ("market", "shop", "bakery", "airport"),
    "eat": ("restaurant", "school", "kitchen", "hotel"),
    "drink": ("restaurant", "hotel", "kitchen"),
    "prepare": ("kitchen", "restaurant"),
    "read": ("library", "garden"),
    "find": ("street", "garden", "forest", "beach", "bag"),
    "see": ("museum", "zoo", "castle", "theatre"),
    "forget": ("hotel", "restaurant", "school", "office"),
    "lose": ("park", "street", "beach", "museum"),
    "sell": ("market", "shop"),
    "order": ("restaurant", "hotel"),
    "draw": ("garden", "school", "park"),
    "write": (),
    "repair": ("garden",),
    "choose": ("shop", "market"),
    "bring": (),
    "look_for": ("garden", "office"),
    "build": ("garden", "village"),
    "paint": ("garden", "kitchen"),
    "hear": ("forest", "street"),
    "receive": (),
    "wash": ("kitchen", "river"),
    "wear": ("theatre", "school"),
    "watch": ("cinema", "park"),
    "break": ("kitchen",),
    "take": (),
    "open": (),
    "finish": (),
    "listen_to": (),
    "use": ("kitchen", "office"),
}


def what(g: Maker) -> Sentence:
    """What did the teacher buy at the market?"""
    tense = g.one(("past", "prog", "fut", "going"))
    verb = g.verb_with("objects", tense=tense)
    if verb.id not in WHAT:
        raise RetryError
    body = g.asked(_asker(g, tense), verb, tense)
    said = Text(body.en, body.fr.removeprefix("est-ce que "))
    if WHAT[verb.id] and g.chance(0.5):
        said += g.place(WHAT[verb.id])
    return Sentence(Text("what", "qu'est-ce que") + g.timed(said, tense, 0.5, verb, front=False), "?")


def person_pronoun(g: Maker) -> Sentence:
    """I met her yesterday."""
    tense = g.one(("past", "past", "fut", "pres"))
    verb = g.verb_with("objects", tense=tense)
    if verb.id not in PERSONAL:
        raise RetryError
    subject = g.subject()
    pronoun, agreement, slot = g.one(DIRECT)
    if clash(subject, slot):
        raise RetryError
    negation = "pas" if g.chance(0.25) else ""
    clause = g.said(subject, verb, tense, negation=negation, pronoun=pronoun, agreement=agreement)
    met = verb.id in ("see", "meet", "wait_for") and tense != "pres"
    place = g.maybe(0.4, lambda: g.place(("building", "outdoor"))) if met else Text()
    return Sentence(g.timed(clause + place, tense if verb.habits or tense != "pres" else "", 0.5))


def thing_pronoun(g: Maker) -> Sentence:
    """She bought a car and she sold it."""
    first, second = g.one(
        (
            ("buy", "sell"),
            ("find", "keep"),
            ("write", "forget"),
            ("wash", "sell"),
            ("take", "lose"),
            ("repair", "sell"),
            ("open", "close"),
            ("buy", "lose"),
            ("find", "open"),
            ("buy", "give"),
            ("lose", "find"),
            ("buy", "break"),
            ("choose", "buy"),
            ("prepare", "eat"),
            ("buy", "wear"),
            ("see", "buy"),
            ("order", "taste"),
            ("look_for", "find"),
            ("bring", "forget"),
            ("receive", "open"),
            ("draw", "show"),
            ("read", "understand"),
            ("find", "use"),
        )
    )
    if second in ("give", "show", "taste"):
        raise RetryError
    one, two = g.verb(first.replace("_", " ")), g.verb(second)
    common = [
        n
        for n in g.lexicon.nouns
        if n.fits(one.objects, one.unwanted) and n.fits(two.objects, two.unwanted) and not n.fits(["person"])
    ]
    subject = g.subject(simple=True)
    dets = ("poss", "def") if first in ("lose", "wash", "open", "look_for") else ("indef", "def", "this", "num")
    obj = g.phrase(g.pick(common), dets, owner=subject.owner)
    tense = g.one(("past", "past", "fut")) if not (one.ambiguous or two.ambiguous) else "fut"
    link = Text("but", "mais") if second in ("lose", "forget", "break") else Text("and", "et")
    tail = g.said(subject.again, two, tense, pronoun=obj.pronoun, agreement=obj.agreement)
    return Sentence(g.said(subject, one, tense) + obj.text + link + tail)


def to_him(g: Maker) -> Sentence:
    """We gave him the book."""
    tense = g.one(("past", "past", "fut", "prog"))
    verb = g.verb_with("gives", tense=tense)
    subject, (pronoun, slot) = g.subject(), g.one(INDIRECT)
    if clash(subject, slot) or verb.id == "explain":
        raise RetryError
    negation = "pas" if g.chance(0.2) else ""
    phrase = g.given(verb, subject, definite=bool(negation))
    text = g.said(subject, verb, tense, negation=negation, pronoun=pronoun)
    return Sentence(g.timed(text + phrase.text, tense, 0.35))


def to_somebody(g: Maker) -> Sentence:
    """The children are sending a letter to the king."""
    tense = g.one(("past", "past", "fut", "prog", "going"))
    verb, subject = g.verb_with("gives", tense=tense), g.subject()
    phrase, receiver = g.given(verb, subject), g.third(name_share=0.25)
    return Sentence(g.timed(g.said(subject, verb, tense) + phrase.text + Text("to", "à") + receiver.text, tense, 0.2))


def answering(g: Maker) -> Sentence:
    """He will answer the teachers; she spoke to him."""
    tense = g.one(("past", "past", "fut", "pres"))
    verb, subject = g.verb_with("to_person", tense=tense), g.subject()
    to = "to" if verb.id == "speak" else ""
    negation = g.one(("", "", "pas", "jamais"))
    share = 0.0 if negation == "jamais" else 0.4
    if g.chance(0.4):
        pronoun, slot = g.one(INDIRECT)
        if clash(subject, slot):
            raise RetryError
        en = Text(words(to, pronoun.en), pronoun.fr)
        return Sentence(g.timed(g.said(subject, verb, tense, negation=negation, pronoun=en), tense, share))
    receiver = g.third(name_share=0.25)
    text = g.said(subject, verb, tense, negation=negation) + Text(to, "à") + receiver.text
    return Sentence(g.timed(text, tense, share))


def order(g: Maker) -> Sentence:
    """Close the kitchen window!"""
    verb = g.verb_with("imperative", without=("gives", "to_person"))
    return Sentence(_order(g, verb, 4, "") + g.maybe(0.3, g.soon), "!")


def _order(g: Maker, verb: Verb, slot: int, negation: str) -> Text:
    phrase = g.object(verb, PRONOUNS[1] if slot == 4 else PRONOUNS[4], definite=bool(negation))
    fr = words("ne" if negation else "", verb.present[slot], negation)
    en = "do not " + verb.base if negation and slot == 4 else verb.base
    return Text(en, fr) + phrase.text


def forbidding(g: Maker) -> Sentence:
    """Do not open the window!"""
    verb = g.verb_with("imperative", "objects", without=("gives", "to_person", "stative"))
    if verb.id in ("build", "kiss", "admire", "thank"):
        raise RetryError
    return Sentence(_order(g, verb, 4, "pas") + g.maybe(0.25, g.soon), "!")


def let_us(g: Maker) -> Sentence:
    """Let's visit the museum tomorrow!"""
    verb = g.verb_with("imperative", without=("gives", "to_person"))
    text = _order(g, verb, 3, "")
    return Sentence(Text("let's", "") + text + g.maybe(0.35, g.soon), "!")


def order_give(g: Maker) -> Sentence:
    """Give me the key!"""
    verb = g.verb_with("gives")
    if "imperative" not in verb.frames or verb.id == "explain":
        raise RetryError
    pronoun, _ = g.one([p for p in INDIRECT if p[0].en != "you"])
    phrase = g.given(verb, PRONOUNS[1])
    text = Text(f"{verb.base} {pronoun.en}", f"{verb.present[4]}-{ORDERED[pronoun.fr]}") + phrase.text
    return Sentence(text + g.maybe(0.25, g.soon), "!")


def is_it_there(g: Maker) -> Sentence:
    """Are there any apples in the kitchen?"""
    noun = g.noun(["food", "drink", "publication", "dishware", "pet", "vehicle"], ["train", "plane", "boat", "loose"])
    phrase = g.phrase(noun, ("indef",), plural=noun.countable, adjective=0.25)
    english = phrase.text.en.replace("some ", "any ", 1)
    if noun.fits(["vehicle"]):
        place = g.place(("village", "street", "farm", "city"))
    elif noun.fits(["pet"]):
        place = g.place(("village", "garden", "farm", "house", "school", "park"))
    elif g.chance(0.4):
        place = g.place(("kitchen", "school", "shop", "market", "house", "hotel"))
    else:
        holders = ["bottle", "glass", "cup"] if noun.fits(["drink"]) else ["bag", "box", "table"]
        spot = g.phrase(g.noun(holders), ("def", "poss", "this"), plural=False, adjective=0.2)
        place = (Text("on", "sur") if spot.noun.id == "table" else Text("in", "dans")) + spot.text
    if "empty" in g.used:
        raise RetryError
    start = Text(f"{be(phrase.slot)} there", "est-ce que il y a")
    return Sentence(start + Text(english, phrase.text.fr) + place, "?")


PATTERNS = (
    yes_no,
    where,
    when,
    why,
    how_many,
    how_many_have,
    who,
    what,
    person_pronoun,
    thing_pronoun,
    to_him,
    to_somebody,
    answering,
    order,
    forbidding,
    let_us,
    order_give,
    is_it_there,
)
