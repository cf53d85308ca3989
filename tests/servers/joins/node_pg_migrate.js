// Goal of this file: the lock of node-pg-migrate, by a migration that goes on until it is told to end.
'use strict';

const fs = require('fs');
const os = require('os');
const path = require('path');
const { during, load, pg, serve } = require('./serve');
const { runner } = load('node-pg-migrate');

let runs = 0;

serve(during(async (inside) => {
  runs += 1;
  globalThis.inside = inside;
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'dlock-migrate-'));
  try {
    fs.writeFileSync(path.join(dir, `${runs}_run.js`), 'exports.up = () => globalThis.inside();\n');
    await runner({ databaseUrl: pg, dir, direction: 'up', migrationsTable: 'm', checkOrder: false, log: () => {} });
  } finally {
    fs.rmSync(dir, { recursive: true });
  }
}, (e) => /already running/.test(e.message)));
