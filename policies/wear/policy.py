"""Rejects worn volumes and prefers fresh ones.

The annotation `bindery.dev/wear` of a volume says how much of its life is used, in per cent.
"""

import json

from wit_world import exports
from wit_world.exports.match import Candidates, Narrowing, Verdicts
from wit_world.imports.facts import Claim, Metadata, Reason, VolumeFact_Annotation

SETTINGS_SCHEMA = {
    "type": "object",
    "properties": {
        "most": {
            "description": "Volumes that are worn more than so many per cent are rejected.",
            "type": "integer",
            "minimum": 0,
            "maximum": 100,
            "default": 80,
        },
    },
    "additionalProperties": False,
}

# Places of the reasons in the metadata, counted from 1 as in verdicts.
WORN = 1
UNREADABLE = 2


class Match(exports.Match):
    def describe(self) -> Metadata:
        return Metadata(
            name="wear",
            version="0.1.0",
            description="Rejects worn volumes and prefers fresh ones.",
            claim_facts=[],
            columns=[VolumeFact_Annotation("bindery.dev/wear")],
            spread=None,
            reasons=[
                Reason("worn", "{volume.0} per cent of the volume's life are used"),
                Reason("unreadable-wear", "the annotation bindery.dev/wear is {volume.0}, not a percentage"),
            ],
            scores=True,
            settings_schema=json.dumps(SETTINGS_SCHEMA),
        )

    def check(self, settings: str) -> None:
        """The schema says everything. What it cannot say is raised as `Err` with a sentence."""

    def narrow(self, settings: str, claim: Claim) -> Narrowing:
        return Narrowing(requirements=[], at_most=None, judge=True)

    def judge(self, settings: str, claim: Claim, candidates: Candidates) -> Verdicts:
        most = json.loads(settings).get("most", 80)
        # Each text is there once. Rows name texts from 1 on; 0 means no annotation, and so a fresh volume.
        of_texts = [(0, 100)] + [verdict(text, most) for text in candidates.texts]
        rows = [of_texts[text] for text in candidates.columns[0]]
        return Verdicts(reasons=[reason for reason, _ in rows], scores=[score for _, score in rows])


def verdict(wear: str, most: int) -> tuple[int, int]:
    """Reason and score of a volume with this wear."""
    if not (wear.isascii() and wear.isdigit() and int(wear) <= 100):
        return UNREADABLE, 0
    return (WORN if int(wear) > most else 0), 100 - int(wear)
