"""Patterns of replies that choose letters: phrases in five languages, and lists of several letters."""

import re

_LONE = re.compile(r"[(\[][a-m][)\]]|\b[a-m]\)|\b[A-M]\b")
_JOINING = re.compile(
    r"\b(?i:and|or|to|through|plus|as well as|both|either|option|choice|letter)\b"
    r"|[\s.,;:!?()\[\]{}<>/|&+*#_\"'~→•·…。，、；–—-]"
)
"""What may stand between the letters of a list, and before them; no ✓ or ✗, which says which is right."""
_LABEL = re.compile(r"\W*[A-M]\s*[).:\]]\s.*\b[A-M]\b.*\b(?:and|or)\b")  # "E. A and B"
_OPTION = re.compile(r"(?<![\w.'’])(?P<open>[(\[]?)(?P<letter>[A-M])(?P<sign>[).:\]]|$)(?![^\W\d_])")
_NEXT_OF_SEVERAL = re.compile(r"(?:[,;/&+]|\bor)\s*$")
_ONLY_LETTERS = re.compile(r"(?:[\s,;]*[(\[]?[A-M][).:\]])*[\s,;]*")


def only_letters(text: str) -> set[str]:
    """Return the letters of a text that holds several of them and nothing else, whatever parts them; else none.

    The letter of a choice that names others, as in "E. A and B", is no list.

    >>> sorted(only_letters("A - E")), sorted(only_letters("Option A. Option B.")), only_letters("E. A and B")
    (['A', 'E'], ['A', 'B'], set())
    """
    found = {letter.strip("()[]").upper() for letter in _LONE.findall(text)}
    if len(found) < 2 or _LABEL.match(text) or _JOINING.sub("", _LONE.sub("", text)):
        return set()
    return found


def listed_letters(text: str) -> set[str]:
    """Return the letters of further choices that stand in a text behind a first one.

    A letter belongs to one if it has the form of the first ("B." or "(B)") and is parted from it by a comma or the like
    (a reply may be cut behind it) or by nothing at all; or if it is the next in the alphabet, in a list that begins
    with A or has three letters. So there are none in "B. Robert A. Millikan" and in "B. 5 C. It is".
    """
    options = list(_OPTION.finditer(text))
    if not options or text[: options[0].start()].strip():
        return set()
    first, end = options[0], options[0].end()
    found, run = set(), first["letter"]
    initials = first["sign"] == "." and not _ONLY_LETTERS.fullmatch(text)
    for option in options[1:]:
        between = text[end : option.start()]
        separated = _NEXT_OF_SEVERAL.search(between) is not None
        cut = separated and not option["sign"]
        if option["open"] != first["open"] or (option["sign"] != first["sign"] and not cut):
            continue
        if separated or not (between.strip() or initials):
            found.add(option["letter"])
        if ord(option["letter"]) == ord(run[-1]) + 1:
            run += option["letter"]
        end = option.end()
    return found | set(run if len(run) > 2 or run.startswith("AB") else "")


WORD = "A-Za-zÀ-ÖØ-öø-ÿ0-9_"
"""What words are made of; Chinese ones are not parted by spaces."""


def phrases(*, zh: str = "", **languages: str) -> str:
    """Return a pattern of any of these phrases: words apart from others, in capitals or not; Chinese ones anywhere.

    Phrases are parted by "|". A space stands for any white space, an apostrophe for either of its forms.
    """
    words = "|".join("".join(text.split("\n")) for text in languages.values())
    apart = rf"(?<![{WORD}])(?i:{words})(?![{WORD}])".replace(" ", r"\s+").replace("'", "['’]")
    return f"(?:{apart}|{zh})" if zh else f"(?:{apart})"


