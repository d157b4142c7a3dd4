"""Sentence patterns that link clauses: because, but, when, if, that."""

from __future__ import annotations

from lexicon import Noun, Verb
from morphology import Agreement, words
from patterns_verbs import in_general
from phrases import Maker
from texts import DIRECT, RetryError, Sentence, Subject, Text


def because(g: Maker) -> Sentence:
    """She is sad because she lost her ring; he stayed at the hotel because he was tired."""
    subject = g.subject(simple=True)
    adj = g.adjective(g.lexicon.noun("boy"), predicative=True)
    link, quality = Text("because", "parce que"), g.adjective_text(adj, subject.agreement)
    if g.chance(0.4):
        if adj.id not in ("tired", "sick", "sad", "angry", "worried", "busy", "happy", "ready", "alone"):
            raise RetryError
        known = {
            "happy": ("sing", "dance", "laugh"),
            "ready": ("leave", "go_out"),
            "busy": ("stay",),
            "angry": ("leave", "shout"),
            "tired": ("sleep", "rest", "stay"),
            "sick": ("stay", "sleep"),
        }
        verb = g.verb_of(known.get(adj.id, ("cry", "leave", "stay")))
        place = g.where(verb) if "staying" in verb.frames else Text()
        first = g.said(subject, verb, "past") + place
        return Sentence(first + link + g.said(subject.again, g.verb("be"), "past") + quality)
    if adj.id not in REASONS:
        raise RetryError
    head = g.said(subject, g.verb("be"), "pres") + quality
    return Sentence(head + link + _reason(g, subject, adj.id))


REASONS = {
    "happy": ("find", "buy", "receive", "meet", "see", "finish", "visit"),
    "sad": ("lose", "break", "sell", "forget"),
    "angry": ("lose", "break", "forget", "wait_for"),
    "worried": ("lose", "break", "forget"),
    "proud": ("build", "repair", "write", "finish", "help", "paint", "draw"),
    "tired": ("clean", "repair", "carry", "wash", "build", "cross"),
    "busy": ("prepare", "repair", "clean", "write"),
    "sick": ("eat", "drink"),
}


def _reason(g: Maker, subject: Subject, mood: str) -> Text:
    """What somebody did and why that matters."""
    verb = g.pick([v for v in g.lexicon.verbs if v.id in REASONS[mood] and not v.ambiguous])
    again = subject.again
    if mood == "busy":
        return g.said(again, verb, "prog") + g.object(verb, subject).text
    return g.said(again, verb, "past") + g.object(verb, subject).text


PRAISE = (
    "beautiful",
    "pretty",
    "new",
    "good",
    "comfortable",
    "modern",
    "interesting",
    "easy",
    "useful",
    "fast",
    "elegant",
    "delicious",
    "fresh",
    "quiet",
    "light",
    "famous",
    "intelligent",
    "strong",
    "funny",
    "kind",
    "calm",
    "brave",
    "young",
    "rich",
    "patient",
    "honest",
)
BLAME = (
    "old",
    "expensive",
    "heavy",
    "dirty",
    "broken",
    "empty",
    "dark",
    "dangerous",
    "slow",
    "boring",
    "difficult",
    "small",
    "cold",
    "long",
    "sad",
    "lazy",
    "poor",
    "sick",
    "tired",
    "serious",
    "angry",
    "worried",
    "full",
    "big",
)
OPPOSITES = (
    ("easy", "difficult"),
    ("interesting", "boring"),
    ("fast", "slow"),
    ("light", "heavy"),
    ("young", "old"),
    ("funny", "sad"),
    ("rich", "poor"),
    ("funny", "boring"),
    ("kind", "angry"),
    ("new", "old"),
    ("modern", "old"),
    ("fresh", "old"),
    ("funny", "serious"),
    ("elegant", "dirty"),
    ("beautiful", "dirty"),
)


def but(g: Maker) -> Sentence:
    """The car is old but it is fast."""
    noun = g.noun(
        [
            "clothing",
            "object",
            "vehicle",
            "building",
            "animal",
            "text",
            "furniture",
            "food",
            "job",
            "room",
            "people",
            "kin",
            "street",
            "drink",
        ]
    )
    phrase = g.phrase(noun, ("def", "poss", "this"), adjective=0)
    if phrase.agreement.plural and phrase.agreement.gender == "f" and noun.fits(["person"]):
        raise RetryError
    fitting = [a for a in g.lexicon.adjectives if a.predicative and a.fits(noun)]
    good = g.pick([a for a in fitting if a.id in PRAISE])
    bad = g.pick([a for a in fitting if a.id in BLAME and (good.id, a.id) not in OPPOSITES])
    first, second = (bad, good) if g.chance(0.5) else (good, bad)
    head = g.as_subject(phrase)
    left = g.said(head, g.verb("be"), "pres") + g.adjective_text(first, phrase.agreement)
    right = g.said(head.again, g.lexicon.verb("be"), "pres") + g.adjective_text(second, phrase.agreement)
    return Sentence(left + Text("but", "mais") + right)


