"""English words that are hardly ever names: pronouns, articles, prepositions, conjunctions, auxiliaries, adverbs.

A graph has names that are spelt like them (the film It, the band The Who, the country code US); where case is ignored,
every "it" of a text would be a mention.
"""

from __future__ import annotations

PRONOUNS = """
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
it its itself they them their theirs themselves one ones oneself who whom whose which what whoever whatever whichever
this that these those each either neither both all any some none another other others such same such own somebody
someone something anybody anyone anything nobody nothing everybody everyone everything
"""
DETERMINERS = "a an the no every few fewer many more most much several less least enough half"
PREPOSITIONS = """
about above across after against along among around as at before behind below beneath beside besides between beyond by
despite down during except for from in inside into like near of off on onto out outside over past per since through
throughout to toward towards under underneath until unto up upon via with within without
"""
CONJUNCTIONS = "and or nor but yet so if unless because although though while whereas than whether when where why how"
AUXILIARIES = """
am is are was were be been being have has had having do does did doing done can could may might must shall should will
would ought let get gets got go goes going gone went make makes made say says said see seen take takes took
"""
ADVERBS = """
not never ever always often sometimes again once here there then now today thus hence also too very just only even still
already almost quite rather perhaps maybe however therefore otherwise instead well yes please first last next soon
later early away back far
"""
NUMERALS = "one two three four five six seven eight nine ten"

ENGLISH = frozenset(
    word
    for words in (PRONOUNS, DETERMINERS, PREPOSITIONS, CONJUNCTIONS, AUXILIARIES, ADVERBS, NUMERALS)
    for word in words.split()
)
