"""French and English inflection: tenses, negation, agreement, elision, contraction, capitals and end marks.

French is first built as a draft of full words separated by spaces, with a "~" before each determiner or adjective
whose form depends on the next word (~le, ~la, ~les, ~ma, ~ta, ~sa, ~ce, ~beau ...); `French.finish` turns the draft
into the sentence people write: elision (l', d', j', n', qu', s'), contraction (au, aux, du, des), mon/cet/bel before
a vowel sound.  Grammatical persons are numbered as in the lexicon: je, tu, il, nous, vous, ils = 0 to 5.
"""

from __future__ import annotations

from dataclasses import dataclass

from lexicon import Lexicon, Verb

VOWELS = "aàâeéèêëiîïoôuùûœ"
ELIDING = {"je": "j", "me": "m", "te": "t", "se": "s", "le": "l", "la": "l", "ne": "n", "de": "d", "que": "qu"}
BEFORE_VOWEL = {"~ma": "mon", "~ta": "ton", "~sa": "son", "~ce": "cet"}
CONTRACTED = {("à", "~le"): "au", ("à", "~les"): "aux", ("de", "~le"): "du", ("de", "~les"): "des"}
REFLEXIVE = ("me", "te", "se", "nous", "vous", "se")
FUTURE = ("ai", "as", "a", "ons", "ez", "ont")
IMPERFECT = ("ais", "ais", "ait", "ions", "iez", "aient")
AN_EXCEPTIONS = ("uni", "use")
NEGATED_EN = {"pas": "not", "jamais": "never", "plus": "no longer"}


@dataclass(frozen=True)
class Agreement:
    """What participles and adjectives agree with."""

    gender: str = "m"
    plural: bool = False


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def english_sentence(draft: str, end: str) -> str:
    """Tidy spaces, capital, end mark."""
    return capital(" ".join(draft.split()).replace(" ,", ",")) + end


def article(following: str) -> str:
    """The English indefinite article before a word."""
    vowel = following[0].lower() in "aeiou" and not following.startswith(AN_EXCEPTIONS)
    return "an" if vowel else "a"


def be(slot: int, past: bool = False) -> str:
    """The form of "be" for a person."""
    if past:
        return "was" if slot in (0, 2) else "were"
    return {0: "am", 2: "is"}.get(slot, "are")


def have(slot: int) -> str:
    """The form of "have" for a person."""
    return "has" if slot == 2 else "have"


def words(*parts: str) -> str:
    """Join the parts that are not empty with single spaces."""
    return " ".join(part for part in parts if part)


def _be_phrase(tense: str, slot: int, no: str) -> str:
    """The verb "be" itself, with negation."""
    if tense == "fut":
        return words("will", no, "be")
    if tense == "used":
        return "used to be"
    return words(be(slot, tense == "past"), no)


def _simple(verb: Verb, tense: str, slot: int, negation: str, adverb: str) -> str:
    """English present and past without "be"."""
    if negation == "pas":
        auxiliary = "did" if tense == "past" else "does" if slot == 2 else "do"
        return words(auxiliary, "not", adverb, verb.base)
    finite = verb.past if tense == "past" else verb.third if slot == 2 else verb.base
    return words(NEGATED_EN.get(negation, ""), adverb, finite)


def english_verb(verb: Verb, tense: str, slot: int, negation: str = "", adverb: str = "") -> str:
    """The English verb phrase for a tense: pres, prog, past, pprog, used, fut, going or just."""
    no = NEGATED_EN.get(negation, "")
    if verb.base == "be":
        return _be_phrase(tense, slot, no)
    if tense in ("prog", "pprog"):
        return words(be(slot, tense == "pprog"), no, adverb, verb.ing)
    if tense == "fut":
        return words("will", no, adverb, verb.base)
    if tense == "going":
        return words(be(slot), no, "going to", verb.base)
    if tense == "just":
        return words(have(slot), "just", verb.participle)
    if tense == "used":
        return words("used to", verb.base)
    return _simple(verb, tense, slot, negation, adverb)


def english_question(verb: Verb, tense: str, slot: int, subject: str) -> str:
    """The English verb phrase turned round its subject, for a question."""
    if verb.base == "be":
        return words("will", subject, "be") if tense == "fut" else words(be(slot, tense == "past"), subject)
    if tense in ("prog", "pprog"):
        return words(be(slot, tense == "pprog"), subject, verb.ing)
    if tense == "going":
        return words(be(slot), subject, "going to", verb.base)
    auxiliary = {"fut": "will", "past": "did"}.get(tense, "does" if slot == 2 else "do")
    return words(auxiliary, subject, verb.base)