def when_i_arrived(g: Maker) -> Sentence:
    """He was reading a novel when I arrived."""
    verb = g.verb_with("objects", "loc", tense="pprog")
    if verb.id in ("fall", "choose", "build", "buy", "invite", "keep"):
        raise RetryError
    subject = g.subject(verb=verb)
    rest = g.object(verb, subject).text if verb.objects and verb.id != "sing" else g.where(verb)
    other = g.subject(noun_share=0.45)
    if other.text == subject.text or other.slot == subject.slot != 2:
        raise RetryError
    event = g.verb_of(("arrive", "come_back", "leave", "go_out", "fall", "call"))
    if event.id == "call":
        pronoun, agreement, slot = g.one(DIRECT)
        if slot != subject.slot or other.slot == slot or slot == 2:
            raise RetryError
        tail = g.said(other, event, "past", pronoun=pronoun, agreement=agreement)
    else:
        tail = g.said(other, event, "past")
    return Sentence(g.said(subject, verb, "pprog") + rest + Text("when", "quand") + tail)


CONDITIONS = ("arrive", "come", "leave", "stay", "work", "come_back", "go_out", "help", "call")
RESULTS = (
    *("prepare", "eat", "drink", "order", "visit", "invite", "wait_for", "buy", "watch", "listen_to", "clean", "wash"),
    *("repair", "choose", "help", "thank", "meet", "call", "paint", "draw", "sing"),
)


def if_clause(g: Maker) -> Sentence:
    """If he comes tomorrow, we will prepare a cake."""
    one, two = g.subject(noun_share=0.35), g.subject(noun_share=0.3)
    if one.slot == two.slot:
        raise RetryError
    first = g.verb_of(CONDITIONS)
    if first.id in ("help", "call"):
        pronoun = next(p for p, _, slot in DIRECT if slot == two.slot) if two.slot != 2 else Text("me", "me")
        condition = g.said(one, first, "pres", pronoun=pronoun)
        if pronoun.en == "me" and one.slot in (0, 3):
            raise RetryError
    else:
        condition = g.said(one, first, "pres") + g.maybe(0.45, lambda: g.time("future", long=False))
    second = g.verb_of(RESULTS)
    result = g.said(two, second, "fut") + g.object(second, two).text
    return Sentence(Text("if", "si") + condition + Text(",", ",") + result)


ADVICE = {
    "tired": ("rest", "sleep", "stay", "drink"),
    "sick": ("stay", "rest", "call", "sleep", "drink"),
    "ready": ("leave", "go_out", "come"),
    "busy": ("come_back", "stay"),
    "sad": ("call", "go_out", "listen_to"),
    "alone": ("call", "come", "invite"),
    "worried": ("call", "come_back"),
    "angry": ("leave", "go_out"),
}


def if_tired(g: Maker) -> Sentence:
    """If you are tired, you must rest."""
    subject = g.subject(simple=True, noun_share=0.35)
    adj = g.adjective(g.lexicon.noun("boy"), predicative=True)
    if adj.id not in ADVICE:
        raise RetryError
    head = g.said(subject, g.verb("be"), "pres") + g.adjective_text(adj, subject.agreement)
    modal, again = g.verb(g.one(("can", "must"))), subject.again
    verb = g.verb_of(ADVICE[adj.id])
    rest = g.object(verb, subject).text if verb.objects else Text()
    if verb.id == "stay":
        rest = g.place(("house", "hotel", "school", "office"))
    finite = g.french.verb(modal, "pres", again.slot, Agreement())
    tail = Text(
        words(again.text.en, modal.base, verb.base), words(again.text.fr, finite, g.french.infinitive(verb, again.slot))
    )
    return Sentence(Text("if", "si") + head + Text(",", ",") + tail + rest)


