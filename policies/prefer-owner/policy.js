// A claim prefers the volume that its StatefulSet or pod has used before: the one whose label
// `bindery.dev/last-owner` names the owner, and whose label `bindery.dev/last-ordinal` is the ordinal of the claim.

const settingsSchema = {
  type: 'object',
  properties: {
    strangers: {
      description: 'The score of volumes that another owner has used; those that nobody has used get 50.',
      type: 'integer',
      minimum: 0,
      maximum: 100,
      default: 0,
    },
  },
  additionalProperties: false,
};

// Places of the facts and columns in the metadata.
const OWNER = 0;
const ORDINAL = 1;

const label = (key) => ({ tag: 'label', val: key });

export const match = {
  describe() {
    return {
      name: 'prefer-owner',
      version: '0.1.0',
      description: 'Prefers the volume that the same StatefulSet or pod has used before.',
      claimFacts: [{ tag: 'owner-name' }, { tag: 'owner-ordinal' }],
      columns: [label('bindery.dev/last-owner'), label('bindery.dev/last-ordinal')],
      reasons: [],
      scores: true,
      settingsSchema: JSON.stringify(settingsSchema),
    };
  },

  // The schema says everything. What cannot be said by a schema is thrown as a sentence.
  check(settings) {},

  narrow(settings, claim) {
    return { requirements: [], judge: true };
  },

  judge(settings, claim, { texts, columns }) {
    const { strangers = 0 } = JSON.parse(settings);
    // Rows name texts by their place, from 1 on; 0 means that the volume lacks the label.
    const place = (text) => (text === undefined ? -1 : texts.indexOf(text) + 1 || -1);
    const [owner, ordinal] = [place(claim.facts[OWNER]), place(claim.facts[ORDINAL])];
    // A loop over typed arrays: plain arrays, or a function for each row, cost three to ten times as much.
    const [owners, ordinals] = [columns[OWNER], columns[ORDINAL]];
    const rows = owners.length;
    const [reasons, scores] = [new Uint32Array(rows), new Uint32Array(rows)];
    for (let row = 0; row < rows; row++) {
      if (owners[row] === 0) scores[row] = 50;
      else if (owners[row] !== owner) scores[row] = strangers;
      else scores[row] = ordinals[row] === ordinal ? 100 : 75;
    }
    return { reasons, scores };
  },
};
