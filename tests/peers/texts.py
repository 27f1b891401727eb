"""A thousand texts on which tokenizers tend to disagree, the same on every machine."""

import hashlib
import random

# First and last letters of blocks that have been full for many versions of Unicode.
SCRIPTS = {
    "latin": (0x61, 0x7A),
    "accents": (0xC0, 0xF6),
    "extended": (0x100, 0x17F),
    "vietnamese": (0x1EA0, 0x1EF9),
    "greek": (0x3B1, 0x3C9),
    "cyrillic": (0x410, 0x44F),
    "armenian": (0x561, 0x586),
    "hebrew": (0x5D0, 0x5EA),
    "arabic": (0x627, 0x63A),
    "devanagari": (0x904, 0x94D),
    "bengali": (0x985, 0x9A8),
    "tamil": (0xB85, 0xBB9),
    "thai": (0xE01, 0xE3A),
    "georgian": (0x10D0, 0x10F0),
    "ethiopic": (0x1200, 0x1246),
    "cherokee": (0x13A0, 0x13F4),
    "khmer": (0x1780, 0x17B3),
    "hiragana": (0x3041, 0x3096),
    "katakana": (0x30A1, 0x30FA),
    "han": (0x4E00, 0x9FA5),
    "hangul": (0xAC00, 0xD7A3),
    "gothic": (0x10330, 0x10349),
    "mathematical": (0x1D400, 0x1D454),
    "rare_han": (0x20000, 0x2A6D6),
}
MARKS = (0x300, 0x36F)
WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "it",
    "was",
    "for",
    "on",
    "are",
    "with",
    "as",
    "his",
    "they",
    "at",
    "be",
    "this",
    "from",
    "have",
    "or",
    "one",
    "had",
    "by",
    "word",
    "but",
    "not",
    "what",
    "all",
    "were",
    "we",
    "when",
    "your",
    "can",
    "said",
    "there",
    "use",
    "each",
    "which",
    "she",
    "do",
    "how",
    "their",
    "if",
    "gradient",
    "theorem",
    "Lipschitz",
    "stochastic",
    "convergence",
    "McDonald's",
    "iPhone",
    "NASA",
    "e.g.",
    "naïve",
    "façade",
]
ENDINGS = [
    "'s",
    "'t",
    "'re",
    "'ve",
    "'m",
    "'ll",
    "'d",
    "'S",
    "'LL",
    "n't",
    "’s",
    "’ll",
    "s'",
    "'x",
    "''s",
]
STOPS = [
    ".",
    ",",
    ";",
    ":",
    "!",
    "?",
    "...",
    "—",
    "–",
    "-",
    "…",
    "?!",
    "!!!",
    ")",
    "]",
    "}",
    '"',
    "'",
    "»",
    "”",
    "/",
]
DIGITS = ["0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９", "²³¹⁴½¾ⅣⅫ①⑳〇"]
SPACES = [" ", "  ", "    ", "\t", "\n", "\n\n", "\r\n", " \n", "\n ", "\u00a0", "\u2003", "\u3000"]
SPACES += ["\u200b", "\u2028", "\ufeff", "\x0b", "\x0c", "\x85", "\u202f", "\t\t", "   \n\n  "]
EMOJI = [
    "😀",
    "🤖",
    "❤️",
    "☎️",
    "👍🏽",
    "👩🏿\u200d🚀",
    "👨\u200d👩\u200d👧\u200d👦",
    "🏳️\u200d🌈",
    "🇩🇪",
    "🇯🇵",
    "1️⃣",
    "#️⃣",
    "🫠",
    "™",
    "☃",
    "♥",
    "🧑\u200d💻",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "🙈🙉🙊",
]
SPECIAL = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<repo_name>",
    "<|im_",
    "<|im_start",
    "<||>",
    "<file_sep>",
]
CODE = [
    "def {0}({1}, *, {2}=1e-{3}):\n    return [{1}[i] ** {3} for i in range({3})]\n",
    "for (int {0}=0;{0}<{3};++{0}) {{\n\t{1}[{0}] += {2}->x&0x{3};\n}}",
    '{{"{0}": [{3}, -{3}.5, null], "{1}": {{"{2}": true}}}}',
    "SELECT {0}, COUNT(*) FROM {1} WHERE {2} >= {3} GROUP BY 1;--\n",
    "<div class='{0}'>\r\n  <a href=\"https://{1}.org/{2}?q={3}&x=%20\">{0}</a>\r\n</div>",
    "$$\\frac{{\\partial {0}}}{{\\partial x_{{{3}}}}} \\leq \\|{1}\\|_2^{2}$$",
    "#!/bin/sh\n{0} --{1}={3} | grep -v '{2}' > /dev/null 2>&1 && echo $?",
    "fn {0}<'a>(x: &'a mut Vec<{1}>) -> Option<u{3}> {{ x.pop()? }} // {2}",
    "| {0} | {1} |\n|---|:--:|\n| {3} | `{2}` |\n\n- [ ] **{0}**_{1}_\n",
]


class Source:
    """Choices from uniform numbers, whose stream Python keeps from version to version."""

    def __init__(self, seed: int):
        self._uniform = random.Random(seed).random

    def below(self, count):
        return int(self._uniform() * count)

    def one(self, items):
        return items[self.below(len(items))]

    def between(self, first, last):
        return chr(first + self.below(last - first + 1))

    def many(self, make, most):
        return [make(self) for _ in range(1 + self.below(most))]


def script(s):
    first, last = s.one(list(SCRIPTS.values()))
    word = "".join(s.between(first, last) for _ in range(1 + s.below(8)))
    return word.title() if s.below(4) == 0 else word


def marked(s):
    return "".join(c + s.between(*MARKS) * s.below(3) for c in script(s))


def english(s):
    word = s.one([str.lower, str.upper, str.title, str, str])(s.one(WORDS))
    return word + s.one(ENDINGS) * (s.below(3) == 0) + s.one(STOPS) * (s.below(4) == 0)


def number(s):
    digits = "".join(s.one(s.one(DIGITS[:1] * 4 + DIGITS)) for _ in range(1 + s.below(9)))
    forms = ("{}", "-{}", "+{}%", "${}", "{}.{}", "{},000,{}", "{}:{}", "1e-{}", "0x{}f", "v{}.{}")
    return s.one(forms).format(digits, digits[:3])


def code(s):
    names = [s.one(WORDS) + s.one(["", "_", "Id"]) + str(s.below(99)) for _ in range(3)]
    return s.one(CODE).format(*names, s.below(10 ** (1 + s.below(5))))


def anything(s):
    return s.one([script, marked, english, number, emoji, space])(s)


def emoji(s):
    return s.one(EMOJI)


def space(s):
    return s.one(SPACES) * (1 + s.below(3))


def special(s):
    return s.one([english, space, lambda s: s.one(SPECIAL), lambda s: s.one(SPECIAL)])(s)


def spaced(make):
    return lambda s: s.one(["", " ", " ", " ", "  ", "\n"]) + make(s)


KINDS = [spaced(script), spaced(marked), spaced(english), spaced(english), spaced(number), code]
KINDS += [spaced(emoji), anything, anything, special]


def texts(count: int = 1000, *, seed: int = 0) -> list[str]:
    """The texts; every tenth holds names of special tokens."""
    source = Source(seed)
    return ["".join(source.many(KINDS[i % len(KINDS)], 12)) for i in range(count)]


def digest(items: list[str]) -> str:
    """A checksum of texts."""
    return hashlib.sha256("\0".join(items).encode()).hexdigest()