def thinking(g: Maker) -> Sentence:
    """I think that the film is boring."""
    subject, verb = g.subject(noun_share=0.3), g.verb("think")
    negation = ""
    noun = g.noun(["text", "vehicle", "building", "clothing", "job", "food", "animal", "furniture", "island", "city"])
    adj = g.adjective(noun, predicative=True, graded=True)
    phrase = g.phrase(noun, ("def", "this", "poss"), adjective=0)
    tense = g.one(("pres", "pres", "past"))
    tail = g.said(g.as_subject(phrase), g.verb("be"), tense) + g.adjective_text(adj, phrase.agreement)
    return Sentence(g.said(subject, verb, "pres", negation=negation) + Text("that", "que") + tail)


def hoping(g: Maker) -> Sentence:
    """We hope that she will come tomorrow."""
    subject, verb = g.subject(noun_share=0.3), g.verb("hope")
    other = g.subject(noun_share=0.52)
    if g.chance(0.5):
        second = g.pick([v for v in g.lexicon.verbs if v.auxiliary == "être" and "none" in v.frames and v.id != "fall"])
        tail = g.said(other, second, "fut") + g.time("future")
    else:
        second = g.verb_with("objects", tense="fut", without=("stative",))
        if second.id in ("use", "keep", "carry", "take"):
            raise RetryError
        tail = g.said(other, second, "fut") + g.object(second, other).text
    return Sentence(g.said(subject, verb, "pres") + Text("that", "que") + tail)


def rain_because(g: Maker) -> Sentence:
    """We stayed at the hotel because it was raining."""
    item = g.item("weather")
    index, tense = g.one(((1, "past"), (0, "prog"), (2, "fut")))
    sky = Text(item.extra["en"][index], item.extra["fr"][index])
    good = item.id in ("hot_weather", "nice_weather")
    subject = g.subject()
    if good:
        verb = g.verb_of(("swim", "walk", "dance", "play", "sing", "run"))
        rest = g.place(("waterbody",)) if verb.id == "swim" else g.place(("outdoor",))
    else:
        verb = g.verb_of(("stay", "wear", "close", "take", "drink"))
        rest = _against_cold(g, verb, subject)
    return Sentence(g.said(subject, verb, tense) + rest + Text("because", "parce que") + sky)


def _against_cold(g: Maker, verb: Verb, subject: Subject) -> Text:
    if verb.id == "stay":
        return g.place(("house", "hotel", "school", "office", "library"))
    wanted = {
        "wear": ["coat", "hat", "scarf", "jacket", "sweater", "shoe"],
        "close": ["window", "door"],
        "take": ["umbrella", "bus", "train"],
        "drink": ["coffee", "tea", "milk"],
    }[verb.id]
    noun: Noun = g.noun(wanted)
    dets = ("indef",) if verb.id == "drink" else ("def", "poss")
    plural = verb.id == "wear" and (subject.agreement.plural or noun.id == "shoe")
    return g.phrase(noun, dets, plural=plural, adjective=0.3, owner=subject.owner).text


MOODS = {
    "tired": ("drink", "listen_to", "watch"),
    "sad": ("eat", "drink", "listen_to", "write", "call", "watch"),
    "happy": ("write", "listen_to", "invite", "draw", "prepare", "help"),
    "sick": ("drink", "call", "watch", "read"),
    "alone": ("read", "watch", "listen_to", "write", "draw", "call"),
    "worried": ("call", "write", "listen_to"),
    "hungry": ("eat", "prepare", "order"),
    "thirsty": ("drink", "order"),
}


def while_being(g: Maker) -> Sentence:
    """When she is tired, she drinks coffee; when I am hungry, I eat bread."""
    subject = g.subject(simple=True, noun_share=0.4)
    if g.chance(0.3):
        item = g.item("states", lambda i: i.id in MOODS)
        mood, be_verb, have = item.id, g.verb("be"), g.lexicon.verb("have")
        fr = g.said(subject, have, "pres").fr
        head = Text(g.said(subject, be_verb, "pres").en, fr) + Text(item.en, item.fr)
    else:
        adj = g.adjective(g.lexicon.noun("boy"), predicative=True)
        mood = adj.id
        head = g.said(subject, g.verb("be"), "pres") + g.adjective_text(adj, subject.agreement)
    verb = g.pick([v for v in g.lexicon.verbs if v.id in MOODS.get(mood, ()) and v.habits])
    if verb.ambiguous and subject.slot != 2:
        raise RetryError
    tail = g.said(subject.again, verb, "pres") + in_general(g, verb, mood).text
    return Sentence(Text("when", "quand") + head + Text(",", ",") + tail)


PATTERNS = (
    because,
    but,
    when_i_arrived,
    if_clause,
    if_tired,
    thinking,
    hoping,
    rain_because,
    while_being,
)
