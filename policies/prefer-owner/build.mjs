import { readFile, writeFile } from 'node:fs/promises';
import { componentize } from '@bytecodealliance/componentize-js';

const { name } = JSON.parse(await readFile('package.json', 'utf8'));
const { component } = await componentize({
  sourcePath: 'policy.js',
  witPath: 'wit',
  worldName: 'matcher',
  // A policy imports no function, so the engine must not need any.
  disableFeatures: ['random', 'stdio', 'clocks', 'http', 'fetch-event'],
});
await writeFile(`${name}.wasm`, component);