NOUN = phrases(
    en="(?:ans|answer|choice|option|alternative|solution|selection|pick|response|letter|statement|conclusion|diagnosis)s?",
    de="Antwort(?:möglichkeit|option)?|Lösung|Wahl|Auswahl|Aussage|Möglichkeit",
    fr="réponses?|choix|propositions?",
    es="respuestas?|opción|opciones|alternativas?|elección|solución|letra",
    zh="答案|选项|正确的?是|选择",
)
"""What an answer is called."""
OPTION = phrases(
    en="option|choice|letter|alternative|answer|statement|item",
    de="Antwort(?:möglichkeit|option)?|Möglichkeit|Lösung|Aussage|Auswahl(?:möglichkeit)?|Buchstabe|Variante",
    fr="réponse|proposition|choix|lettre|case",
    es="opción|respuesta|alternativa|letra|inciso|solución|apartado",
    zh="选项|答案|选择",
)
"""What one of the choices is called in front of its letter."""
IS = phrases(
    en="is|are|was|would be|should be|must be|has to be|will be|seems to be|appears to be|remains",
    de="ist|lautet|wäre|sei|heißt",
    fr="est|serait",
    es="es|sería|debe ser|será",
    zh="应该是|应当是|应是|是|应为|为|選|选|选择",
)
RIGHT = phrases(
    en=r"correct|right(?!\shand|\sangle)|true|best(?!\sknown)|better (?:answer|choice|fit|option)|accurate"
    r"|appropriate|valid|(?<=the\s)only",
    de="richtige?|korrekte?|zutreffend|wahr",
    fr="correcte?|exacte?|juste|vraie?|bonne",
    es="correct[ao]|verdader[ao]|adecuad[ao]",
    zh="正确的?|对的|符合",
)
FITS = phrases(
    en="fits|it is|it's|remains|is left|is the only one left",
    de="stimmt|trifft zu|passt|bleibt(?: als einzige)? übrig",
    fr="convient",
    es="queda",
    zh="正确",
)
"""What affirms the letter before it by itself."""
FILLER = phrases(
    en="the|number|indeed|in fact|actually|clearly|most|likely|probably|definitely|therefore|thus|then|hence|simply"
    "|listed under|only",
    de="die|der|das|eindeutig|wohl|daher|also|somit|doch|nur|noch",
    fr="la|le|les|donc|bien|en fait|plutôt",
    es="el|lo|por|tanto|entonces",
)
"""What may stand between a statement and its letter."""
CHOOSE = phrases(
    en="choose|choosing|pick|select|prefer|take|taking|most likely|best guess|selecting|go with|going with"
    "|go for|going for|opt for|settle on|lean towards?"
    "|vote for|mark|tick"
    "|I say|I would say|I'd say|I'll say|I answer|I would answer|I'd answer|I meant?|(?:changing|change) my answer to"
    "|my (?:choice|pick|guess|vote|selection|best guess)(?: is| would be| goes to|:)",
    de="wähle|nehme|tippe auf|entscheide mich für|ankreuzen|ich würde(?: mich für)?",
    fr="je (?:choisis|choisirais|prends|dirais|répondrais|réponds|sélectionne)|opte pour|opterais pour|penche pour"
    "|retenir|cocher",
    es="elijo|elegiría|escojo|escogería|optaría por|opto por|selecciono|seleccionaría|diría que|diría|marco|marcaría"
    "|me quedo con|nos quedamos con|me inclino por|rectifico",
    zh="应?该?选择?|故选|则选|本题选|答选",
)
IT_IS = phrases(
    en="it is|it's|it must be|it should be|it has to be|that is|that's|that would be|that'd be|this is",
    de="es ist|das ist|es wäre|es muss|es handelt sich(?: also)? um",
    fr="c'est|ce serait|il (?:s'agit|reste)(?: donc)?(?: de)?",
    es="es la|sería la|es el",
)
_SO = r"so(?! (?:is|are|was|were|do|does) )"  # "A is wrong, and so is B"
HENCE = phrases(
    en=rf"{_SO}|thus|therefore|hence|consequently|which (?:is|means|matches|corresponds to|gives)|leaves|leaving"
    "|points? to|makes it"
    "|matches|corresponds to|correction|leaves (?:us with|only)|leaving (?:us with|only)|left with(?: only)?",
    de="daher|also|somit|folglich|deshalb|korrektur|fazit|bleibt(?: nur)?|entspricht",
    fr="donc|ainsi|soit|à savoir|correspond(?:ant)? à|il ne reste(?: donc| plus)? que|ne reste que",
    es="por lo tanto|por tanto|por eso|así que|luego|entonces|corrección|es decir|corresponde a|s[oó]lo (?:nos )?queda"
    "|queda(?: solo| únicamente)?",
    zh="只剩下?|剩下的?是?|故",
)
CONCLUSION = phrases(
    en=f"thus|therefore|hence|{_SO}|consequently|most likely",
    de="daher|also|somit",
    fr="donc|ainsi",
    es="por lo tanto|por tanto",
)
"""What opens a sentence that concludes: "thus the best ground is A"."""
SIGNS = "(?:→|=>|⇒|∴|➡️?|因此|所以|故|综上)"
CORRECTED = "(?:更正为|改为|改选|修正为|应为)"
MAY_BE = phrases(
    en="might be|may be|may well be|might well be", de="dürfte|könnte", fr="pourrait être", es="podría ser"
)
"""What leads to an answer of which the model is not sure."""
BUT = phrases(en="but|but rather|rather|instead", de="sondern", fr="mais", es="sino", zh="而是")
CORRECTION = phrases(
    en=r"(?<![,;]\s)actually|wait(?=\s*[^\w\s])|wait (?:no|a|actually|let)|correction(?=\s*[^\w\s])|sorry"
    r"|apolog(?:y|ies|i[sz]e)|second thought|my mistake|mistaken?|scratch that|instead"
    "|re-?(?:check|consider|examin|evaluat|think|calculat|read)(?:e|ed|ing|ation)?|I was wrong|I misread|hold on|oops"
    r"|let me (?:correct|fix|double|re)|revis(?:e|ed|ing)|changing my answer|hmm"
    r"|(?:up)?on (?:closer|further) \w+|(?:up)?on reflection",
    de=r"moment|doch|tatsächlich|eigentlich|korrektur|korrigiere|stopp|halt|verzeihung|entschuldigung|irrtum|nochmals?"
    r"|bei (?:näher|genauer)e[rm] \w+",
    fr=r"en fait|pardon|attend(?:s|ez)|erreur|excuse\w*|rectifi\w+|plutôt|trompée?|en relisant|de plus près|réflexion",
    es=r"en realidad|perdón|espera|un momento|corrección|corrijo|disculpa\w*|mejor dicho|rectifico|de hecho"
    r"|pensándolo (?:mejor|bien)",
    zh=r"\b(?i:no|nein|non)\b\s*[,.!—–-]|实际上|其实|不对|等等|等一下|更正|重新|抱歉|错了|修正|再想|再看",
)
"""What leads from one answer to another that replaces it."""
DENIAL = phrases(
    en="not|isn't|can't|cannot|wasn't|neither|nor|never|no|incorrect|wrong|false|unlikely|rule out|ruled out"
    "|eliminated?|excluded?|discarded?|out",
    de=r"nicht|keine?|weder|(?<!nur\s)noch|falsch|unzutreffend|inkorrekt|ausscheiden|scheide[nt]",
    fr="pas|ni|faux|fausses?|incorrecte?s?|exclue?|éliminée?",
    es="falsas?|falsos?|incorrectas?|incorrectos?|tampoco|descartamos|descarto|descartada",
    zh="n['’]est|不|错|排除|❌|✗|✘",
)
HEDGE = phrases(
    en=r"(?:could|might|may|can)(?: \w+){0,3} be", de="könnte", fr="pourrait", es="podría|puede ser", zh="可能"
)
OTHERS = phrases(
    en=r"(?:students|people|many|others|someone|some|they|you (?:might|may|could))(?:,? \w+){0,4}",
    de=r"(?:viele|manche|andere|einige)(?: \w+){0,4}",
    fr=r"(?:beaucoup|certains|d'autres|on pourrait)(?: \w+){0,4}",
    es=r"(?:muchos|algunos|otros)(?: \w+){0,4}",
    zh=r"(?:很多|许多|有些?|一些)(?:人|同学|学生)[^，。,.]{0,6}",
)
"""What leads to the answers of other people: "many students choose"."""
WHETHER = phrases(en="why|if|whether", de="ob|wenn|falls|warum", fr="si|pourquoi", es="por qué|si")
JOIN = r"(?:,|;|/|&|\+|、|\b(?i:and|or|und|oder|et|ou|y|o|e|nor)\b|和|或|与|及)"
AND = rf"(?:\s*(?:{JOIN}\s*)+)"  # white space has one place only: with two, a row of commas is read in 2ⁿ ways
AFTER_A_LETTER = (
    r"(?i:[a-z]{2,}ly|about|above|according|across|after|against|all|along|also|although|among|any|applies|are|around|based"
    r"|before|behind|below|beneath|beside|between|both|compared|considering|corresponds|describes|despite|does|during|even"
    r"|exactly|except|follows|following|gives|had|has|he|hence|how|however|I|indeed|instead|into|its|just|like|makes|means|my"
    r"|near|no|nor|of|off|once|out|over|overall|per|please|plus|rather|refers|represents|says|she|shows|still|such|than|thanks?"
    r"|there|therefore|these|they|those|through|throughout|thus|too|towards?|under|unless|unlike|until|up|upon|using|versus|via"
    r"|vs|we|were|what|whereas|whether|while|who|whose|why|within|without|yes|yet|you"
    "|after all|and|as|at|because|but|by|due|for|from|given|here|if|in|is|it|it['’]s|not|on|or|seems?|since|so|that"
    "|the|though|this|to|was|when|where|which|with|would|will|best|correct|right|fits|looks|must|should|can|could|marks"
    "|matches|remains|alone|only|left|remaining|option|choice|answer|then|ist|oder|und|der|die|das|weil|da|wegen|trifft|stimmt"
    "|passt|zu|sein|heißen|wäre|würde|übrig|korrekt|richtig|falsch|wählen|nehmen|ankreuzen|tippen|sagen|et|est|ou|la|le|parce|puisque|vu|bien|mais|répond"
    r"|car(?=\s+(?:l[ea]s?|il|elle|ce|une?|on|s[ao]n?|cela|[lc]['’]))|correspond|serait|correcte|juste|exacte|fausse"
    "|incorrecte|restante|es|y|o|porque|ya|aunque|sería|correct[ao]|incorrect[ao])"
)
"""Words that follow a letter that is chosen, but no noun that the letter A would be the article of."""
THINGS = phrases(
    things="table|type|class|grade|group|plan|point|schedule|figure|fig|phase|block|part|section|car|train|city|town|line|node"
    "|vertex|angle|side|player|company|team|person|object|body|box|bag|appendix|chapter|room|gate|wire|lamp|bulb|planet"
    "|star|plate|substance|element|gas|liquid|metal|sample|tank|container|blood type|blood group|symbol|drive|level"
    "|variable|sets?|event|matrix|vector|note|key of|size|area|zone|region|district|route|bus|program|language|number",
    titles="dr|mr|mrs|ms|prof|sir|king",
    vitamins="vitamine?|vitamina|hepatitis|hépatite|groupe sanguin|grupo sanguíneo|blutgruppe",
    others="typ|tipo|klasse|clase|classe|gruppe|groupe|grupo|punkt|punto|abbildung|figura|teil|símbolo|symbole|zeichen"
    "|plano|saal|raum|halle|salle|sala|aula|avenida",
)
"""What a letter after it names something else than a choice of: "vitamin C", "point A"."""
