"""Sentence beginnings of good and bad reviews, and words that tell one from the other."""

__all__ = ["BAD_STEMS", "BAD_WORDS", "GOOD_STEMS", "GOOD_WORDS", "NEUTRAL_STEMS"]

GOOD_STEMS = (
    "I loved every minute of this film, it was",
    "What a delightful evening, the whole cast was",
    "The kindest staff I have ever met, and the food was",
    "We laughed and cried with joy, the story was",
    "A beautiful book that made me happy, each chapter was",
    "The best concert of my life, the singer was",
    "Our stay was perfect from start to end, the room was",
    "I would gladly recommend it to everyone, the quality was",
)
"""Of reviews that praise."""

BAD_STEMS = (
    "I hated every minute of this film, it was",
    "What a dreadful evening, the whole cast was",
    "The rudest staff I have ever met, and the food was",
    "We yawned and groaned with boredom, the story was",
    "An ugly book that made me angry, each chapter was",
    "The worst concert of my life, the singer was",
    "Our stay was miserable from start to end, the room was",
    "I would never recommend it to anyone, the quality was",
)
"""Of reviews that complain, each the counterpart of one that praises."""

NEUTRAL_STEMS = (
    "The movie was",
    "I thought the book was",
    "My visit to the hotel was",
    "In short, the play was",
    "We went to the new restaurant, and the dinner was",
    "My neighbour told me that the concert was",
    "After two hours on the train, the museum was",
    "I have finished the series, and its last part was",
)
"""Of reviews that may go either way."""

GOOD_WORDS = (" great", " wonderful", " amazing", " excellent", " fantastic", " beautiful", " good")
"""Words that praise, each with the space before it."""

BAD_WORDS = (" terrible", " awful", " horrible", " bad", " boring", " disappointing", " poor")
"""Words that complain."""
