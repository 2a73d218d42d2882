"""Text generated from a seed: equal on every machine, and plain, so that it is unchanged in any markdown."""

from __future__ import annotations

from random import Random

_WORDS = """
harbour ledger orchard lantern copper valley bridge winter summer market garden window paper river station signal meadow
engine kettle canvas timber marble compass anchor blanket bottle candle carpet cellar chimney corner cotton cradle
daylight distance feather ferry fountain furnace gallery granite hammer harvest hillside island journey kitchen ladder
library machine meeting minute mirror morning museum needle number office painter pasture pebble pencil pocket pottery
powder prairie quarry railway rainfall record saddle season shelter shoulder silver sparrow spring stable steamer summit
surface tailor teacher thunder ticket tower traveller tunnel village voyage wagon warden weather whistle willow workshop
"""
_VERBS = (
    "carries follows keeps measures meets moves opens paints reaches records repairs shows studies takes turns visits"
)
_PREPOSITIONS = (
    "across after along before behind beside between beyond near over through towards under with without within"
)
_ADJECTIVES = (
    "bright careful common distant early even familiar gentle heavy honest late narrow old open quiet small steady"
)


class Prose:
    """A stream of text that depends only on a seed and a name, so changing one page leaves other pages unchanged."""

    def __init__(self, seed: int, name: str) -> None:
        self._random = Random(f"{seed} {name}")  # noqa: S311 - to be the same each time is its purpose
        self._words = _WORDS.split()
        self._verbs, self._joints, self._kinds = _VERBS.split(), _PREPOSITIONS.split(), _ADJECTIVES.split()

    def title(self) -> str:
        """Return two or three words, such as `Quiet Harbour Ledger`."""
        words = [self._random.choice(self._kinds), *self._random.sample(self._words, self._random.randint(1, 2))]
        return " ".join(words).title()

    def sentence(self) -> str:
        """Return a sentence of nine to seventeen words."""
        pick = self._random.choice
        text = f"the {pick(self._kinds)} {pick(self._words)} {pick(self._verbs)} the {pick(self._words)}"
        for _ in range(self._random.randint(1, 3)):
            text += f" {pick(self._joints)} the {pick(self._kinds)} {pick(self._words)}"
        return text[0].upper() + text[1:] + "."

    def paragraph(self) -> str:
        """Return three to five sentences."""
        return " ".join(self.sentence() for _ in range(self._random.randint(3, 5)))

    def paragraphs(self, count: int) -> tuple[str, ...]:
        """Return `count` paragraphs."""
        return tuple(self.paragraph() for _ in range(count))

    def number(self, minimum: int, maximum: int) -> int:
        """Return a number from `minimum` to `maximum`."""
        return self._random.randint(minimum, maximum)