def participle(verb: Verb, agreement: Agreement) -> str:
    """The French past participle in agreement."""
    form = verb.fr_participle + ("e" if agreement.gender == "f" else "")
    return form + ("s" if agreement.plural and not form.endswith("s") else "")


class French:
    """French conjugation and the finishing of drafts, for one lexicon."""

    def __init__(self, lexicon: Lexicon) -> None:
        """Collect the auxiliaries, the words with an "h aspiré" and the adjectives with a form before vowels."""
        self.helpers = {name: lexicon.verb(name) for name in ("be", "have", "go", "come")}
        self.consonantal = {form for noun in lexicon.nouns if not noun.vowel for form in noun.fr}
        self.consonantal |= {form for adj in lexicon.adjectives if not adj.vowel for form in adj.fr}
        self.consonantal |= {"huit", "onze"}
        self.special = {"~" + a.fr[0]: a.special for a in lexicon.adjectives if a.special}

    def vowel(self, word: str) -> bool:
        """Whether a word begins with a vowel sound."""
        bare = word.strip("~,").lower()
        if not bare or bare in self.consonantal:
            return False
        return bare[0] in VOWELS or bare[0] == "h" or bare == "y"

    def simple(self, verb: Verb, tense: str, slot: int) -> str:
        """One finite form of the present, the imparfait or the futur simple."""
        if tense == "fut":
            return verb.future + FUTURE[slot]
        if tense == "imp":
            ending = IMPERFECT[slot]
            stem = verb.imperfect[:-1] if verb.imperfect.endswith("ge") and ending[0] == "i" else verb.imperfect
            return stem + ending
        return verb.present[slot]

    def verb(
        self,
        verb: Verb,
        tense: str,
        slot: int,
        agreement: Agreement,
        negation: str = "",
        clitic: str = "",
        adverb: str = "",
        inside: bool = False,
    ) -> str:
        """The French verb phrase for an English tense; `inside` puts the adverb before the participle."""
        reflexive = "reflexive" in verb.frames
        clitic = REFLEXIVE[slot] if reflexive else clitic
        ne = "ne" if negation else ""
        if tense in ("going", "just"):
            helper = self.simple(self.helpers["go" if tense == "going" else "come"], "pres", slot)
            return words(ne, helper, negation, "de" if tense == "just" else "", clitic, verb.fr, adverb)
        if tense == "past" and verb.base != "be":
            helper = self.simple(self.helpers["be" if verb.auxiliary == "être" else "have"], "pres", slot)
            first, last = (adverb, "") if inside else ("", adverb)
            return words(ne, clitic, helper, negation, first, participle(verb, agreement), last)
        form = self.simple(verb, {"fut": "fut", "pres": "pres", "prog": "pres"}.get(tense, "imp"), slot)
        return words(ne, clitic, form, negation, adverb)

    def infinitive(self, verb: Verb, slot: int, clitic: str = "") -> str:
        """The infinitive with its pronoun."""
        return words(REFLEXIVE[slot] if "reflexive" in verb.frames else clitic, verb.fr)

    def _piece(self, token: str, following: str, previous: str) -> tuple[str, bool]:
        """The written form of one draft word, and whether it replaces the one before as well."""
        vowel, plain = self.vowel(following), token.lstrip("~")
        if plain in ELIDING and vowel:
            return ELIDING[plain] + "'", False
        if plain == "si" and following in ("il", "ils"):
            return "s'", False
        if (previous, token) in CONTRACTED:
            return CONTRACTED[previous, token], True
        if vowel and token in BEFORE_VOWEL:
            return BEFORE_VOWEL[token], False
        if vowel and token in self.special:
            return self.special[token], False
        return plain, False

    def finish(self, draft: str, end: str) -> str:
        """The sentence that people write, from a draft."""
        tokens = draft.replace(" ,", ",").split()
        pieces: list[str] = []
        for index, token in enumerate(tokens):
            following = tokens[index + 1] if index + 1 < len(tokens) else ""
            piece, replaces = self._piece(token, following, tokens[index - 1] if index else "")
            if replaces:
                pieces.pop()
            pieces.append(piece)
        text = " ".join(pieces).replace("' ", "'")
        return capital(text) + ("." if end == "." else " " + end)
